"""The first address that can be reached takes all RPCs.

Specs: A62 (sticky TRANSIENT_FAILURE, shuffling), A61 (Happy Eyeballs; health watch for parents that
have one of these per endpoint).

Which address is tried when is decided in `happy_eyeballs`; this is the policy around it.

Theory of operation
    Without endpoints: TRANSIENT_FAILURE, until there are some.
    IDLE: there is a list, but no subchannel. A pick or `exit_idle` starts a pass.
    In a pass: one subchannel per address, called candidates. CONNECTING, and when all have
    failed TRANSIENT_FAILURE, which sticks: "until it can report READY" - A62. Candidates are
    connected again and again, with no RPC needed.
    Selected: one subchannel is left. READY, or what its health watch says. When its connection is
    lost, IDLE.
    Renewed: the selected address has got other attributes, and needs another connection for them.
    The selected one serves until that is READY, and is then replaced.
"""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from proxyless.base import (
    OK,
    Address,
    Attributes,
    Endpoint,
    Key,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, JsonObject
from proxyless.lb.api import Complete, Helper, Picker, Policy, PolicyRegistry, Update
from proxyless.lb.attributes import HEALTH_WATCH, is_other_way_only
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, IdlePicker, SubchannelPicker
from proxyless.lb.policies.pick_first.candidate import Candidate
from proxyless.lb.policies.pick_first.happy_eyeballs import (
    NO_OVERLAP_S,
    Action,
    Connect,
    Pass,
    Select,
    Signal,
    Target,
    attempt_delay_s,
    order_addresses,
)
from proxyless.lb.view import LbNode
from proxyless.metrics.instruments import (
    PICK_FIRST_ATTEMPTS_FAILED,
    PICK_FIRST_ATTEMPTS_SUCCEEDED,
    PICK_FIRST_DISCONNECTIONS,
)
from proxyless.runtime import IDLE_TIMER

# Attributes of an update. Seconds; NO_OVERLAP_S tries one address at a time.
CONNECTION_ATTEMPT_DELAY: Final = Key[float]("connection_attempt_delay_s")

EMPTY_ADDRESS_LIST: Final = "empty address list"

CONFIG_GUARD: Final = "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG"


# ---------------------------------------------------------------------------------------------
# Config


@frozen
class PickFirstConfig:
    """Whether each received list of endpoints is brought into a random order."""

    shuffle_address_list: bool = False


def is_config_enabled() -> bool:
    """Whether pick_first may be configured (A62), by the environment as it is now."""
    return read_flag(os.environ, CONFIG_GUARD, default=True)


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> PickFirstConfig:
    if not is_config_enabled():
        return PickFirstConfig()
    fields = JsonObject(json, errors)
    return PickFirstConfig(fields.read_or("shuffleAddressList", BOOLEAN, default=False))


@frozen
class _Settings:
    """What an update says besides endpoints and config."""

    delay_s: float
    has_health_watch: bool
    resolution_note: str

    def annotate(self, text: str) -> str:
        return f"{text} ({self.resolution_note})" if self.resolution_note else text


def _read_settings(update: Update) -> _Settings:
    return _Settings(
        delay_s=attempt_delay_s(update.attributes.get(CONNECTION_ATTEMPT_DELAY)),
        has_health_watch=update.attributes.get(HEALTH_WATCH) or False,
        resolution_note=update.resolution_note,
    )


_NO_SETTINGS: Final = _Settings(NO_OVERLAP_S, has_health_watch=False, resolution_note="")
_NEVER_TRIED: Final = Status(StatusCode.UNAVAILABLE, "not tried yet")


# ---------------------------------------------------------------------------------------------
# Policy


class PickFirst:
    """Owns the subchannels and the delay timer; `Pass` decides.

    Driven by its parent, the subchannels, the delay timer, and picks while it is IDLE.
    """

    __slots__ = (
        "_candidates",
        "_delay_timer",
        "_helper",
        "_last_error",
        "_pass",
        "_renewed",
        "_selected",
        "_settings",
        "_state",
        "_targets",
        "_todo",
        "_wake_timer",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # From the last update, or from the last one that had endpoints.
        self._settings = _NO_SETTINGS
        self._targets: tuple[Target, ...] = ()
        # What was last reported about these targets; None if nothing was.
        self._state: State | None = None
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
        self._settings = _read_settings(update)
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
        if self._state is State.IDLE:
            self._start_pass()

    def reset_backoff(self) -> None:
        for candidate in self._candidates:
            candidate.subchannel.reset_backoff()
        if self._renewed is not None:
            self._renewed.subchannel.reset_backoff()

    def close(self) -> None:
        self._release_all()
        self._state = State.SHUTDOWN

    def describe(self) -> LbNode:
        children = tuple(candidate.describe() for candidate in self._candidates)
        match self._state:
            case None:
                # Only the report knew why.
                return LbNode()
            case State.IDLE:
                detail = f"connects when an RPC comes, to one of {len(self._targets)} addresses"
            case State.TRANSIENT_FAILURE if self._selected is None:
                detail = self._describe_failure().details
            case State.TRANSIENT_FAILURE if self._selected is not None:
                detail = self._selected.health_error.details
            case _:
                detail = ""
        return LbNode(state=self._state.name, detail=detail, children=children)

    # Updates.

    def _on_resolver_error(self, error: Status) -> Status:
        if not self._targets:
            self._fail_for_want_of_targets(error)
        return error

    def _on_empty_list(self) -> Status:
        error = Status(StatusCode.UNAVAILABLE, self._settings.annotate(EMPTY_ADDRESS_LIST))
        self._targets = ()
        self._release_all()
        self._fail_for_want_of_targets(error)
        return error

    def _fail_for_want_of_targets(self, error: Status) -> None:
        self._report(State.TRANSIENT_FAILURE, FailPicker(error))
        # This failure is not about any target, so it does not stick to the next ones.
        self._state = None

    def _on_targets(self) -> None:
        if self._state is State.IDLE:
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
        # All are waiting for their next attempt, as they were before: nothing to say or to ask.
        if not (new_pass.is_over and self._state is State.TRANSIENT_FAILURE):
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
                self._report_connecting()
            case Signal.START_DELAY:
                self._start_delay_timer()
            case Signal.STOP_DELAY:
                self._delay_timer.cancel()
            case Signal.ALL_FAILED | Signal.ALL_FAILED_AGAIN:
                self._helper.request_reresolution()
                self._report(State.TRANSIENT_FAILURE, FailPicker(self._describe_failure()))

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
                self._report_ready(candidate)
            case State.TRANSIENT_FAILURE:
                self._report(State.TRANSIENT_FAILURE, FailPicker(error))
            case _:  # If its connection is lost, its own state is about to say so.
                self._report_connecting()

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
            self._report_ready(chosen)
        for candidate in released:
            if candidate is not chosen:
                candidate.subchannel.release()

    def _on_selected_state(self, state: State) -> None:
        match state:
            case State.IDLE:
                self._helper.request_reresolution()
                self._go_idle()
            case State.CONNECTING | State.TRANSIENT_FAILURE:
                # It disconnects and goes on by itself (A105), so this is no reason to rest.
                self._drop_selected()
                self._report_connecting()
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
        self._report(State.IDLE, IdlePicker(self._wake_soon))

    def _wake_soon(self) -> None:
        # Not after close: the picker may outlive the policy.
        if self._state is State.IDLE and not self._wake_timer.pending:
            self._wake_timer = self._helper.context.clock.call_later(0, self.exit_idle)

    def _release_all(self) -> None:
        self._stop_pass()
        released, self._candidates, self._selected = self._candidates, [], None
        for candidate in released:
            candidate.subchannel.release()
        self._drop_renewed()

    # Reports.

    def _report_ready(self, selected: Candidate) -> None:
        self._report(State.READY, SubchannelPicker(Complete(selected.subchannel)))

    def _report_connecting(self) -> None:
        # "staying in TRANSIENT_FAILURE until it can report READY" - A62
        if self._state not in {State.CONNECTING, State.TRANSIENT_FAILURE}:
            self._report(State.CONNECTING, QUEUE_PICKER)

    def _report(self, state: State, picker: Picker) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit("pick_first.state", before=self._state, after=state, status=picker.status)
        self._state = state
        self._helper.update_state(state, picker)


class PickFirstFactory:
    """What the registry knows of pick_first."""

    name: Final = "pick_first"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> PickFirstConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return PickFirst(helper)
