"""Weights of endpoints for policies that get them without their localities (pure).

Specs: A42 (the product of the weights), A113 (the product of the normalized weights).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.xds.resources import LocalityEndpoints

# "fixed point UQ1.31 format" - A113
FRACTION_BITS: Final = 31
ONE: Final = 1 << FRACTION_BITS


@frozen
class LocalityShare:
    """Normalized weight of a locality in its priority, and the sum of its endpoints' weights."""

    weight: int
    endpoint_weight_sum: int

    def weigh(self, endpoint_weight: int) -> int:
        """The product of the normalized weights, at least 1."""
        normalized = endpoint_weight * ONE // self.endpoint_weight_sum
        return max((self.weight * normalized) >> FRACTION_BITS, 1)


def find_shares(priority: Sequence[LocalityEndpoints]) -> list[LocalityShare]:
    """The shares of the localities of one priority."""
    weight_sum = sum(entry.weight for entry in priority)
    return [
        LocalityShare(
            entry.weight * ONE // weight_sum, sum(each.weight for each in entry.endpoints)
        )
        for entry in priority
    ]
