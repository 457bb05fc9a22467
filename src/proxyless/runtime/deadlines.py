"""When do many deadlines fall due, at the price of one timer?

Every RPC with a timeout has a deadline, and nearly every one of them is cancelled before its time.
So adding and cancelling are cheap, and the clock's timer is left alone as long as it fires early
enough.

Theory of operation
    The heap holds live and cancelled entries. An entry is live while its id is its owner's, so
    cancelling only takes that away; when more than half of the heap is cancelled, it is rebuilt
    from the live ones.
    At most one timer runs on the clock, for the head of the heap or earlier. An earlier deadline
    moves it forward. A cancelled one does not move it back: the timer fires, finds nothing due,
    and starts again for the head. If nothing is left it is not started again.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from proxyless.runtime.clock import IDLE_TIMER, Clock, Timer

# Looking whether to rebuild only on each n-th cancel also lets a small heap be.
_CANCELS_PER_LOOK: Final = 64  # A power of two.

# A delay is a difference of times, so the timer may seem early by a rounding error.
_ROUNDING_S: Final = 1e-6

_NEVER_S: Final = float("inf")
_ALWAYS_S: Final = float("-inf")


class Expiring(Protocol):
    """Who has a deadline in a queue. The queue tells one from another by `deadline_id`."""

    # Zero without a deadline, so also once it has fired. The queue's to write, the owner's to read.
    deadline_id: int

    def on_deadline(self) -> None:
        """The time has come."""


class Deadline:
    """A callback with a deadline, and a `Timer`. Driven by its owner (cancel) and its queue."""

    __slots__ = ("_callback", "_queue", "deadline_id", "due_s")

    def __init__(self, queue: "DeadlineQueue", when_s: float, callback: Callable[[], None]) -> None:
        self._queue = queue
        self._callback = callback
        self.due_s = when_s
        self.deadline_id = 0

    @property
    def pending(self) -> bool:
        return bool(self.deadline_id)

    def cancel(self) -> None:
        """Make sure the callback does not run from now on. Does nothing if it is not pending."""
        self._queue.forget(self)
        # Its owner is often who holds the deadline: without the cycle both are freed at once.
        self._callback = _do_nothing

    def on_deadline(self) -> None:
        callback, self._callback = self._callback, _do_nothing
        callback()


class DeadlineQueue:
    """Calls back at given times. Driven by owners of deadlines and by one timer on the clock."""

    __slots__ = ("_armed_s", "_clock", "_heap", "_last_id", "_timer", "cancelled")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Expiring]] = []
        # Ids are counted up, so they order deadlines with equal times.
        self._last_id = 0
        # How many entries of the heap are not their owner's deadline any more.
        self.cancelled = 0
        self._timer: Timer = IDLE_TIMER
        # When the timer fires. While firing: always, so that nobody starts a second timer.
        self._armed_s = _NEVER_S

    def __len__(self) -> int:
        """How many deadlines are pending."""
        return len(self._heap) - self.cancelled

    def add(self, when_s: float, callback: Callable[[], None]) -> Deadline:
        """Call back at this time of the clock; if it has passed, soon but never inside."""
        deadline = Deadline(self, when_s, callback)
        self.expire(deadline, when_s)
        return deadline

    def expire(self, owner: Expiring, when_s: float) -> None:
        """As `add`, for an owner that needs no object for its deadline; replaces the one it has."""
        if owner.deadline_id:
            self.forget(owner)
        self._last_id = owner.deadline_id = deadline_id = self._last_id + 1
        heappush(self._heap, (when_s, deadline_id, owner))
        if when_s < self._armed_s:
            self._arm(when_s)

    def forget(self, owner: Expiring) -> None:
        """Its deadline is void from now on. Does nothing if it has none."""
        if owner.deadline_id:
            owner.deadline_id = 0
            self.cancelled = cancelled = self.cancelled + 1
            if not cancelled & (_CANCELS_PER_LOOK - 1):
                self._rebuild_if_mostly_cancelled()

    def cancel_all(self) -> None:
        """Cancel every deadline and the clock's timer: the owner is closing."""
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


def _do_nothing() -> None:
    return
