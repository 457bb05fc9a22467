"""DeadlineQueue: any number of deadlines on one timer.

Every RPC with a timeout has a deadline, and nearly all are cancelled before their time. So adding
and cancelling are cheap, and the timer is not touched as long as it fires early enough.

Theory of operation
    The heap holds live and cancelled entries. An entry is live while its id is its owner's, so
    cancelling only resets that; when more than half of the heap is cancelled, it is rebuilt.
    At most one timer runs, for the head of the heap or earlier. An earlier deadline moves it
    forward. A cancelled one does not move it back: the timer fires, finds nothing due, and starts
    again for the head, if there is one.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from proxyless.runtime.clock import IDLE_TIMER, ROUNDING_S, Clock, Timer

# The heap is checked for a rebuild on each n-th cancel only, so a small heap is never rebuilt.
_CANCELS_PER_CHECK: Final = 64  # A power of two.

_NEVER_S: Final = float("inf")
_ALWAYS_S: Final = float("-inf")


class Expiring(Protocol):
    """The owner of a deadline in a queue."""

    # Written by the queue. Zero without a deadline, and after it has fired.
    deadline_id: int

    def on_deadline(self) -> None:
        """Called by the queue at the deadline."""


class DeadlineQueue:
    """Calls back at given times, with one timer on the clock."""

    __slots__ = ("_armed_s", "_clock", "_heap", "_last_id", "_timer", "cancelled")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Expiring]] = []
        # Ids increase, so they order deadlines with equal times.
        self._last_id = 0
        # Number of cancelled entries in the heap.
        self.cancelled = 0
        self._timer: Timer = IDLE_TIMER
        # When the timer fires. While firing: _ALWAYS_S, so that no second timer is started.
        self._armed_s = _NEVER_S

    def __len__(self) -> int:
        """Number of pending deadlines."""
        return len(self._heap) - self.cancelled

    def expire(self, owner: Expiring, when_s: float) -> None:
        """Call `owner.on_deadline` at this time, never inside this call; replaces its deadline."""
        if owner.deadline_id:
            self.cancel(owner)
        self._last_id = owner.deadline_id = deadline_id = self._last_id + 1
        heappush(self._heap, (when_s, deadline_id, owner))
        if when_s < self._armed_s:
            self._arm(when_s)

    def cancel(self, owner: Expiring) -> None:
        """Cancel the owner's deadline. No-op if it has none."""
        if owner.deadline_id:
            owner.deadline_id = 0
            self.cancelled = cancelled = self.cancelled + 1
            if not cancelled & (_CANCELS_PER_CHECK - 1):
                self._rebuild_if_mostly_cancelled()

    def cancel_all(self) -> None:
        for _, _, owner in self._heap:
            owner.deadline_id = 0
        self._heap.clear()
        self.cancelled = 0
        self._disarm()

    def _rebuild_if_mostly_cancelled(self) -> None:
        """Bound the memory of cancelled deadlines by that of live ones."""
        if self.cancelled * 2 <= len(self._heap):
            return
        # In place: `_fire` may be at work on this list.
        self._heap[:] = [entry for entry in self._heap if entry[2].deadline_id == entry[1]]
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
            self._fire(self._clock.now_s() + ROUNDING_S)
        finally:  # An exception goes to the loop; the other callbacks still run.
            self._drop_cancelled_head()
            self._armed_s = _NEVER_S
            if self._heap:
                self._arm(self._heap[0][0])

    def _fire(self, until_s: float) -> None:
        heap = self._heap
        # Bounded: a callback that adds a deadline in the past must not block the loop.
        for _ in range(len(heap)):
            if not heap or heap[0][0] > until_s:
                return
            _, deadline_id, owner = heappop(heap)
            if owner.deadline_id != deadline_id:
                self.cancelled -= 1
            else:
                owner.deadline_id = 0
                owner.on_deadline()

    def _drop_cancelled_head(self) -> None:
        heap = self._heap
        while heap and heap[0][2].deadline_id != heap[0][1]:
            heappop(heap)
            self.cancelled -= 1
