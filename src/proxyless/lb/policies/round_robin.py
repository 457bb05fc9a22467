"""Every endpoint that is connected takes its turn.

Specs: A61 and the gRPC "Load Balancing" document; requirements RR-01 to RR-07.

The children are the business of `endpoint_list`; the state of all together is that of `aggregate`.
This policy reports it, with a picker that goes around.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxyless.base import OK, State, Status, StatusCode, ValidationErrors
from proxyless.lb.aggregate import IDLE_IS_CONNECTING, aggregate
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, Policy, Update
from proxyless.lb.endpoint_list import EndpointChild, EndpointList
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.policies.pick_first import EMPTY_ADDRESS_LIST
from proxyless.lb.registry import PolicyRegistry


@dataclass(frozen=True, slots=True)
class RoundRobinConfig:
    """There is nothing to configure."""


class RoundRobinPicker(Picker):
    """Asks one picker after the other."""

    __slots__ = ("_next", "_pickers", "_size")

    def __init__(self, pickers: tuple[Picker, ...], start: int) -> None:
        self._pickers: Final = pickers
        self._size: Final = len(pickers)
        # The cursor; the only thing that changes.
        self._next = start

    def pick(self, info: PickInfo) -> PickResult:
        index = self._next
        after = index + 1
        self._next = after if after < self._size else 0
        return self._pickers[index].pick(info)


class RoundRobin:
    """Reports what its endpoints are together. Driven by its parent and the endpoints' children."""

    __slots__ = ("_endpoints", "_held", "_helper", "_last_error", "_note", "_shown", "_state")

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._endpoints = EndpointList(helper, EndpointChild, self._on_report)
        # From the last update.
        self._note = ""
        # From the children's reports.
        self._last_error = ""
        # Whether children are being updated, so that their reports have to wait.
        self._held = False
        # What was last reported: the state, and the version of the READY children in the picker.
        self._state: State | None = None
        self._shown = 0

    def update(self, update: Update) -> Status:
        endpoints = update.endpoints
        if isinstance(endpoints, Status):
            if not self._endpoints.children:
                self._report(State.TRANSIENT_FAILURE, FailPicker(endpoints))
            return endpoints
        self._note = f" ({update.resolution_note})" if update.resolution_note else ""
        self._held = True
        try:
            self._endpoints.update(endpoints, update.attributes)
        finally:
            self._held = False
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

    def _on_report(self, child: EndpointChild, before: State) -> None:
        if child.state is State.TRANSIENT_FAILURE:
            self._last_error = child.picker.status.details
        if not self._held:
            self._reconsider()

    def _reconsider(self) -> None:
        """Report what has changed. Runs after every report that counts and after updates."""
        state = aggregate(self._endpoints.counts, IDLE_IS_CONNECTING)
        match state:
            case State.READY:
                if self._state is not state or self._shown != self._endpoints.ready_version:
                    self._report(state, self._make_picker())
            case State.TRANSIENT_FAILURE:
                text = f"connections to all backends failing; last error: {self._last_error}"
                self._report(state, FailPicker(self._unavailable(text)))
            case _:
                if self._state is not state:
                    self._report(state, QUEUE_PICKER)

    def _make_picker(self) -> Picker:
        pickers = tuple(self._endpoints.ready.values())
        self._shown = self._endpoints.ready_version
        return RoundRobinPicker(pickers, self._helper.context.random.randrange(len(pickers)))

    def _unavailable(self, text: str) -> Status:
        return Status(StatusCode.UNAVAILABLE, text + self._note)

    def _report(self, state: State, picker: Picker) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit("round_robin.state", before=self._state, after=state, status=picker.status)
        self._state = state
        self._helper.update_state(state, picker)


class RoundRobinFactory:
    """What the registry knows of round_robin."""

    name: Final = "round_robin"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RoundRobinConfig:
        return RoundRobinConfig()

    def create(self, helper: Helper) -> Policy:
        return RoundRobin(helper)
