"""What does a seed decide, and how are things drawn from it?"""

from __future__ import annotations

import hashlib
from math import log
from typing import TYPE_CHECKING, TypeVar

from proxyless.runtime import seeded_random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.runtime import Random

T = TypeVar("T")


def derived_random(seed: int, name: str) -> Random:
    """Chance that belongs to one thing: what others draw does not change what it draws."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return seeded_random(int.from_bytes(digest[:8], "big"))


def draw_gap_s(random: Random, mean_s: float) -> float:
    """How long until the next one, if they come at any time with this mean."""
    return -mean_s * log(1.0 - random.random())


def choose(random: Random, found: Sequence[T]) -> T:
    return found[random.randrange(len(found))]


def is_drawn(random: Random, chance: float) -> bool:
    return random.random() < chance
