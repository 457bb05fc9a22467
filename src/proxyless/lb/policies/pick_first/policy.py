"""The `pick_first` policy: sends all RPCs to the first address that connects.

Specs: A62 (sticky TRANSIENT_FAILURE, shuffling), A61 (Happy Eyeballs, health watch).

`happy_eyeballs` decides when each address is attempted; this module is the policy around it.

Theory of operation
    `Phase` is the state of the policy, and `_enter` its only setter. During a pass there is one
    subchannel per address, called a candidate. The pass is CONNECTING, and after all candidates
    have failed TRANSIENT_FAILURE, which is sticky: "until it can report READY" - A62. Candidates
    connect again after each backoff, without an RPC. A candidate that is READY is selected, and the
    others are released. When the selected connection is lost, the policy is IDLE, and a pick or
    `exit_idle` starts a pass.

    Of a long list, the candidates that the pass does not reach soon are created later; and many
    candidates are connected again, or released, over several turns of the loop.

    If a selected address gets new attributes, it needs a new connection: a replacement is created,
    and selected when it is READY. RPCs use the old connection until then.

Invariants
    A candidate is selected exactly in the phases with `is_selected`; it is then the only one.
    A pass is running exactly in CONNECTING and TRANSIENT_FAILURE.
    There is no candidate in NO_ADDRESSES, IDLE and SHUTDOWN.
    A replacement exists only beside a selected candidate.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from proxyless.base import (
    OK,
    Address,
    Attributes,
    Endpoint,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.base.json_fields import BOOLEAN, JsonObject
from proxyless.lb.api import Complete, Helper, Picker, PolicyRegistry, Update
from proxyless.lb.attributes import differ_only_in_proxy
from proxyless.lb.description import LbNode
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, IdlePicker, SubchannelPicker
from proxyless.lb.policies.pick_first.candidate import Candidate
from proxyless.lb.policies.pick_first.config import (
    NO_SETTINGS,
    PickFirstConfig,
    is_config_enabled,
    read_settings,
)
from proxyless.lb.policies.pick_first.happy_eyeballs import (
    NO_OVERLAP_S,
    Action,
    Connect,
    Pass,
    Select,
    Signal,
    Target,
    order_addresses,
)
from proxyless.runtime import IDLE_TIMER, ActionsJob

EMPTY_ADDRESS_LIST: Final = "empty address list"

# New candidates that are created at a time, and actions that are performed in one turn.
NEW_CANDIDATES_MAX: Final = 200
ACTIONS_PER_TURN: Final = 1_000
# More candidates are released in slices. Units of `runtime.work_queue` for each.
RELEASED_AT_ONCE_MAX: Final = 100
RELEASE_UNITS: Final = 20

_NEVER_TRIED: Final = Status(StatusCode.UNAVAILABLE, "not tried yet")


class Phase(Enum):
    """State of the policy, with the connectivity state that it reports."""

    # Reported as TRANSIENT_FAILURE, but not sticky: no address has failed.
    NO_ADDRESSES = ("no address list, or an empty one", None)
    IDLE = ("waits for a pick or `exit_idle`", State.IDLE)
    CONNECTING = ("in a pass", State.CONNECTING)
    TRANSIENT_FAILURE = ("in a pass, sticky until READY", State.TRANSIENT_FAILURE)
    READY = ("selected", State.READY)
    HEALTH_CONNECTING = ("selected, and its health is not known", State.CONNECTING)
    HEALTH_FAILURE = ("selected, and unhealthy or not yet known healthy", State.TRANSIENT_FAILURE)
    SHUTDOWN = ("closed", State.SHUTDOWN)

    def __init__(self, _meaning: str, state: State | None) -> None:
        self.state: Final = state
        self.is_selected: Final = self.name in {"READY", "HEALTH_CONNECTING", "HEALTH_FAILURE"}


class PickFirstPolicy:
    """Owns the candidates and the delay timer; `Pass` decides. In IDLE, picks start a pass."""

    __slots__ = (
        "_actions",
        "_candidates",
        "_continue_timer",
        "_delay_timer",
        "_exit_idle_timer",
        "_helper",
        "_is_performing",
        "_last_error",
        "_pass",
        "_phase",
        "_replacement",
        "_selected",
        "_settings",
        "_targets",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # From the last update, or from the last one that had endpoints.
        self._settings = NO_SETTINGS
        self._targets: tuple[Target, ...] = ()
        # Changed by `_enter` only.
        self._phase = Phase.NO_ADDRESSES
        # In a pass: one candidate for each of the first targets. Later: at most one, selected.
        self._pass: Pass | None = None
        self._candidates: list[Candidate] = []
        self._selected: Candidate | None = None
        # Replaces the selected candidate when it is READY.
        self._replacement: Candidate | None = None
        self._last_error = _NEVER_TRIED
        # Queue of actions, which exists while they are being performed or continued.
        self._actions: deque[Action] | None = None
        self._is_performing = False
        # Timers, not `Soon`: two objects less each, and there may be thousands of these policies.
        self._continue_timer = self._exit_idle_timer = IDLE_TIMER
        self._delay_timer = IDLE_TIMER

    def update(self, update: Update) -> Status:
        self._settings = read_settings(update)
        if isinstance(update.endpoints, Status):
            return self._on_resolver_error(update.endpoints)
        config = update.config
        assert isinstance(config, PickFirstConfig), "the factory parsed the config"
        endpoints: Iterable[Endpoint] = update.endpoints
        if config.shuffle_address_list:
            from proxyless.lb.policies.pick_first.shuffling import shuffle_endpoints  # noqa: PLC0415

            endpoints = shuffle_endpoints(endpoints, self._helper.context.random)
        targets = order_addresses(endpoints)
        if not targets:
            return self._on_empty_list()
        # An equal list must not restart attempts.
        if targets != self._targets:
            self._targets = targets
            self._on_targets()
        return OK

    def exit_idle(self) -> None:
        if self._phase is Phase.IDLE:
            self._start_pass()

    def reset_backoff(self) -> None:
        for candidate in self._candidates:
            candidate.subchannel.reset_backoff()
        if self._replacement is not None:
            self._replacement.subchannel.reset_backoff()

    def close(self) -> None:
        self._release_all()
        self._enter(Phase.SHUTDOWN)

    def describe(self) -> LbNode:
        children = tuple(candidate.describe() for candidate in self._candidates)
        state = self._phase.state
        if state is None:
            # The parent fills in the reason from the report.
            return LbNode()
        match self._phase:
            case Phase.IDLE:
                detail = f"connects when an RPC comes, to one of {len(self._targets)} addresses"
            case Phase.TRANSIENT_FAILURE:
                detail = self._describe_failure().details
            case Phase.HEALTH_FAILURE if self._selected is not None:
                detail = self._selected.health_error.details
            case _:
                detail = ""
        return LbNode(state=state.name, detail=detail, children=children)

    def _on_resolver_error(self, error: Status) -> Status:
        if not self._targets:
            self._enter(Phase.NO_ADDRESSES, FailPicker(error))
        return error

    def _on_empty_list(self) -> Status:
        error = Status(StatusCode.UNAVAILABLE, self._settings.annotate(EMPTY_ADDRESS_LIST))
        self._targets = ()
        self._release_all()
        self._enter(Phase.NO_ADDRESSES, FailPicker(error))
        return error

    def _on_targets(self) -> None:
        if self._phase is Phase.IDLE:
            return
        if self._selected is None:
            self._start_pass()
        elif (attributes := dict(self._targets).get(self._selected.address)) is None:
            self._enter_idle()
        elif attributes == self._selected.attributes:
            self._drop_replacement()
        elif self._replacement is None or attributes != self._replacement.attributes:
            self._replace_selected(self._selected, attributes)

    def _replace_selected(self, selected: Candidate, attributes: Attributes) -> None:
        """Replace the selected candidate by one with the new attributes, without disconnecting."""
        self._drop_replacement()
        replacement = self._create_candidate(selected.address, attributes)
        if replacement.state is State.READY:
            self._select(replacement)
        elif differ_only_in_proxy(selected.attributes, attributes):
            replacement.release()
        else:
            self._replacement = replacement
            self._on_replacement_state(replacement)

    def _on_replacement_state(self, replacement: Candidate) -> None:
        match replacement.state:
            case State.READY:
                self._replacement = None
                self._select(replacement)
            case State.IDLE:  # New, or its backoff is over.
                replacement.subchannel.request_connection()
            case _:
                return

    def _drop_replacement(self) -> None:
        dropped, self._replacement = self._replacement, None
        if dropped is not None:
            dropped.release()

    def _start_pass(self) -> None:
        assert self._selected is None, "a pass selects a candidate, and ends with that"
        indices = () if self._pass is None else self._pass.in_progress
        in_progress = {self._candidates[index] for index in indices}
        self._stop_pass()
        self._replace_candidates()
        candidates = self._candidates
        not_created = len(self._targets) - len(candidates)
        new_pass = Pass(
            [candidate.state for candidate in candidates] + [State.IDLE] * not_created,
            [candidate.index for candidate in candidates if candidate in in_progress],
        )
        actions, self._pass = new_pass.begin(), new_pass
        # If all are still in backoff, there is nothing to report or to request.
        if not (new_pass.is_over and self._phase is Phase.TRANSIENT_FAILURE):
            self._perform(actions)

    def _stop_pass(self) -> None:
        self._pass = None
        if self._actions is not None:
            self._actions.clear()
            self._continue_timer.cancel()
        self._delay_timer.cancel()
        if self._phase is Phase.IDLE:
            self._exit_idle_timer.cancel()

    def _replace_candidates(self) -> None:
        """Create candidates of the first targets, reusing those with the same attributes."""
        before = {candidate.address: candidate for candidate in self._candidates}
        after: list[Candidate] = []
        new = 0
        for index, (address, attributes) in enumerate(self._targets):
            candidate = before.get(address)
            if candidate is None or candidate.attributes != attributes:
                if new == NEW_CANDIDATES_MAX:
                    break
                new += 1
                candidate = self._create_candidate(address, attributes)
            else:
                del before[address]
            candidate.index = index
            after.append(candidate)
        self._candidates = after
        # After the creation: connections that new candidates share stay open.
        self._release(before.values())
        self._drop_replacement()

    def _create_more_candidates(self, current: Pass) -> None:
        """Create candidates of the next targets; `current` assumed that they are IDLE."""
        start = len(self._candidates)
        for address, attributes in self._targets[start : start + NEW_CANDIDATES_MAX]:
            candidate = self._create_candidate(address, attributes)
            candidate.index = len(self._candidates)
            self._candidates.append(candidate)
            if candidate.state is not State.IDLE:
                self._perform(current.on_state(candidate.index, candidate.state))

    def _release(self, candidates: Collection[Candidate]) -> None:
        if candidates:
            job = ActionsJob([candidate.release for candidate in candidates])
            self._helper.context.work.run(job, RELEASE_UNITS)

    def _create_candidate(self, address: Address, attributes: Attributes) -> Candidate:
        subchannel = self._helper.create_subchannel(address, attributes)
        return Candidate(self, address, attributes, subchannel)

    def _perform(self, actions: Iterable[Action] = ()) -> None:
        """Append to the queue of actions and perform it. A loop, so that failures never recurse."""
        pending = self._actions
        if pending is None:
            pending = self._actions = deque(actions)
        else:
            pending += actions
        if self._is_performing:
            return
        self._is_performing = True
        performed = 0
        try:
            while pending and performed < ACTIONS_PER_TURN:
                performed += 1
                self._act(pending.popleft())
        finally:
            self._is_performing = False
            if pending:
                self._continue_timer.cancel()
                self._continue_timer = self._helper.context.clock.call_later(0, self._perform)
            else:
                self._actions = None

    def _act(self, action: Action) -> None:
        match action:
            case Connect(index):
                if index == len(self._candidates):
                    assert self._pass is not None, "a pass connects its candidates"
                    self._create_more_candidates(self._pass)
                if self._candidates[index].state is State.IDLE:
                    self._candidates[index].subchannel.request_connection()
            case Select(index):
                self._select(self._candidates[index])
            case Signal.STARTED:
                self._enter_connecting()
            case Signal.START_DELAY:
                self._start_delay_timer()
            case Signal.STOP_DELAY:
                self._delay_timer.cancel()
            case Signal.ALL_FAILED | Signal.ALL_FAILED_AGAIN:
                self._helper.request_reresolution()
                self._enter(Phase.TRANSIENT_FAILURE, FailPicker(self._describe_failure()))

    def _start_delay_timer(self) -> None:
        self._delay_timer.cancel()
        delay_s = self._settings.delay_s
        if delay_s != NO_OVERLAP_S:
            self._delay_timer = self._helper.context.clock.call_later(delay_s, self._on_delay_over)

    def _on_delay_over(self) -> None:
        assert self._pass is not None, "the timer ends with the pass"
        self._perform(self._pass.on_delay_over())

    def _describe_failure(self) -> Status:
        text = f"failed to connect to all addresses; last error: {self._last_error.details}"
        return Status(StatusCode.UNAVAILABLE, self._settings.annotate(text))

    def on_candidate_state(self, candidate: Candidate, before: State) -> None:
        """Called by a candidate with its initial state and after each change."""
        if self._helper.context.metrics.active:
            self._record_metrics(candidate, before)
        if candidate.state is State.TRANSIENT_FAILURE:
            self._last_error = candidate.error
        if candidate is self._selected:
            self._on_selected_state(candidate.state)
        elif candidate is self._replacement:
            self._on_replacement_state(candidate)
        elif self._pass is not None and self._is_current(candidate):  # noqa: SIM102 - has effects
            if actions := self._pass.on_state(candidate.index, candidate.state):
                self._perform(actions)

    def _record_metrics(self, candidate: Candidate, before: State) -> None:
        from proxyless.lb.policies.pick_first import connection_metrics  # noqa: PLC0415 - seldom

        metrics, after = self._helper.context.metrics, candidate.state
        if candidate is self._selected:
            connection_metrics.record_selected(metrics, before, after)
        elif self._is_attempted(candidate):
            is_eligible = after is State.READY and self._is_eligible(candidate)
            connection_metrics.record_attempted(metrics, before, after, is_eligible=is_eligible)

    def on_candidate_health(self, candidate: Candidate, state: State, error: Status) -> None:
        """Called by a candidate whose health is watched."""
        if candidate is not self._selected:
            return
        match state:
            case State.READY:
                self._enter_ready(candidate)
            case State.TRANSIENT_FAILURE:
                self._enter(Phase.HEALTH_FAILURE, FailPicker(error))
            case _:  # If the connection was lost, a notification of its state follows.
                self._enter_connecting()

    def _is_attempted(self, candidate: Candidate) -> bool:
        return candidate is self._replacement or self._is_current(candidate)

    def _is_eligible(self, candidate: Candidate) -> bool:
        """Whether an attempted candidate is selected when it becomes READY."""
        return self._pass is None or self._pass.is_eligible(candidate.index)

    def _is_current(self, candidate: Candidate) -> bool:
        index = candidate.index
        return index < len(self._candidates) and self._candidates[index] is candidate

    def _select(self, chosen: Candidate) -> None:
        self._stop_pass()
        released, self._candidates = self._candidates, [chosen]
        self._selected = chosen
        if self._settings.has_health_watch:
            chosen.watch_health()
        else:
            self._enter_ready(chosen)
        if released != [chosen]:
            self._release([candidate for candidate in released if candidate is not chosen])

    def _on_selected_state(self, state: State) -> None:
        match state:
            case State.IDLE:
                self._helper.request_reresolution()
                self._enter_idle()
            case State.CONNECTING | State.TRANSIENT_FAILURE:
                # The subchannel reconnects without a request (A105), so the policy is not IDLE.
                self._drop_selected()
                self._enter_connecting()
                self._helper.request_reresolution()
                self._start_pass()
            case _:
                return

    def _drop_selected(self) -> None:
        """Unselect the candidate, which stays in the list, and end its health watch."""
        if self._selected is not None:
            self._selected.end_health_watch()
            self._selected = None

    def _enter_idle(self) -> None:
        self._release_all()
        self._enter(Phase.IDLE, IdlePicker(self._exit_idle_soon))

    def _exit_idle_soon(self) -> None:
        # An old picker may call this in any phase, even after `close`.
        if self._phase is Phase.IDLE and not self._exit_idle_timer.pending:
            clock = self._helper.context.clock
            self._exit_idle_timer = clock.call_later(0, self.exit_idle)

    def _release_all(self) -> None:
        self._stop_pass()
        released, self._candidates, self._selected = self._candidates, [], None
        if len(released) > RELEASED_AT_ONCE_MAX:
            self._release(released)
        else:
            for candidate in released:
                candidate.release()
        self._drop_replacement()

    def _enter_ready(self, selected: Candidate) -> None:
        self._enter(Phase.READY, SubchannelPicker(Complete(selected.subchannel)))

    def _enter_connecting(self) -> None:
        is_selected = self._selected is not None
        # "staying in TRANSIENT_FAILURE until it can report READY" - A62
        if self._phase.state is State.TRANSIENT_FAILURE:
            self._enter(Phase.HEALTH_FAILURE if is_selected else Phase.TRANSIENT_FAILURE)
            return
        is_reported = self._phase.state is State.CONNECTING
        phase = Phase.HEALTH_CONNECTING if is_selected else Phase.CONNECTING
        self._enter(phase, None if is_reported else QUEUE_PICKER)

    def _enter(self, phase: Phase, picker: Picker | None = None) -> None:
        """Set the phase and, if there is a picker, report."""
        assert phase.is_selected is (self._selected is not None), f"wrong in {phase.name}"
        before, self._phase = self._phase, phase
        if picker is None:
            return
        state = phase.state or State.TRANSIENT_FAILURE
        trace = self._helper.context.trace
        if trace.active:
            trace.emit("pick_first.state", before=before.state, after=state, status=picker.status)
        self._helper.update_state(state, picker)


class PickFirstFactory:
    """Factory of pick_first."""

    name: Final = "pick_first"
    create = PickFirstPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> PickFirstConfig:
        if not is_config_enabled():
            return PickFirstConfig()
        fields = JsonObject(json, errors)
        return PickFirstConfig(fields.read_or("shuffleAddressList", BOOLEAN, default=False))
