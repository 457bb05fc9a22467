"""The `proxyless.peak_ewma` policy: of two random endpoints, picks the one with the lower cost.

Specs: none; requirements PE-01 to PE-09. The cost is the latency, averaged with peaks that count at
once, times the RPCs in flight, as in Finagle and Linkerd.

config         config and its parser
endpoint_load  pure: average latency, failure rate and cost of one endpoint
policy         picker, timing of RPCs, and policy
"""

from proxyless.lb.policies.peak_ewma.config import PeakEwmaConfig
from proxyless.lb.policies.peak_ewma.policy import PeakEwmaFactory

__all__ = ["PeakEwmaConfig", "PeakEwmaFactory"]
