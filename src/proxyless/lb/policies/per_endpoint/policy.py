"""Base of the policies with one pick_first child per endpoint: aggregation and reports.

Specs: A61, RR-02, RR-04 to RR-07; A48 and A58 have the same rules.

`endpoint_list` owns the children, and `aggregate` computes the state. Subclasses make the picker
that is used while endpoints are READY.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, TypeVar, cast

from proxyless.base import OK, State, Status, StatusCode
from proxyless.lb.aggregate import IDLE_IS_CONNECTING, aggregate
from proxyless.lb.api import Helper, Picker, Update
from proxyless.lb.description import LbNode
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList
from proxyless.lb.policies.pick_first.policy import EMPTY_ADDRESS_LIST
from proxyless.lb.reentrancy import Hold
from proxyless.runtime import IDLE_TIMER

C = TypeVar("C", bound=EndpointChild)

# With more READY endpoints, a picker that cannot be extended is replaced later.
REFRESHED_AT_ONCE_MAX: Final = 100

# With more endpoints, an update is applied in a turn of its own.
UPDATED_AT_ONCE_MAX: Final = 5_000

# No valid version of `ready`: a new picker is needed.
_NO_VERSION = -1


class ExtendablePicker(Picker, Generic[C]):
    """Picker of READY endpoints to which another one can be added (ADR 0015)."""

    __slots__ = ()

    @abstractmethod
    def add(self, child: C) -> None:
        """Add an endpoint that has become READY."""


class PerEndpointPolicy(ABC, Generic[C]):
    """Owns the list of endpoints, and reports their aggregated state."""

    # The name of the trace event of reports.
    trace_name: ClassVar[str]
    child_type: ClassVar[type[EndpointChild]] = EndpointChild
    # The delay, per endpoint, of a new picker that adds READY endpoints to many others: about 20
    # times the time that making it takes.
    delay_per_endpoint_s: ClassVar[float] = 0.0

    __slots__ = (
        "_endpoints",
        "_helper",
        "_hold",
        "_picker",
        "_picker_version",
        "_refresh_timer",
        "_resolution_note",
        "_state",
        "_waiting",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._endpoints = self._make_list()
        # From the last update; and a large update until it is applied.
        self._resolution_note = ""
        self._waiting: Update | None = None
        # Active during updates of children.
        self._hold: Final = Hold()
        # From the last report: the state, the picker of READY endpoints and its version.
        self._state: State | None = None
        self._picker: Picker = QUEUE_PICKER
        self._picker_version = _NO_VERSION
        # Pending while the picker of many READY endpoints is out of date.
        self._refresh_timer = IDLE_TIMER

    def _make_list(self) -> EndpointList[C]:
        child_type = cast("type[C]", self.child_type)
        return EndpointList(self._helper, child_type, self._on_report)

    @abstractmethod
    def _make_picker(self) -> Picker:
        """Return a picker of the READY endpoints. There is at least one."""

    def update(self, update: Update) -> Status:
        endpoints = update.endpoints
        self._waiting = None
        if isinstance(endpoints, Status) or len(endpoints) <= UPDATED_AT_ONCE_MAX:
            return self._apply(update)
        # In a turn of its own, if the parent has used up this one.
        self._waiting = update
        self._helper.context.work.run(self, 1)
        return OK

    def step(self) -> bool:
        """Apply a large update. Called by the work queue."""
        update, self._waiting = self._waiting, None
        if update is not None:
            self._apply(update)
        return False

    def _apply(self, update: Update) -> Status:
        endpoints = update.endpoints
        if isinstance(endpoints, Status):
            if not self._endpoints.children:
                self._report(State.TRANSIENT_FAILURE, FailPicker(endpoints))
            elif self._state is State.READY:
                # The endpoints are unchanged, but the config may be new.
                self._refresh()
            return endpoints
        self._resolution_note = update.resolution_note
        with self._hold:
            self._endpoints.update(endpoints, update.attributes)
        if not endpoints:
            error = self._unavailable(EMPTY_ADDRESS_LIST)
            self._report(State.TRANSIENT_FAILURE, FailPicker(error))
            return error
        self._refresh()
        return OK

    def exit_idle(self) -> None:
        self._endpoints.exit_idle()

    def reset_backoff(self) -> None:
        self._endpoints.reset_backoff()

    def close(self) -> None:
        self._refresh_timer.cancel()
        self._waiting = None
        self._endpoints.close()

    def describe(self) -> LbNode:
        state = "" if self._state is None else self._state.name
        children = self._endpoints.describe(self._endpoint_note)
        detail = self._endpoints.describe_ready() if children else ""
        return LbNode(state=state, detail=detail, children=children)

    def _endpoint_note(self, child: C) -> str:
        """Return the note of an endpoint for descriptions."""
        return ""

    def _on_report(self, child: C, before: State) -> None:
        if self._hold.active:
            return
        became_ready = before is not State.READY and child.state is State.READY
        picker = self._picker
        is_one_behind = became_ready and self._is_picker_one_behind()
        if is_one_behind and isinstance(picker, ExtendablePicker):
            picker.add(child)
            self._picker_version = self._endpoints.ready_version
            self._report(State.READY, picker)
        elif self._state is State.READY and len(self._endpoints.ready) > REFRESHED_AT_ONCE_MAX:
            # The state stays READY, and a picker for each report would be quadratic.
            delay_s = self.delay_per_endpoint_s * len(self._endpoints.ready)
            self._refresh_after(delay_s if became_ready else 0.0)
        else:
            self._refresh()

    def _refresh_after(self, delay_s: float) -> None:
        """Refresh once for all reports until then."""
        clock, timer = self._helper.context.clock, self._refresh_timer
        if not timer.pending or timer.due_s > clock.now_s() + delay_s:
            timer.cancel()
            self._refresh_timer = clock.call_later(delay_s, self._refresh)

    def _is_picker_one_behind(self) -> bool:
        """Whether the last picker lacks only the endpoint that just became READY."""
        is_ready = self._state is State.READY
        return is_ready and self._picker_version == self._endpoints.ready_version - 1

    def _invalidate_picker(self) -> None:
        """Make the next refresh replace the picker even if the READY endpoints are the same."""
        self._picker_version = _NO_VERSION

    def _refresh(self) -> None:
        """Report if the state or the READY endpoints changed. Always reports TRANSIENT_FAILURE."""
        self._refresh_timer.cancel()
        state = aggregate(self._endpoints.counts, IDLE_IS_CONNECTING)
        match state:
            case State.READY:
                version = self._endpoints.ready_version
                if self._state is not state or self._picker_version != version:
                    self._picker_version = version
                    self._picker = self._make_picker()
                    self._report(state, self._picker)
            case State.TRANSIENT_FAILURE:
                error = self._endpoints.find_last_error()
                text = f"connections to all backends failing; last error: {error}"
                self._report(state, FailPicker(self._unavailable(text)))
            case _:
                if self._state is not state:
                    self._report(state, QUEUE_PICKER)

    def _unavailable(self, text: str) -> Status:
        note = f" ({self._resolution_note})" if self._resolution_note else ""
        return Status(StatusCode.UNAVAILABLE, text + note)

    def _report(self, state: State, picker: Picker) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit(self.trace_name, before=self._state, after=state, status=picker.status)
        self._state = state
        self._helper.update_state(state, picker)
