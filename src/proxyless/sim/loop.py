"""Asyncio event loop in virtual time.

When no callback is ready, time jumps to the next timer. Tasks, futures and timeouts work as usual;
files, sockets, signals, threads and subprocesses do not exist. The order of callbacks depends only
on the order of the calls that scheduled them, so a run depends only on its seed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

from proxyless.runtime import DeadlineQueue

if TYPE_CHECKING:
    from collections.abc import Callable

# Start of virtual time: not 0, which could be mistaken for "never".
START_S: Final = 1_000.0
# Larger than the rounding error of adding two times, shorter than any delay in use.
_RESOLUTION_S: Final = 1e-9


class StuckError(RuntimeError):
    """All tasks wait, and there is no timer."""


class SimLoop(asyncio.BaseEventLoop):
    """Event loop in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = START_S
        self._clock_resolution = _RESOLUTION_S
        # BaseEventLoop calls its `select` when no callback is ready.
        self._selector = _VirtualSelector(self)
        # Iterations so far, for reports.
        self.turns = 0

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Called by the selector."""
        self._now_s += seconds

    def pending_timers(self) -> list[str]:
        """Descriptions of the pending timers, without those of deadline queues."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        pending = (each for each in scheduled if not each.cancelled())
        return sorted(_describe(each) for each in pending if not _is_shared(each))

    # Hooks of BaseEventLoop.

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override] # noqa: ANN401
        raise RuntimeError("a simulated loop has no threads")

    def _process_events(self, event_list: list[object]) -> None:
        self.turns += 1

    def _write_to_self(self) -> None:
        """There are no other threads."""

    async def shutdown_default_executor(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """There are no other threads."""


class _VirtualSelector:
    """Selector of a SimLoop: advances virtual time instead of waiting."""

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
    """The callback of a timer; for a timer of a `LoopClock`, the callback that this one calls."""
    callback: Callable[..., object]
    callback = handle._callback  # type: ignore[attr-defined] # noqa: SLF001 - there is no other way
    return getattr(getattr(callback, "__self__", None), "_callback", None) or callback


def _is_shared(handle: asyncio.TimerHandle) -> bool:
    """Whether it is the timer of a deadline queue, which stays when RPCs end before it."""
    return isinstance(getattr(_callback_of(handle), "__self__", None), DeadlineQueue)


def _describe(handle: asyncio.TimerHandle) -> str:
    """Name of the callback, without a memory address."""
    callback = _callback_of(handle)
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return f"{name} at {handle.when():.3f} s"


async def pause(delay_s: float) -> None:
    """Sleep, in virtual time on a SimLoop."""
    await asyncio.sleep(delay_s)  # noqa: TID251 - the one place where the simulator waits
