"""Random choices derived from a seed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

from proxyless.runtime import seeded_random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.runtime import Random

T = TypeVar("T")


def derived_random(seed: int, name: str) -> Random:
    """Random numbers of one name, independent of those of other names."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return seeded_random(int.from_bytes(digest[:8], "big"))


def choose(random: Random, found: Sequence[T]) -> T:
    return found[random.randrange(len(found))]
