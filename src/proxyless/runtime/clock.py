"""Clock: reads the time and starts timers. Everything that waits takes a `Clock`.

`LoopClock` runs on an asyncio loop; tests use `VirtualClock`.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextvars import Context
from types import FunctionType
from typing import Final, Protocol

# A delay is a difference of times, so a timer may seem early by a rounding error: callbacks that
# compare the time with the one that they waited for allow this much.
ROUNDING_S: Final = 1e-6


class Timer(Protocol):
    """A callback that is pending, was cancelled, or has run."""

    @property
    def pending(self) -> bool:
        """False once the callback starts."""

    @property
    def due_s(self) -> float:
        """Time of a pending callback, by its clock; minus infinity if it has no delay."""

    def cancel(self) -> None:
        """Prevent the callback, even if it is due. No-op if the timer is not pending."""


class Clock(Protocol):
    """Reads the time and starts timers."""

    def now_s(self) -> float:
        """Monotonic time in seconds."""

    def measured_s(self) -> float:
        """Monotonic time in seconds, with another origin, to measure durations. Thread-safe.

        It has the machine's resolution; `now_s` may be as coarse as the loop's timers.
        """

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once after a finite delay, never inside this call.

        Timers fire in the order of their times; those without delay in the order of creation.
        """


class _IdleTimer:
    """A timer that was never started."""

    __slots__ = ()

    @property
    def pending(self) -> bool:
        return False

    @property
    def due_s(self) -> float:
        return -math.inf

    def cancel(self) -> None:
        return


# In place of None, so that an owner need not check for it.
IDLE_TIMER: Final[Timer] = _IdleTimer()


class LoopClock:
    """Clock of an asyncio loop. A timer may fire early by the loop's resolution (uvloop: 1 ms)."""

    __slots__ = ("_loop", "measured_s", "now_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Each RPC with a timeout reads it, and asyncio's own loops call `time.monotonic`.
        read: object = getattr(loop.time, "__func__", loop.time)
        is_plain = read is asyncio.BaseEventLoop.time
        self.now_s: Callable[[], float] = time.monotonic if is_plain else loop.time
        # Loops with virtual time are written in Python; a compiled loop (uvloop) has real time.
        is_real = is_plain or not isinstance(read, FunctionType)
        self.measured_s: Callable[[], float] = time.monotonic if is_real else loop.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return _LoopTimer(self._loop, finite_delay_s(delay_s), callback)


class _LoopTimer:
    """A loop's handle, and whether it has fired."""

    __slots__ = ("_callback", "_handle")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[[], None]
    ) -> None:
        self._callback: Callable[[], None] | None = callback
        # A loop's heap does not keep the order of equal times; its ready queue does.
        # In a context of its own: that of an application's request would stay alive with the timer.
        self._handle: asyncio.Handle | None = (
            loop.call_later(delay_s, self._fire, context=Context())
            if delay_s > 0
            else loop.call_soon(self._fire, context=Context())
        )

    @property
    def pending(self) -> bool:
        return self._callback is not None

    @property
    def due_s(self) -> float:
        # Only handles with a delay have a time; their class depends on the loop.
        when: Callable[[], float] | None = getattr(self._handle, "when", None)
        return -math.inf if when is None else when()

    def cancel(self) -> None:
        handle, self._handle, self._callback = self._handle, None, None
        if handle is not None:
            handle.cancel()

    def _fire(self) -> None:
        callback, self._handle, self._callback = self._callback, None, None
        assert callback is not None, "a loop does not run a cancelled handle"
        callback()


def finite_delay_s(delay_s: float) -> float:
    """The delay, at least 0 s. Raises ValueError if it is not finite."""
    if not math.isfinite(delay_s):
        raise ValueError(f"timer delay {delay_s} s is not valid: wanted a finite time")
    return max(delay_s, 0.0)
