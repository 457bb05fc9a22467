"""Decision of the priority policy: which child to create or to use (pure).

Specs: A56 "ChoosePriority"; D48.

The choice depends on the last reports and failover timers of all children. `ChoiceIndex` keeps them
in order of priority, so that a change of one child among thousands does not visit the others.
"""

from collections.abc import Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Final

from proxyless.base import State
from proxyless.base.frozen import frozen


class Reason(Enum):
    """Reason for the choice of a child."""

    CONNECTED = "child is READY or IDLE"
    ATTEMPTING = "failover timer is pending"
    STILL_CONNECTING = "no child usable; first one still CONNECTING"
    RECONNECTING = "no child usable; first one that connects to new endpoints"
    EXHAUSTED = "no child usable; last one stands in"


@frozen
class ChildView:
    """Input of the decision: one child."""

    state: State
    failover_timer_pending: bool
    # The state is TRANSIENT_FAILURE, but RPCs are queued because the child has new endpoints.
    is_reconnecting: bool = False


# An entry that is never chosen unless it is the last one.
FAILED: Final = ChildView(State.TRANSIENT_FAILURE, failover_timer_pending=False)


@frozen
class Create:
    """Create the child of this priority, then choose again."""

    priority: int


@frozen
class Use:
    """Use this child. Lower ones are deactivated only if the reason is CONNECTED."""

    priority: int
    reason: Reason
    # The number of children, from the highest priority on, that were considered and stay active.
    considered: int


class ChoiceIndex:
    """The children in order of priority; None is a child that is not created yet."""

    __slots__ = ("_connecting", "_decisive", "_groups", "_reconnecting", "_views")

    def __init__(self, children: Iterable[ChildView | None] = ()) -> None:
        # The view and the group of each child. A child without a view is not created; one without
        # a group has failed.
        self._views: list[ChildView | None] = []
        self._groups: list[_FirstIndex | None] = []
        # Children that end the search: missing, connected, or with a pending failover timer.
        self._decisive = _FirstIndex()
        self._connecting = _FirstIndex()
        self._reconnecting = _FirstIndex()
        for priority, child in enumerate(children):
            self._views.append(FAILED)
            self._groups.append(None)
            self.set(priority, child)

    def set(self, priority: int, child: ChildView | None) -> None:
        """Replace the view of one child. The cost is logarithmic in the number of children."""
        group_before, group = self._groups[priority], self._group(child)
        self._views[priority] = child
        if group is not group_before:
            self._groups[priority] = group
            if group_before is not None:
                group_before.remove(priority)
            if group is not None:
                group.add(priority)

    def choose(self) -> Create | Use:
        assert self._views, "the policy reports an empty priority list before choosing"
        priority = self._decisive.first
        if priority is not None:
            child = self._views[priority]
            if child is None:
                return Create(priority)
            is_connected = child.state in _CONNECTED
            reason = Reason.CONNECTED if is_connected else Reason.ATTEMPTING
            return Use(priority, reason, priority + 1)
        count = len(self._views)
        if (priority := self._connecting.first) is not None:
            return Use(priority, Reason.STILL_CONNECTING, count)
        # Differs from A56, which uses the last child: see D48.
        if (priority := self._reconnecting.first) is not None:
            return Use(priority, Reason.RECONNECTING, count)
        return Use(count - 1, Reason.EXHAUSTED, count)

    def _group(self, child: ChildView | None) -> "_FirstIndex | None":
        if child is None or child.failover_timer_pending or child.state in _CONNECTED:
            return self._decisive
        if child.state is State.CONNECTING:
            return self._connecting
        return self._reconnecting if child.is_reconnecting else None


_CONNECTED: Final = frozenset({State.READY, State.IDLE})


def choose(children: Iterable[ChildView | None]) -> Create | Use:
    """Choose among these children, which are in order of priority."""
    return ChoiceIndex(children).choose()


class _FirstIndex:
    """A set of numbers, and the lowest of them."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        # The heap has each member once, and numbers that were removed.
        self._heap: list[int] = []
        self._members: dict[int, bool] = {}

    def add(self, number: int) -> None:
        if number not in self._members:
            heappush(self._heap, number)
        self._members[number] = True

    def remove(self, number: int) -> None:
        self._members[number] = False

    @property
    def first(self) -> int | None:
        while self._heap:
            number = self._heap[0]
            if self._members[number]:
                return number
            heappop(self._heap)
            del self._members[number]
        return None
