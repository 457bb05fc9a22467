"""Limits on the parts of a resource, far above what meshes of ten thousand services send.

They bound the memory and the time that a control plane can take; docs/limits.md has the reasons.
protobuf limits the nesting of messages to 100.
"""

from typing import Final

# Work (`ValidationErrors.work`, about microseconds) between two steps of a parser. Lists of routes
# and endpoints have a step every few elements; any other part of a resource has to fit in one.
PART_WORK_MAX: Final = 30_000
# Work for the regular expressions of one resource: about 10,000 usual ones. After an invalid one
# that is expensive, fewer are compiled: the resource is rejected in any case.
REGEX_WORK_MAX: Final = 1_000_000

HTTP_FILTERS_MAX: Final = 1_000
# Per virtual host, route or weighted cluster.
FILTER_OVERRIDES_MAX: Final = 1_000

VIRTUAL_HOSTS_MAX: Final = 100_000
# For all virtual hosts together.
DOMAINS_MAX: Final = 100_000
ROUTES_MAX: Final = 100_000
CLUSTER_SPECIFIER_PLUGINS_MAX: Final = 10_000

# Per route.
HEADERS_MAX: Final = 1_000
WEIGHTED_CLUSTERS_MAX: Final = 10_000
HASH_POLICIES_MAX: Final = 100
MIRROR_POLICIES_MAX: Final = 16

# Per ClusterLoadAssignment. Envoy's API allows the priorities 0 to 128.
PRIORITIES_MAX: Final = 129
LOCALITIES_MAX: Final = 3_000
ENDPOINTS_MAX: Final = 20_000
# Per endpoint. A hostname is sent in each RPC if authorities are rewritten (A81).
ADDRESSES_MAX: Final = 1_000
HOSTNAME_CHARACTERS_MAX: Final = 1_024

# Per Cluster: 4,000 clusters of an aggregate.
CLUSTER_BYTES_MAX: Final = 256 * 1024
