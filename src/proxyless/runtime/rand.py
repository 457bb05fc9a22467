"""Where does chance come from?

The seam between decisions and randomness: a policy takes a `Random`, so a simulation can repeat its
draws. Not for secrets.
"""

import random
from collections.abc import MutableSequence
from typing import Any, Protocol


class Random(Protocol):
    """The part of `random.Random` that we use."""

    def random(self) -> float:
        """Draw from [0, 1)."""
        ...

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Draw from 0 to stop - 1."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """Draw an integer of k bits."""
        ...

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Reorder in place."""
        ...


def system_random() -> Random:
    """A generator that nobody can repeat: seeded by the operating system."""
    return random.Random()


def seeded_random(seed: int) -> Random:
    """A generator that always draws the same."""
    return random.Random(seed)
