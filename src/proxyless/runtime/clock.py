"""What time is it, and who is called later?

The seam between decisions and time. Everything that waits takes a `Clock`: on the running loop it
is a `LoopClock`, in tests a `VirtualClock`.
"""

import asyncio
import math
import time
from collections.abc import Callable
from types import FunctionType
from typing import Final, Protocol


class Timer(Protocol):
    """A callback that is still to come, or was cancelled, or has been."""

    @property
    def pending(self) -> bool:
        """Whether the callback is still to come. False once it starts."""
        ...

    @property
    def due_s(self) -> float:
        """When the callback comes, by its clock, if it is pending; minus infinity if soon."""
        ...

    def cancel(self) -> None:
        """Make sure the callback does not run from now on, even if it is already due.

        Does nothing if the timer is not pending.
        """
        ...


class Clock(Protocol):
    """Reads the time and starts timers."""

    def now_s(self) -> float:
        """Seconds since some moment in the past; never goes back."""
        ...

    def measured_s(self) -> float:
        """Seconds since a moment that may be another; for measuring how long something takes.

        As fine as the machine has it, where `now_s` may be as coarse as the timers. In any thread.
        """
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once, after a finite delay; with no delay left, soon but never inside.

        Timers fire in the order of their times, and those without delay in the order of creation.
        """
        ...


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


# Where an owner keeps a timer, this stands for "none", so that nobody has to ask for None.
IDLE_TIMER: Final[Timer] = _IdleTimer()


class LoopClock:
    """The time of an asyncio loop, which may be a virtual one.

    A timer may fire early by the resolution of the loop: uvloop counts milliseconds.
    """

    __slots__ = ("_loop", "measured_s", "now_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Every RPC with a timeout asks, and asyncio's own loops would only ask on.
        read: object = getattr(loop.time, "__func__", loop.time)
        is_plain = read is asyncio.BaseEventLoop.time
        self.now_s: Callable[[], float] = time.monotonic if is_plain else loop.time
        # Who makes time up does so in Python; a compiled loop, as uvloop's, has the machine's.
        is_real = is_plain or not isinstance(read, FunctionType)
        self.measured_s: Callable[[], float] = time.monotonic if is_real else loop.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return _LoopTimer(self._loop, finite_delay_s(delay_s), callback)


class _LoopTimer:
    """Adds to a loop's handle the knowledge of whether it has fired."""

    __slots__ = ("_callback", "_handle")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[[], None]
    ) -> None:
        self._callback: Callable[[], None] | None = callback
        # A loop's heap does not keep the order of equal times; its ready queue does.
        self._handle: asyncio.Handle | None = (
            loop.call_later(delay_s, self._fire) if delay_s > 0 else loop.call_soon(self._fire)
        )

    @property
    def pending(self) -> bool:
        return self._callback is not None

    @property
    def due_s(self) -> float:
        # Handles of different loops are of different classes; only those that wait have a time.
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
    """The delay, not below 0 s, or ValueError: who never wants to be called starts no timer."""
    if not math.isfinite(delay_s):
        raise ValueError(f"timer delay {delay_s} s is not valid: wanted a finite time")
    return max(delay_s, 0.0)
