"""Request hash of an RPC, computed by the hash policies of its route.

Specs: A42 "xDS Hash Policy".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from proxyless.xds.resources.matching import header_value
from proxyless.xds.resources.regex import compile_rewrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Metadata
    from proxyless.runtime import Random
    from proxyless.xds.resources import HashPolicy

_BITS: Final = 64
_MASK: Final = (1 << _BITS) - 1


class RequestHash:
    """The hash policies of one route."""

    def __init__(self, policies: tuple[HashPolicy, ...], channel_id: int) -> None:
        self._channel_id = channel_id
        self._steps: list[tuple[HashPolicy, Callable[[str], str] | None]] = [
            (each, compile_rewrite(*each.rewrite) if each.rewrite is not None else None)
            for each in policies
        ]

    def compute(self, metadata: Metadata, random: Random) -> int:
        """The hash of an RPC with this metadata; a random number if no policy gives a hash."""
        result: int | None = None
        for policy, rewrite in self._steps:
            policy_hash = self._hash(policy, rewrite, metadata)
            if policy_hash is not None:
                # "the old value is rotated left by 1 bit and XORed with the new" - A42
                rotated = 0 if result is None else (result << 1 | result >> (_BITS - 1)) & _MASK
                result = rotated ^ policy_hash
            if policy.is_terminal and result is not None:
                break
        return random.getrandbits(_BITS) if result is None else result

    def _hash(
        self, policy: HashPolicy, rewrite: Callable[[str], str] | None, metadata: Metadata
    ) -> int | None:
        if policy.kind == "channel_id":
            return self._channel_id
        value = header_value(metadata, policy.header)
        if value is None:
            return None
        if rewrite is not None:
            value = rewrite(value)
        return xxhash.xxh64_intdigest(value.encode("latin-1", "replace"))
