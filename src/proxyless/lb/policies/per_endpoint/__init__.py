"""Base of the policies with one pick_first child per endpoint ("petiole policies", A61).

Used by round_robin, random, least_request, peak_ewma, weighted_round_robin and ring_hash.

endpoint_list  the children, updated from the list of endpoints
policy         aggregation of the children's states into reports
"""

from proxyless.lb.policies.per_endpoint.endpoint_list import EndpointChild, EndpointList
from proxyless.lb.policies.per_endpoint.policy import ExtendablePicker, PerEndpointPolicy

__all__ = ["EndpointChild", "EndpointList", "ExtendablePicker", "PerEndpointPolicy"]
