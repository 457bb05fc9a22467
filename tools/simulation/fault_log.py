"""Log of faults: backends with their times.

Fault workloads write it. Checkers read whether a backend was sound: without a fault in some time,
and long enough before it that every client has recovered.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Name for faults of control planes, of their resources and of DNS.
CONTROL: Final = "control"
# Name for times in which no control plane could answer any client.
AWAY: Final = "all control planes"
# Maximum recovery time after a fault: the longest backoff (120 s, and 20 % jitter), a connection
# attempt of 20 s, and a margin.
RECOVERY_S: Final = 170.0


@dataclass(slots=True)
class Fault:
    """One fault of one backend."""

    start_s: float
    end_s: float = inf


class FaultLog:
    """All faults of a world. Written by fault workloads."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._faults: dict[str, list[Fault]] = {}

    @contextmanager
    def fault(self, *names: str, aftermath_s: float = 0.0) -> Iterator[None]:
        """Context in which these backends are faulty, as they are for `aftermath_s` after it."""
        made = [Fault(self._now_s()) for _ in names]
        for name, fault in zip(names, made, strict=True):
            self._faults.setdefault(name, []).append(fault)
        try:
            yield
        finally:
            for fault in made:
                fault.end_s = self._now_s() + aftermath_s

    def is_faulty(self, name: str, start_s: float, end_s: float) -> bool:
        """Whether there was a fault at any moment of this time."""
        faults = self._faults.get(name, ())
        return any(each.start_s <= end_s and each.end_s >= start_s for each in faults)

    def is_faulty_throughout(self, name: str, start_s: float, end_s: float) -> bool:
        """Whether one fault lasted all of this time."""
        faults = self._faults.get(name, ())
        return any(each.start_s <= start_s and each.end_s >= end_s for each in faults)

    def is_sound(self, name: str, start_s: float, end_s: float) -> bool:
        """Whether there was no fault in this time, nor in the recovery time before it."""
        return not self.is_faulty(name, start_s - RECOVERY_S, end_s)

    @property
    def faults(self) -> int:
        return sum(map(len, self._faults.values()))
