"""The LB policies of xDS.

From the top of the tree down:

- `cluster_manager`: one child per cluster; the ConfigSelector has chosen the cluster of an RPC.
- `cds`: one cluster of the XdsConfig. An aggregate is a priority policy with a cds policy for each
  leaf (A75).
- `cluster_impl`: drops, circuit breaker, load reports, TLS.
- `override_host`: session affinity.
- `wrr_locality`: the localities of one priority, by weight.
- `pick_labels`: picker that records the locality of a pick, for metrics (A78).

Exports nothing: the registry imports a policy when a config first names it (ADR 0003, ADR 0015),
and those of every config while the control plane is asked for the first one (`xds.stack`).
"""
