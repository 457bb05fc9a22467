"""Helper and subchannel that forward to the parent's, for policies that intercept some calls.

A policy gives its child a subclass of `ForwardingHelper`. To track the RPCs of its subchannels, or
to change their health, it also wraps the subchannels that the child creates.

The pick result for the parent must name the parent's subchannel, not the wrapper:
`ForwardingSubchannel.to_parent_result` converts it. The converted result is cached in the child's,
so that a pick allocates nothing, and with thousands of endpoints reads few objects.
"""

from typing import Final

from proxyless.base import Address, Attributes, State
from proxyless.lb.api import (
    CallEnd,
    CallTracker,
    Cancel,
    Complete,
    Context,
    HeadTracker,
    Helper,
    LoadListener,
    Picker,
    StateListener,
    Subchannel,
)


class ForwardingHelper:
    """Helper of a child that forwards every call to the parent's helper."""

    __slots__ = ("_parent", "context")

    def __init__(self, parent: Helper) -> None:
        self._parent = parent
        self.context: Final[Context] = parent.context

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._parent.create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._parent.update_state(state, picker)

    def request_reresolution(self) -> None:
        self._parent.request_reresolution()


class ForwardingSubchannel:
    """Subchannel that forwards every call to an inner one.

    The tracker is called for each attempt, before the tracker of the child's pick result.
    """

    __slots__ = ("_tracker", "child_result", "inner")

    def __init__(self, inner: Subchannel, tracker: CallTracker | None = None) -> None:
        self.inner = inner
        self._tracker = tracker
        # The child's last result: the only one that has a parent's result.
        self.child_result: Complete | None = None

    @property
    def address(self) -> Address:
        return self.inner.address

    def watch(self, listener: StateListener) -> Cancel:
        return self.inner.watch(listener)

    def watch_health(self, listener: StateListener) -> Cancel:
        return self.inner.watch_health(listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        return self.inner.watch_load_reports(interval_s, listener)

    def request_connection(self) -> None:
        self.inner.request_connection()

    def reset_backoff(self) -> None:
        self.inner.reset_backoff()

    def release(self) -> None:
        # The child's result refers to this object: a reference cycle.
        self.clear_results()
        self.inner.release()

    def to_parent_result(self, result: Complete) -> Complete:
        """Convert the child's pick of this subchannel into the parent's result.

        To avoid this call, pickers return the result's `parent_result` if it has one.
        """
        parent_result = result.parent_result
        if parent_result is None:
            self.clear_results()
            tracker = join_trackers(self._tracker, result.tracker)
            parent_result = Complete(self.inner, tracker, result.authority)
            self.child_result = result
            _set_parent_result(result, parent_result)
        return parent_result

    def clear_results(self) -> None:
        """Forget the parent's result. Called if it would be another one now."""
        if self.child_result is not None:
            _set_parent_result(self.child_result, None)
            self.child_result = None


def _set_parent_result(result: Complete, parent_result: Complete | None) -> None:
    object.__setattr__(result, "parent_result", parent_result)


def join_trackers(first: CallTracker | None, second: CallTracker | None) -> CallTracker | None:
    """Combine two trackers; the first one is called first."""
    if first is None or second is None:
        return first or second
    if isinstance(first, HeadTracker) or isinstance(second, HeadTracker):
        return _HeadTrackerPair(first, second)
    return _TrackerPair(first, second)


class _TrackerPair:
    """Tracker that calls two trackers."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: CallTracker, second: CallTracker) -> None:
        self._first = first
        self._second = second

    def on_start(self) -> None:
        self._first.on_start()
        self._second.on_start()

    def on_end(self, end: CallEnd) -> None:
        self._first.on_end(end)
        self._second.on_end(end)


class _HeadTrackerPair(_TrackerPair, HeadTracker):
    """Tracker that calls two trackers, of which one or both need the response headers."""

    __slots__ = ()

    def on_head(self) -> None:
        for tracker in (self._first, self._second):
            if isinstance(tracker, HeadTracker):
                tracker.on_head()
