"""Random choices of workloads: times between events, and whether something happens."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.runtime import Random


def random_gap_s(random: Random, mean_s: float) -> float:
    """Time until the next event of a Poisson process with this mean gap."""
    return -mean_s * log(1.0 - random.random())


def random_bool(random: Random, probability: float) -> bool:
    return random.random() < probability
