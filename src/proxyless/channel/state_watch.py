"""StateWatch: notifies a policy of the states of a subchannel.

A policy is never called inside its own calls (`lb.api`), so each notification waits for the next
turn of the loop. All watches of a loop share one queue, `StateNotifications`: thousands of
endpoints have no timer of their own, and their notifications are delivered in slices.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from proxyless.runtime import UNLIMITED_WORK, Soon

if TYPE_CHECKING:
    from proxyless.base import State, Status
    from proxyless.lb.api import StateListener
    from proxyless.runtime import Clock, Work

# Units of `runtime.work_queue` for a step, which delivers so many changes: an endpoint has four of
# them until it is READY, and other jobs take a step for each.
DELIVER_UNITS: Final = 30
DELIVERED_PER_STEP: Final = 8


class StateNotifications:
    """Queue of watches with changes that have not been delivered."""

    __slots__ = ("_added", "_deliver_soon", "_due", "_work")

    def __init__(self, clock: Clock, work: Work = UNLIMITED_WORK) -> None:
        self._work: Final = work
        # Added in this turn, and due since an earlier one.
        self._added: list[StateWatch] = []
        self._due: deque[StateWatch] = deque()
        self._deliver_soon = Soon(clock, self._on_turn)

    def add(self, watch: StateWatch) -> None:
        """Deliver the watch's next change in the next turn."""
        self._added.append(watch)
        self._deliver_soon.request()

    def _on_turn(self) -> None:
        self._due += self._added
        self._added.clear()
        if self._due:
            self._work.run(self, DELIVER_UNITS)

    def step(self) -> bool:
        """Deliver some changes. Called by the work queue."""
        due = self._due
        try:
            for _ in range(min(len(due), DELIVERED_PER_STEP)):
                due.popleft().deliver()
        except BaseException:
            # An exception in a listener must not lose the changes of others.
            self._deliver_soon.request()
            raise
        return bool(due)


class StateWatch:
    """Calls one listener with every change, in order, one per turn of the loop."""

    __slots__ = ("_listener", "_notifications", "_siblings", "_undelivered")

    def __init__(
        self,
        listener: StateListener,
        notifications: StateNotifications,
        siblings: dict[StateWatch, None],
    ) -> None:
        # None after `cancel`.
        self._listener: StateListener | None = listener
        self._notifications = notifications
        # All watches of the handle.
        self._siblings = siblings
        self._undelivered: tuple[tuple[State, Status], ...] = ()

    def notify(self, state: State, status: Status) -> None:
        if not self._undelivered:
            self._notifications.add(self)
        self._undelivered += ((state, status),)

    def deliver(self) -> None:
        """Deliver the first change. Called by the queue."""
        if self._listener is None:
            return
        state, status = self._undelivered[0]
        self._undelivered = self._undelivered[1:]
        # First: an exception in the listener must not lose the other changes.
        if self._undelivered:
            self._notifications.add(self)
        self._listener(state, status)

    def cancel(self) -> None:
        """Idempotent."""
        self._listener = None
        self._siblings.pop(self, None)
