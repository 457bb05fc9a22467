"""How does an asyncio loop run without waiting?

Whenever nothing is left to do now, time jumps to the next timer. Tasks, futures and timeouts work
as ever; files, sockets, signals, threads and subprocesses do not exist here. What is due at the
same time happens in an order that depends only on what was asked for before, so that a run depends
on nothing but its seed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

from proxyless.runtime import DeadlineQueue

if TYPE_CHECKING:
    from collections.abc import Callable

# Where virtual time starts: not at zero, so that "since the beginning" never passes for "never".
START_S: Final = 1_000.0
# What asyncio's loop takes for "now": more than the error of adding two times, less than anything
# that somebody waits for.
_RESOLUTION_S: Final = 1e-9


class StuckError(RuntimeError):
    """Everybody waits, and no timer is left that could end that."""


class SimLoop(asyncio.BaseEventLoop):
    """A loop in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = START_S
        self._clock_resolution = _RESOLUTION_S
        # What asyncio's loop asks for events, and how long it may wait for them.
        self._selector = _TimeKeeper(self)
        # Turns of the loop so far, for reports.
        self.turns = 0

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """For the time keeper: nothing happens for this long."""
        self._now_s += seconds

    def pending_timers(self) -> list[str]:
        """What is still to come by itself, for checkers: nothing of a world that was closed."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        pending = (each for each in scheduled if not each.cancelled())
        return sorted(_describe(each) for each in pending if not _is_shared(each))

    # What asyncio expects of a loop that has an operating system below it.

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override] # noqa: ANN401
        raise RuntimeError("a simulated loop has no threads")

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


def _callback_of(handle: asyncio.TimerHandle) -> Callable[..., object]:
    """Who is called in the end: behind a `LoopClock`'s timer stands another."""
    callback: Callable[..., object]
    callback = handle._callback  # type: ignore[attr-defined] # noqa: SLF001 - there is no other way
    return getattr(getattr(callback, "__self__", None), "_callback", None) or callback


def _is_shared(handle: asyncio.TimerHandle) -> bool:
    """Whether it is the timer of a deadline queue, which is not moved back when RPCs end early."""
    return isinstance(getattr(_callback_of(handle), "__self__", None), DeadlineQueue)


def _describe(handle: asyncio.TimerHandle) -> str:
    """Who is called, without an address in memory."""
    callback = _callback_of(handle)
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return f"{name} at {handle.when():.3f} s"


async def pause(delay_s: float) -> None:
    """Let virtual time pass, on whatever loop is running."""
    await asyncio.sleep(delay_s)  # noqa: TID251 - the one place where the simulator waits
