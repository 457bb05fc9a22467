"""What does a policy report that has one connection per endpoint?

Specs: A61 ("petiole policies"), RR-02, RR-04 to RR-07; A48 and A58 say the same of theirs.

The children are the business of `endpoint_list`, their state together that of `aggregate`. Here
they are kept in step with updates, and the state is reported whenever there is something to say.
Which of the endpoints an RPC goes to, while some are READY, is what policies differ in.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, TypeVar

from proxyless.base import OK, State, Status, StatusCode
from proxyless.lb.aggregate import IDLE_IS_CONNECTING, aggregate
from proxyless.lb.api import Helper, Picker, Update
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList
from proxyless.lb.policies.pick_first.policy import EMPTY_ADDRESS_LIST
from proxyless.lb.reentrancy import Hold
from proxyless.lb.view import LbNode

C = TypeVar("C", bound=EndpointChild)

# No version of the READY children: they have to be shown.
_NOT_SHOWN = -1


class PetiolePolicy(ABC, Generic[C]):
    """Reports what its endpoints are together. Driven by its parent and the endpoints' children."""

    # The event that tells of reports.
    trace_name: ClassVar[str]

    __slots__ = ("_endpoints", "_helper", "_hold", "_note", "_shown", "_state")

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._endpoints = self._make_list()
        # From the last update.
        self._note = ""
        # Around updates of children.
        self._hold: Final = Hold()
        # What was last reported: the state, and the version of the READY children in the picker.
        self._state: State | None = None
        self._shown = _NOT_SHOWN

    @abstractmethod
    def _make_list(self) -> EndpointList[C]:
        """A list of the policy's kind of children, which report to `_on_report`."""

    @abstractmethod
    def _make_picker(self) -> Picker:
        """Spreads RPCs over the READY endpoints, of which there is one at least."""

    def _extend_picker(self, child: C) -> Picker:
        """One more endpoint is READY: the last picker with it, or a new one."""
        return self._make_picker()

    def update(self, update: Update) -> Status:
        endpoints = update.endpoints
        if isinstance(endpoints, Status):
            if not self._endpoints.children:
                self._report(State.TRANSIENT_FAILURE, FailPicker(endpoints))
            elif self._state is State.READY:
                # The endpoints are the same, but the config may be another.
                self._reconsider()
            return endpoints
        self._note = f" ({update.resolution_note})" if update.resolution_note else ""
        with self._hold:
            self._endpoints.update(endpoints, update.attributes)
        if not endpoints:
            error = self._unavailable(EMPTY_ADDRESS_LIST)
            self._report(State.TRANSIENT_FAILURE, FailPicker(error))
            return error
        self._reconsider()
        return OK

    def exit_idle(self) -> None:
        self._endpoints.exit_idle()

    def reset_backoff(self) -> None:
        self._endpoints.reset_backoff()

    def close(self) -> None:
        self._endpoints.close()

    def describe(self) -> LbNode:
        state = "" if self._state is None else self._state.name
        children = self._endpoints.describe(self._note_of)
        detail = self._endpoints.count_ready() if children else ""
        return LbNode(state=state, detail=detail, children=children)

    def _note_of(self, child: C) -> str:
        """What is to be said about an endpoint to somebody who asks."""
        return ""

    def _on_report(self, child: C, before: State) -> None:
        if self._hold.active:
            return
        if before is not State.READY and child.state is State.READY and self._is_one_more():
            self._shown = self._endpoints.ready_version
            self._report(State.READY, self._extend_picker(child))
        else:
            self._reconsider()

    def _is_one_more(self) -> bool:
        """Whether the last picker has all READY endpoints but the one that is READY now."""
        is_ready = self._state is State.READY
        return is_ready and self._shown == self._endpoints.ready_version - 1

    def _renew_picker(self) -> None:
        """The last picker is out of date, though its endpoints may be READY still."""
        self._shown = _NOT_SHOWN

    def _reconsider(self) -> None:
        """Report what has changed. Runs after every report that counts and after updates."""
        state = aggregate(self._endpoints.counts, IDLE_IS_CONNECTING)
        match state:
            case State.READY:
                if self._state is not state or self._shown != self._endpoints.ready_version:
                    self._shown = self._endpoints.ready_version
                    self._report(state, self._make_picker())
            case State.TRANSIENT_FAILURE:
                error = self._endpoints.find_last_error()
                text = f"connections to all backends failing; last error: {error}"
                self._report(state, FailPicker(self._unavailable(text)))
            case _:
                if self._state is not state:
                    self._report(state, QUEUE_PICKER)

    def _unavailable(self, text: str) -> Status:
        return Status(StatusCode.UNAVAILABLE, text + self._note)

    def _report(self, state: State, picker: Picker) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit(self.trace_name, before=self._state, after=state, status=picker.status)
        self._state = state
        self._helper.update_state(state, picker)
