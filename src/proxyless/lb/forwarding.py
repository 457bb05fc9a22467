"""How does a policy stand between its child and the rest of the world?

It gives its child a helper that passes everything on, except for what it overrides; and if it
wants to know which subchannel an RPC uses, or to have a say in its health, it wraps the
subchannels that the child creates.

A wrapped subchannel must not leave through the picker: the parent knows only those it made itself.
`ForwardingSubchannel.pass_on` makes the result for the parent. The subchannel keeps it for the next
pick with the same result of the child, so that a pick allocates nothing.
"""

from typing import Final

from proxyless.base import Address, Attributes, State
from proxyless.lb.api import (
    CallEnd,
    CallTracker,
    Cancel,
    Complete,
    Context,
    Helper,
    LoadListener,
    Picker,
    StateListener,
    Subchannel,
)


class ForwardingHelper:
    """A helper that passes on to the one above. Driven by a child."""

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
    """A subchannel around another. Driven by the child that it was created for.

    The tracker, if there is one, hears of every attempt on it, before the child's own.
    """

    __slots__ = ("_tracker", "child_result", "inner", "passed_on")

    def __init__(self, inner: Subchannel, tracker: CallTracker | None = None) -> None:
        self.inner = inner
        self._tracker = tracker
        # The child's last result, and what the parent was given for it.
        self.child_result: Complete | None = None
        self.passed_on: Complete | None = None

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
        self.inner.release()

    def pass_on(self, result: Complete) -> Complete:
        """The parent's result for a child's pick of this subchannel.

        To spare a call, a picker first compares `child_result` with the result, and returns
        `passed_on` if they are the same.
        """
        passed_on = self.passed_on
        if passed_on is None or self.child_result is not result:
            tracker = join_trackers(self._tracker, result.tracker)
            passed_on = Complete(self.inner, tracker, result.authority)
            self.child_result, self.passed_on = result, passed_on
        return passed_on

    def forget_result(self) -> None:
        """The next pick makes another result for the parent."""
        self.child_result = self.passed_on = None


def join_trackers(first: CallTracker | None, second: CallTracker | None) -> CallTracker | None:
    """One tracker that tells both."""
    if first is None or second is None:
        return first or second
    return _TrackerPair(first, second)


class _TrackerPair:
    """Tells two trackers, the first one first."""

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
