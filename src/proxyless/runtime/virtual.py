"""VirtualClock: a clock that a test advances.

Used to test anything that waits: nothing sleeps, and advancing past a timer proves that it did not
fire. To run a whole asyncio program in virtual time, replace the loop instead.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from proxyless.runtime.clock import Timer, finite_delay_s

# More than any test needs at one instant. Reached by a timer that restarts itself without delay.
FIRED_PER_INSTANT_MAX: Final = 100_000

# Counting whole nanoseconds, ten steps of 0.1 s are 1 s.
_NS_PER_S: Final = 1_000_000_000


class VirtualClock:
    """A `Clock` that moves with `advance`. Timers fire by time, then in the order of creation."""

    __slots__ = ("_created", "_heap", "_is_advancing", "_now_ns", "timers_pending")

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_ns = _to_ns(now_s)
        # Tests assert that it is 0 when the owner of timers is closed.
        self.timers_pending = 0
        # Cancelled timers stay until their time comes.
        self._heap: list[tuple[int, int, _VirtualTimer]] = []
        self._created = 0
        self._is_advancing = False

    def now_s(self) -> float:
        return self._now_ns / _NS_PER_S

    def measured_s(self) -> float:
        return self.now_s()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        when_ns = self._now_ns + _to_ns(finite_delay_s(delay_s))
        timer = _VirtualTimer(self, callback, when_ns / _NS_PER_S)
        heappush(self._heap, (when_ns, self._created, timer))
        self._created += 1
        self.timers_pending += 1
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the time, firing each timer at its own time.

        That includes timers started by callbacks. An exception in a callback stops the clock at
        that time; the next `advance` continues from there.
        """
        if not seconds >= 0:
            raise ValueError(f"cannot advance by {seconds} s: wanted 0 s or more")
        self._advance_to(self._now_ns + _to_ns(seconds))

    def advance_to_next(self) -> bool:
        """Advance to the next timer and fire all of that time; False if there is none."""
        while self._heap and not self._heap[0][2].pending:
            heappop(self._heap)
        if not self._heap:
            return False
        self._advance_to(self._heap[0][0])
        return True

    def _advance_to(self, target_ns: int) -> None:
        if self._is_advancing:
            raise RuntimeError("clock cannot be advanced by a callback of its own timers")
        self._is_advancing = True
        try:
            self._fire_until(target_ns)
        finally:
            self._is_advancing = False

    def _fire_until(self, target_ns: int) -> None:
        fired_at_instant = 0
        while self._heap and self._heap[0][0] <= target_ns:
            when_ns, _, timer = heappop(self._heap)
            if not timer.pending:
                continue
            fired_at_instant = fired_at_instant + 1 if when_ns == self._now_ns else 1
            self._now_ns = when_ns
            timer.fire()
            if fired_at_instant == FIRED_PER_INSTANT_MAX:
                raise RuntimeError(
                    f"{FIRED_PER_INSTANT_MAX} timers fired at {self.now_s()} s: "
                    "does one restart itself without delay?"
                )
        self._now_ns = target_ns


class _VirtualTimer:
    """Timer of a `VirtualClock`."""

    __slots__ = ("_callback", "_clock", "due_s")

    def __init__(self, clock: VirtualClock, callback: Callable[[], None], due_s: float) -> None:
        self._clock = clock
        self.due_s = due_s
        self._callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._take_callback()

    def fire(self) -> None:
        callback = self._take_callback()
        assert callback is not None, "a clock does not fire a cancelled timer"
        callback()

    def _take_callback(self) -> Callable[[], None] | None:
        callback, self._callback = self._callback, None
        if callback is not None:
            self._clock.timers_pending -= 1
        return callback


def _to_ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)
