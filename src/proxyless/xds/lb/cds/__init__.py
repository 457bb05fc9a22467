"""The `cds_experimental` policy: one cluster of the XdsConfig, with the policies below it.

Specs: A74, A75 (aggregate clusters), A37.

policy             the policy: from cluster and endpoints to the child's config and endpoints
priority_children  children of the priority policy: stable names, and endpoints
endpoint_weights   pure: normalized weights of endpoints (A113)
cluster_policies   the tree of policies below, and their configs
"""

from proxyless.xds.lb.cds.policy import CdsFactory

__all__ = ["CdsFactory"]
