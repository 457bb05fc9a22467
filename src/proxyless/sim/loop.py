"""How does an asyncio loop run without waiting?

Whenever nothing is left to do now, time jumps to the next timer. Tasks, futures, timeouts and
`asyncio.sleep` work as ever; files, sockets, signals, threads and subprocesses do not exist here.
What is due at the same time happens in the order in which it was asked for, so that a run depends on
nothing but its seed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

# Where virtual time starts: not at zero, so that "since the beginning" never passes for "never".
START_S: Final = 1_000.0


class StuckError(RuntimeError):
    """Everybody waits, and no timer is left that could end that."""


class SimLoop(asyncio.BaseEventLoop):
    """A loop in virtual time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._now_s = START_S
        # Timers may not fire early: every time is exact.
        self._clock_resolution = 0.0
        # What asyncio's loop asks for events, and how long it may wait for them.
        self._selector = _TimeKeeper(self)
        # Turns of the loop so far, for reports.
        self.turns = 0

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """For the time keeper: nothing happens for this long."""
        self._now_s += seconds

    # What asyncio expects of a loop that has an operating system below it.

    def _process_events(self, event_list: list[object]) -> None:
        self.turns += 1

    def _write_to_self(self) -> None:
        """Nobody wakes the loop from outside."""

    async def shutdown_default_executor(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """There are no threads."""


class _TimeKeeper:
    """Stands where a selector stands: it does not wait for events, it lets time pass."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[object]:
        if timeout_s is None:
            raise StuckError("every task waits, and no timer is left")
        if timeout_s > 0:
            self._loop.advance(timeout_s)
        return []

    def close(self) -> None:
        """Nothing was opened."""
