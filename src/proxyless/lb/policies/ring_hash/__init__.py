"""The `ring_hash_experimental` policy: sends RPCs with the same hash to the same endpoint.

Specs: A42, A61, A76.

policy  config, and the policy: one child per endpoint, connected when an RPC needs it
ring    pure: the ring, with entries of the endpoints in proportion to their weights
picker  search along the ring from the hash of an RPC
"""

from proxyless.lb.policies.ring_hash.policy import RingHashConfig, RingHashFactory

__all__ = ["RingHashConfig", "RingHashFactory"]
