"""The LB policies of xDS.

From the top of the tree down:

- `cluster_manager`: a child for each cluster; an RPC is picked for by the child of its own.
- `cds`: one cluster, from the XdsConfig: its endpoints and the policies below. An aggregate is a
  priority policy with a cds for each leaf (A75). `priorities` names the children of that.
- `cluster_policies`: which policies those are, and their configs.
- `cluster_impl`: drops, circuit breaker, load reports, TLS.
- `override_host`: sessions that stay on their backend; `session_hosts` knows who holds which.
- `wrr_locality`: the localities of one priority, by weight.
- `pick_labels`: pickers that record cluster and locality of a pick, for metrics (A78, A89).

Exports nothing: the registry imports a policy when a config first names it (ADR 0003, ADR 0015).
"""
