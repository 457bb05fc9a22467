"""How large may a resource be?

A control plane is trusted with traffic, not with our memory: each list has a bound, far above what
meshes of ten thousand services send. How deep messages nest, protobuf itself bounds (100).
"""

from typing import Final

HTTP_FILTERS_MAX: Final = 1_000
# Of one virtual host, route or weighted cluster.
FILTER_OVERRIDES_MAX: Final = 1_000

VIRTUAL_HOSTS_MAX: Final = 100_000
# Of one virtual host.
DOMAINS_MAX: Final = 100_000
# Of all virtual hosts together.
ROUTES_MAX: Final = 200_000
CLUSTER_SPECIFIER_PLUGINS_MAX: Final = 10_000

# Of one route.
HEADERS_MAX: Final = 1_000
WEIGHTED_CLUSTERS_MAX: Final = 10_000
HASH_POLICIES_MAX: Final = 1_000

# Of one ClusterLoadAssignment; its own rule for the field is "0 to 128".
PRIORITIES_MAX: Final = 129
