"""What do resolvers and channels tell policies about endpoints and RPCs?

Only the keys that those who set them and several policies have in common. What they mean is said by
the policy that reads them.
"""

from typing import Final

from proxyless.base import Key

# Of an RPC: where on the ring it belongs, 64 bits (A42).
REQUEST_HASH: Final = Key[int]("request_hash")

# Of an endpoint: how much it takes compared with others. Without it, or with 0, that is 1.
ENDPOINT_WEIGHT: Final = Key[int]("endpoint_weight")
# Of an endpoint: what is hashed in place of its first address (A76). Empty is as if not set.
HASH_KEY: Final = Key[str]("hash_key")
