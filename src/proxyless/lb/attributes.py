"""Attribute keys of endpoints, updates and RPCs that several policies share."""

from typing import Final

from proxyless.base import HTTP_PROXY, Attributes, Key

# RPC attribute: its 64-bit hash for ring_hash (A42).
REQUEST_HASH: Final = Key[int]("request_hash")

# RPC attribute, present if the RPC is measured: metric labels by name (A78). Pickers add to it in
# each pick, even if the pick is queued or fails.
PICK_LABELS: Final = Key[dict[str, str]]("pick_labels")
# Entries of that dict which are not metric labels: why a pick is queued (A121). The kind is absent
# if no endpoint is connected; the priority is the index of the one that RPCs wait for.
DELAY_KIND: Final = "delay_kind"
DELAY_PRIORITY: Final = "delay_priority"

# Update attribute: the metric label of the endpoints' locality (A78).
LOCALITY_LABEL: Final = Key[str]("locality_label")
# Update attribute: the backend service of the endpoints; in a mesh, the cluster (A89).
BACKEND_SERVICE: Final = Key[str]("backend_service")

# Update attribute of pick_first: report READY only if the connection is healthy. Set only by
# per-endpoint policies, which can send RPCs to other endpoints (A61).
HEALTH_WATCH: Final = Key[bool]("health_watch")

# Subchannel attribute: the retained child that creates the subchannel. The pool compares holders by
# identity; without this attribute the channel is the holder.
HOLDER: Final = Key[object]("holder")

# Update attribute: True if the config lists the child again after it did not. Endpoints that are
# not in this update left the config long ago, so they must take no more RPCs (D45).
IS_LISTED_AGAIN: Final = Key[bool]("is_listed_again")

# Environment variable: pick_first shuffles by weight, and endpoint weights are normalized (A113).
WEIGHTED_SHUFFLING_GUARD: Final = "GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING"
# Endpoint attribute: its weight. Absent or 0 means 1.
ENDPOINT_WEIGHT: Final = Key[int]("endpoint_weight")
# Endpoint attribute: hashed by ring_hash in place of the first address (A76), unless empty.
HASH_KEY: Final = Key[str]("hash_key")


def differ_only_in_proxy(before: Attributes, after: Attributes) -> bool:
    """Whether the attributes are equal but for the HTTP proxy.

    The proxy may change with each DNS lookup of its name; it does not change the endpoint.
    """
    return before.without(HTTP_PROXY) == after.without(HTTP_PROXY)
