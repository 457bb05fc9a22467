"""When do many deadlines fall due, at the price of one timer?

Every RPC with a timeout has a deadline, and nearly every one of them is cancelled before its time.
So adding and cancelling are cheap, and the clock's timer is left alone as long as it fires early
enough.

Theory of operation
    The heap holds live and cancelled entries. Cancelling only marks an entry; when more than half
    of the heap is marked, the heap is rebuilt from the live ones.
    At most one timer runs on the clock, for the head of the heap or earlier. An earlier deadline
    moves it forward. A cancelled one does not move it back: the timer fires, finds nothing due,
    and starts again for the head. If nothing is left it is not started again.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from proxyless.runtime.clock import IDLE_TIMER, Clock, Timer

# Looking whether to rebuild only on each n-th cancel also lets a small heap be.
_CANCELS_PER_LOOK: Final = 64  # A power of two.

# A delay is a difference of times, so the timer may seem early by a rounding error.
_ROUNDING_S: Final = 1e-6

_NEVER_S: Final = float("inf")
_ALWAYS_S: Final = float("-inf")


class Deadline:
    """One entry of a queue, and a `Timer`. Driven by its owner (cancel) and its queue."""

    __slots__ = ("_queue", "callback")

    def __init__(self, queue: "DeadlineQueue", callback: Callable[[], None]) -> None:
        self._queue = queue
        # None once fired or cancelled. The queue's to read and clear.
        self.callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        return self.callback is not None

    def cancel(self) -> None:
        """Make sure the callback does not run from now on. Does nothing if it is not pending."""
        if self.callback is None:
            return
        self.callback = None
        queue = self._queue
        queue.cancelled = cancelled = queue.cancelled + 1
        # Written out here: a call would cost as much as the rest.
        if not cancelled & (_CANCELS_PER_LOOK - 1):
            queue.rebuild_if_mostly_cancelled()


class DeadlineQueue:
    """Calls back at given times. Driven by owners of deadlines and by one timer on the clock."""

    __slots__ = ("_added", "_armed_s", "_clock", "_heap", "_timer", "cancelled")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Deadline]] = []
        # How many deadlines were added; orders those with equal times.
        self._added = 0
        # How many entries of the heap are cancelled; counted by the deadlines.
        self.cancelled = 0
        self._timer: Timer = IDLE_TIMER
        # When the timer fires. While firing: always, so that nobody starts a second timer.
        self._armed_s = _NEVER_S

    def __len__(self) -> int:
        """How many deadlines are pending."""
        return len(self._heap) - self.cancelled

    def add(self, when_s: float, callback: Callable[[], None]) -> Deadline:
        """Call back at this time of the clock; if it has passed, soon but never inside."""
        deadline = Deadline(self, callback)
        self._added = added = self._added + 1
        heappush(self._heap, (when_s, added, deadline))
        if when_s < self._armed_s:
            self._arm(when_s)
        return deadline

    def cancel_all(self) -> None:
        """Cancel every deadline and the clock's timer: the owner is closing."""
        for _, _, deadline in self._heap:
            deadline.callback = None
        self._heap.clear()
        self.cancelled = 0
        self._disarm()

    def rebuild_if_mostly_cancelled(self) -> None:
        """Bound the memory of cancelled deadlines by that of live ones."""
        if self.cancelled * 2 <= len(self._heap):
            return
        # In place: `_fire` may be at work on this list.
        self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
        heapify(self._heap)
        self.cancelled = 0
        if not self._heap:
            self._disarm()

    def _arm(self, when_s: float) -> None:
        self._timer.cancel()
        self._armed_s = when_s
        self._timer = self._clock.call_later(when_s - self._clock.now_s(), self._on_timer)

    def _disarm(self) -> None:
        self._timer.cancel()
        if self._armed_s != _ALWAYS_S:
            self._armed_s = _NEVER_S

    def _on_timer(self) -> None:
        self._armed_s = _ALWAYS_S
        try:
            self._fire(self._clock.now_s() + _ROUNDING_S)
        finally:  # What a callback raises goes to the loop; the others still get their turn.
            self._drop_cancelled_head()
            self._armed_s = _NEVER_S
            if self._heap:
                self._arm(self._heap[0][0])

    def _fire(self, until_s: float) -> None:
        heap = self._heap
        # Bounded: a callback that adds what is already due must not keep the loop from turning.
        for _ in range(len(heap)):
            if not heap or heap[0][0] > until_s:
                return
            deadline = heappop(heap)[2]
            callback, deadline.callback = deadline.callback, None
            if callback is None:
                self.cancelled -= 1
            else:
                callback()

    def _drop_cancelled_head(self) -> None:
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
            self.cancelled -= 1
