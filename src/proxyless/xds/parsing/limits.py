"""Limits on the lists of a resource, far above what meshes of ten thousand services send.

They bound the memory that a control plane can take. protobuf limits the nesting of messages to 100.
"""

from typing import Final

HTTP_FILTERS_MAX: Final = 1_000
# Per virtual host, route or weighted cluster.
FILTER_OVERRIDES_MAX: Final = 1_000

VIRTUAL_HOSTS_MAX: Final = 100_000
# Per virtual host.
DOMAINS_MAX: Final = 100_000
# For all virtual hosts together.
ROUTES_MAX: Final = 200_000
CLUSTER_SPECIFIER_PLUGINS_MAX: Final = 10_000

# Per route.
HEADERS_MAX: Final = 1_000
WEIGHTED_CLUSTERS_MAX: Final = 10_000
HASH_POLICIES_MAX: Final = 1_000

# Per ClusterLoadAssignment. Envoy's API allows the priorities 0 to 128.
PRIORITIES_MAX: Final = 129
