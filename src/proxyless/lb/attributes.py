"""What do resolvers and channels tell policies about endpoints and RPCs?

Only the keys that those who set them and several policies have in common. What they mean is said by
the policy that reads them.
"""

from typing import Final

from proxyless.base import HTTP_PROXY, Attributes, Key

# Of an RPC: where on the ring it belongs, 64 bits (A42).
REQUEST_HASH: Final = Key[int]("request_hash")

# Of an RPC that somebody measures: what the policies on its way say about it, by the name of the
# label (A78). A picker adds to it with each pick, whatever becomes of that.
PICK_LABELS: Final = Key[dict[str, str]]("pick_labels")

# Of an update: the locality that its endpoints are in, as metrics call it (A78).
LOCALITY_LABEL: Final = Key[str]("locality_label")
# Of an update: the backend service that its endpoints belong to; in a mesh, the cluster (A89).
BACKEND_SERVICE: Final = Key[str]("backend_service")

# Of an update, to pick_first: whether READY takes a healthy connection, not just any. Set by those
# who have many of these, and can send RPCs elsewhere (A61); nobody else is to set it.
HEALTH_WATCH: Final = Key[bool]("health_watch")

# Of a subchannel that is created: the child of a policy that it is for, if that child may be
# retained while it is not used. The pool compares it by identity; without it, the channel counts.
HOLDER: Final = Key[object]("holder")

# Of an update, and true: the config lists the child again, which it did not for a while. Endpoints
# that this update does not list left the config long ago, so they take no RPCs any more (D45).
IS_LISTED_AGAIN: Final = Key[bool]("is_listed_again")

# Of an endpoint: how much it takes compared with others. Without it, or with 0, that is 1.
ENDPOINT_WEIGHT: Final = Key[int]("endpoint_weight")
# Of an endpoint: what is hashed in place of its first address (A76). Empty is as if not set.
HASH_KEY: Final = Key[str]("hash_key")


def is_other_way_only(before: Attributes, after: Attributes) -> bool:
    """Whether two endpoints' attributes differ in nothing but the proxy, for the next connection.

    It may differ whenever the name of a proxy is looked up, and all ways lead to the same place.
    """
    return before.without(HTTP_PROXY) == after.without(HTTP_PROXY)
