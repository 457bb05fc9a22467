"""The `xds_cluster_impl_experimental` policy: drops, circuit breaker, load reports, TLS.

Specs: A32, A29, A85.

policy         config, picker and policy
call_counters  RPCs in flight of each cluster, shared by all channels (A32)
"""

from proxyless.xds.lb.cluster_impl.policy import ClusterImplFactory

__all__ = ["ClusterImplFactory"]
