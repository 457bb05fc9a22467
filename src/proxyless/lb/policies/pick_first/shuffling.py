"""Shuffling of the endpoints of pick_first, with or without their weights.

Specs: A62 (shuffling), A113 (weights; off unless the environment variable is "true", as in grpcio).
"""

import os
from collections.abc import Iterable
from math import log

from proxyless.base import Endpoint
from proxyless.base.environment import read_flag
from proxyless.lb.attributes import ENDPOINT_WEIGHT, WEIGHTED_SHUFFLING_GUARD
from proxyless.runtime import Random


def shuffle_endpoints(endpoints: Iterable[Endpoint], random: Random) -> list[Endpoint]:
    """The endpoints in random order. Reads the environment at each call."""
    shuffled = list(endpoints)
    if read_flag(os.environ, WEIGHTED_SHUFFLING_GUARD, default=False):
        return sort_by_weight(shuffled, random)
    random.shuffle(shuffled)
    return shuffled


def sort_by_weight(endpoints: Iterable[Endpoint], random: Random) -> list[Endpoint]:
    """The endpoints in random order; each is first with a probability in proportion to its weight.

    "Assign a key to each endpoint, `u ^ (1 / weight)` […] Sort endpoints by key in descending
    order" - A113. Its logarithm has the same order, and does not round to 1 for large weights.
    """

    def find_key(endpoint: Endpoint) -> float:
        weight = endpoint.attributes.get(ENDPOINT_WEIGHT) or 1
        # Above 0, which has no logarithm.
        return log(1.0 - random.random()) / weight

    return sorted(endpoints, key=find_key, reverse=True)
