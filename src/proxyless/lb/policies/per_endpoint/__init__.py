"""Base of the policies with one pick_first child per endpoint ("petiole policies", A61).

Used by round_robin, random, least_request, weighted_round_robin and ring_hash.

endpoint_list  the children, kept in step with the list of endpoints
policy         the policy's state from its children's, and when it is reported
"""

from proxyless.lb.policies.per_endpoint.endpoint_list import EndpointChild, EndpointList
from proxyless.lb.policies.per_endpoint.policy import PetiolePolicy

__all__ = ["EndpointChild", "EndpointList", "PetiolePolicy"]
