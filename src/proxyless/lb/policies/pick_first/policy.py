"""The `pick_first` policy: the first address that can be reached takes all RPCs.

Specs: A62 (sticky TRANSIENT_FAILURE, shuffling), A61 (Happy Eyeballs; health watch for parents that
have one of these per endpoint).

`happy_eyeballs` decides which address is tried when; this module is the policy around it.

Theory of operation
    `Phase` is the state of the policy, `_enter` its one setter. A pass has one subchannel per
    address, called candidates; it is CONNECTING, and when all have failed TRANSIENT_FAILURE, which
    is sticky: "until it can report READY" - A62. Candidates are connected again and again, with no
    RPC needed. When one is READY it is selected and the others are released. When the connection
    of the selected one is lost the policy is IDLE, and a pick or `exit_idle` starts a pass.

    A selected address that gets other attributes is renewed: it needs another connection for them.
    The selected one serves until that is READY, and is then replaced.

Invariants
    A candidate is selected exactly in the phases with `is_selected`; it is then the only one.
    A pass is under way exactly in CONNECTING and TRANSIENT_FAILURE.
    There is no candidate in NO_ADDRESSES, IDLE and SHUTDOWN.
    A renewed candidate exists only beside a selected one.
"""

from collections import deque
from collections.abc import Iterable, Mapping
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
from proxyless.lb.api import Complete, Helper, Picker, Policy, PolicyRegistry, Update
from proxyless.lb.attributes import is_other_way_only
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, IdlePicker, SubchannelPicker
from proxyless.lb.policies.pick_first.candidate import Candidate
from proxyless.lb.policies.pick_first.config import (
    NO_SETTINGS,
    PickFirstConfig,
    parse_config,
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
from proxyless.lb.view import LbNode
from proxyless.metrics.instruments import (
    PICK_FIRST_ATTEMPTS_FAILED,
    PICK_FIRST_ATTEMPTS_SUCCEEDED,
    PICK_FIRST_DISCONNECTIONS,
)
from proxyless.runtime import IDLE_TIMER

EMPTY_ADDRESS_LIST: Final = "empty address list"

_NEVER_TRIED: Final = Status(StatusCode.UNAVAILABLE, "not tried yet")


class Phase(Enum):
    """State of the policy: what it does, and the connectivity state that it reports."""

    # Reported as TRANSIENT_FAILURE, which is not about an address: the next ones may be CONNECTING.
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


class PickFirst:
    """The policy: owns the subchannels and the delay timer; `Pass` decides.

    Called by its parent, the subchannels, the delay timer, and picks while it is IDLE.
    """

    __slots__ = (
        "_candidates",
        "_delay_timer",
        "_helper",
        "_last_error",
        "_pass",
        "_phase",
        "_renewed",
        "_selected",
        "_settings",
        "_targets",
        "_todo",
        "_wake_timer",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # From the last update, or from the last one that had endpoints.
        self._settings = NO_SETTINGS
        self._targets: tuple[Target, ...] = ()
        # Changed by `_enter` only.
        self._phase = Phase.NO_ADDRESSES
        # In a pass: one candidate per target. Later: at most one, selected.
        self._pass: Pass | None = None
        self._candidates: list[Candidate] = []
        self._selected: Candidate | None = None
        # Only beside a selected one, which it is to replace.
        self._renewed: Candidate | None = None
        self._last_error = _NEVER_TRIED
        # Actions of the pass that are still to be done, while some are being done.
        self._todo: deque[Action] | None = None
        self._delay_timer = IDLE_TIMER
        self._wake_timer = IDLE_TIMER

    def update(self, update: Update) -> Status:
        self._settings = read_settings(update)
        if isinstance(update.endpoints, Status):
            return self._on_resolver_error(update.endpoints)
        config = update.config
        assert isinstance(config, PickFirstConfig), "the config is one of ours"
        endpoints: Iterable[Endpoint] = update.endpoints
        if config.shuffle_address_list:
            endpoints = list(endpoints)
            self._helper.context.random.shuffle(endpoints)
        targets = order_addresses(endpoints)
        if not targets:
            return self._on_empty_list()
        # Nothing new: above all, attempts under way are not started over.
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
        if self._renewed is not None:
            self._renewed.subchannel.reset_backoff()

    def close(self) -> None:
        self._release_all()
        self._enter(Phase.SHUTDOWN)

    def describe(self) -> LbNode:
        children = tuple(candidate.describe() for candidate in self._candidates)
        state = self._phase.state
        if state is None:
            # Only the report has the reason.
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

    # Updates.

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
            self._go_idle()
        elif attributes == self._selected.attributes:
            self._drop_renewed()
        elif self._renewed is None or attributes != self._renewed.attributes:
            self._renew(self._selected, attributes)

    def _renew(self, selected: Candidate, attributes: Attributes) -> None:
        """Let those above know the new attributes, without a time without a connection."""
        self._drop_renewed()
        renewed = self._create_candidate(selected.address, attributes)
        if renewed.state is State.READY:
            self._select(renewed)
        elif is_other_way_only(selected.attributes, attributes):
            renewed.subchannel.release()
        else:
            self._renewed = renewed
            self._on_renewed_state(renewed)

    def _on_renewed_state(self, renewed: Candidate) -> None:
        match renewed.state:
            case State.READY:
                self._renewed = None
                self._select(renewed)
            case State.IDLE:  # New, or its backoff is over.
                renewed.subchannel.request_connection()
            case _:
                return

    def _drop_renewed(self) -> None:
        dropped, self._renewed = self._renewed, None
        if dropped is not None:
            dropped.subchannel.release()

    # The pass.

    def _start_pass(self) -> None:
        assert self._selected is None, "a pass selects a candidate, and ends with that"
        indices = () if self._pass is None else self._pass.under_way
        under_way = {self._candidates[index] for index in indices}
        self._stop_pass()
        self._replace_candidates()
        candidates = self._candidates
        new_pass = Pass(
            [candidate.state for candidate in candidates],
            [candidate.index for candidate in candidates if candidate in under_way],
        )
        actions = new_pass.begin()
        self._pass = new_pass
        # All wait for their next attempt, as they did before: nothing to report or to request.
        if not (new_pass.is_over and self._phase is Phase.TRANSIENT_FAILURE):
            self._perform(actions)

    def _stop_pass(self) -> None:
        self._pass = None
        if self._todo is not None:
            self._todo.clear()
        self._delay_timer.cancel()
        self._wake_timer.cancel()

    def _replace_candidates(self) -> None:
        """Have one candidate per target, keeping those that fit."""
        before = {candidate.address: candidate for candidate in self._candidates}
        after: list[Candidate] = []
        for index, (address, attributes) in enumerate(self._targets):
            candidate = before.get(address)
            if candidate is None or candidate.attributes != attributes:
                candidate = self._create_candidate(address, attributes)
            else:
                del before[address]
            candidate.index = index
            after.append(candidate)
        self._candidates = after
        # Not earlier: a connection that one of the new ones shares has to survive.
        for candidate in before.values():
            candidate.subchannel.release()
        self._drop_renewed()

    def _create_candidate(self, address: Address, attributes: Attributes) -> Candidate:
        subchannel = self._helper.create_subchannel(address, attributes)
        return Candidate(self, address, attributes, subchannel)

    def _perform(self, actions: Iterable[Action]) -> None:
        """Do these after those that are being done: a loop, however fast addresses fail."""
        if self._todo is not None:
            self._todo.extend(actions)
            return
        todo = self._todo = deque(actions)
        try:
            while todo:
                self._act(todo.popleft())
        finally:
            self._todo = None

    def _act(self, action: Action) -> None:
        match action:
            case Connect(index):
                self._candidates[index].subchannel.request_connection()
            case Select(index):
                self._select(self._candidates[index])
            case Signal.BEGUN:
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

    # Candidates, the selected one among them.

    def on_candidate_state(self, candidate: Candidate, before: State) -> None:
        """A candidate has changed its state, or tells its first one."""
        if self._helper.context.metrics.active:
            self._measure(candidate, before)
        if candidate.state is State.TRANSIENT_FAILURE:
            self._last_error = candidate.error
        if candidate is self._selected:
            self._on_selected_state(candidate.state)
        elif candidate is self._renewed:
            self._on_renewed_state(candidate)
        elif self._pass is not None and self._is_current(candidate):
            self._perform(self._pass.on_state(candidate.index, candidate.state))

    def _measure(self, candidate: Candidate, before: State) -> None:
        """Count what this change is to the channel: others may share the subchannel (A78)."""
        metrics = self._helper.context.metrics
        if candidate is self._selected:
            if before is State.READY and candidate.state is not State.READY:
                metrics.count(PICK_FIRST_DISCONNECTIONS, (metrics.target,))
        elif before is State.CONNECTING and self._is_wanted(candidate):
            if candidate.state is State.TRANSIENT_FAILURE:
                metrics.count(PICK_FIRST_ATTEMPTS_FAILED, (metrics.target,))
            elif candidate.state is State.READY and self._is_awaited(candidate):
                metrics.count(PICK_FIRST_ATTEMPTS_SUCCEEDED, (metrics.target,))

    def on_candidate_health(self, candidate: Candidate, state: State, error: Status) -> None:
        """The health of the selected candidate is this now."""
        if candidate is not self._selected:
            return
        match state:
            case State.READY:
                self._enter_ready(candidate)
            case State.TRANSIENT_FAILURE:
                self._enter(Phase.HEALTH_FAILURE, FailPicker(error))
            case _:  # If its connection is lost, its own state is about to say so.
                self._enter_connecting()

    def _is_wanted(self, candidate: Candidate) -> bool:
        return candidate is self._renewed or self._is_current(candidate)

    def _is_awaited(self, candidate: Candidate) -> bool:
        """Whether a wanted candidate is selected when it is READY. Others wait for their turn."""
        return self._pass is None or self._pass.is_awaited(candidate.index)

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
        for candidate in released:
            if candidate is not chosen:
                candidate.subchannel.release()

    def _on_selected_state(self, state: State) -> None:
        match state:
            case State.IDLE:
                self._helper.request_reresolution()
                self._go_idle()
            case State.CONNECTING | State.TRANSIENT_FAILURE:
                # It disconnects and connects by itself (A105): no reason to be IDLE.
                self._drop_selected()
                self._enter_connecting()
                self._helper.request_reresolution()
                self._start_pass()
            case _:
                return

    def _drop_selected(self) -> None:
        """It stays a candidate. If it is selected again, its health is asked for again, too."""
        if self._selected is not None:
            self._selected.end_health_watch()
            self._selected = None

    def _go_idle(self) -> None:
        self._release_all()
        self._enter(Phase.IDLE, IdlePicker(self._wake_soon))

    def _wake_soon(self) -> None:
        # Not after close: the picker may outlive the policy.
        if self._phase is Phase.IDLE and not self._wake_timer.pending:
            self._wake_timer = self._helper.context.clock.call_later(0, self.exit_idle)

    def _release_all(self) -> None:
        self._stop_pass()
        released, self._candidates, self._selected = self._candidates, [], None
        for candidate in released:
            candidate.subchannel.release()
        self._drop_renewed()

    # Phases.

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
        """Change the phase; with a picker, report its state."""
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
    """Factory of pick_first for the registry of policies."""

    name: Final = "pick_first"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> PickFirstConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return PickFirst(helper)
