"""The `xds_cluster_impl_experimental` policy: drops, circuit breaker, load reports, TLS.

Specs: A32, A29, A64, A85.

policy              config, picker and policy
call_counters       RPCs in flight to each cluster, shared by all channels (A32)
drop_metrics        counters of dropped RPCs
metric_propagation  metrics of backends in load reports (A64, A85)
"""

from proxyless.xds.lb.cluster_impl.policy import ClusterImplFactory

__all__ = ["ClusterImplFactory"]
