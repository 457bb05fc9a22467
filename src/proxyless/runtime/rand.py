"""Random: source of random numbers that a simulation can repeat. Not for secrets."""

import random
from collections.abc import MutableSequence
from typing import Any, Protocol


class Random(Protocol):
    """The part of `random.Random` that we use."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def getrandbits(self, k: int, /) -> int: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


def system_random() -> Random:
    """A generator that is seeded by the operating system."""
    return random.Random()


def seeded_random(seed: int) -> Random:
    """A generator with a reproducible sequence."""
    return random.Random(seed)
