"""Which backends were in trouble, and when?

Faults are written down here by those who cause them, so that a checker can ask whether a backend
has been sound: reachable and healthy for the whole of a time, and for so long before that every
client has had time to notice.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What stands for all that clients learn from: control planes, and the resources they have.
CONTROL: Final = "control"
# How long after a fault a client may take to be back: the longest backoff (120 s, and a fifth of
# that by chance), a connection attempt of 20 s, and a moment.
RECOVERY_S: Final = 170.0


@dataclass(slots=True)
class Trouble:
    """One fault of one backend."""

    start_s: float
    end_s: float = inf


class Ledger:
    """All troubles of a world. Driven by fault workloads."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._troubles: dict[str, list[Trouble]] = {}

    @contextmanager
    def trouble(self, *names: str, aftermath_s: float = 0.0) -> Iterator[None]:
        """Inside, and for a while after it, these are in trouble."""
        made = [Trouble(self._now_s()) for _ in names]
        for name, trouble in zip(names, made, strict=True):
            self._troubles.setdefault(name, []).append(trouble)
        try:
            yield
        finally:
            for trouble in made:
                trouble.end_s = self._now_s() + aftermath_s

    def is_in_trouble(self, name: str, start_s: float, end_s: float) -> bool:
        """Whether it was, at any moment of this time."""
        troubles = self._troubles.get(name, ())
        return any(each.start_s <= end_s and each.end_s >= start_s for each in troubles)

    def is_sound(self, name: str, start_s: float, end_s: float) -> bool:
        """Whether it was not, and every client knew it."""
        return not self.is_in_trouble(name, start_s - RECOVERY_S, end_s)

    @property
    def troubles(self) -> int:
        return sum(map(len, self._troubles.values()))
