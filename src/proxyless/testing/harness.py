"""Harness: applies steps to one policy, and checks the rules after each.

It acts only as a channel does: by updates, subchannels, picks and the clock. The fakes check the
rules that apply inside a step.

Theory of operation
    Every step ends settled: timers that are due have run. The harness keeps the settled state after
    the previous step, because most rules compare the two.
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import Address, Endpoint, State, Status, StatusCode, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb import Complete, Drop, Endpoints, Fail, PickInfo, PolicyRegistry, Update
from proxyless.lb.policies.per_endpoint.endpoint_list import REMOVED_RETENTION_S
from proxyless.testing.fakes import (
    ANY_RPC,
    REPORTS_PER_EVENT_MAX,
    REPORTS_PER_UPDATE_MAX,
    FakeConnection,
    FakeHelper,
    FakeSubchannel,
)
from proxyless.testing.rules import ConformanceError, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from proxyless.lb import PolicyFactory
    from proxyless.testing.steps import Step

# The time in which a policy must become READY when every attempt succeeds.
RECOVERY_ROUNDS_MAX: Final = 300
RECOVERY_ROUND_S: Final = 1.0
# The number of picks with the newest picker after each step.
PICKS_PER_CHECK_MAX: Final = 32
# The number of old pickers that are used after `close`.
OLD_PICKERS_MAX: Final = 8

FAILURE: Final = State.TRANSIENT_FAILURE

T = TypeVar("T")


class Sticky(Enum):
    """Condition under which TRANSIENT_FAILURE may change to CONNECTING or IDLE."""

    # As in pick_first: only after READY, even if the endpoints change. The failure of an empty list
    # ends with the next endpoints.
    UNTIL_READY = "until READY"
    # As in round_robin, ring_hash and most others: after an update that changes the endpoints.
    UNTIL_UPDATE = "until READY or new endpoints"
    # At any time. A priority policy above then switches back and forth.
    NEVER = "never"


def _identity(endpoint: Endpoint) -> Endpoint:
    return endpoint


@frozen(kw_only=True)
class Traits:
    """Properties of a policy in which policies may differ. The defaults fit most policies."""

    sticky: Sticky = Sticky.UNTIL_UPDATE
    # False for a policy whose endpoints are pushed.
    requests_reresolution: bool = True
    # Whether a rejected update may still be used in part, as by a parent of which only some
    # children rejected it.
    refuses_in_part: bool = False
    # Adds attributes that the policy reads to the endpoints.
    to_endpoint: Callable[[Endpoint], Endpoint] = _identity
    # An RPC that the policy can pick for.
    rpc: PickInfo = ANY_RPC


@frozen
class Subject:
    """Policy under test: factory, config and traits."""

    factory: PolicyFactory
    registry: PolicyRegistry | None
    json: Mapping[str, object] = field(default_factory=dict)
    traits: Traits = Traits()

    def parse(self, registry: PolicyRegistry) -> object:
        errors = ValidationErrors()
        config = self.factory.parse_config(deepcopy(self.json), errors, registry)
        errors.raise_if_any(f"config of {self.factory.name!r}")
        return config


@frozen
class SettledState:
    """State of the policy after a step."""

    state: State | None
    subchannels: tuple[FakeSubchannel, ...]
    reresolutions: int
    # The addresses that picks completed on, if the state was READY.
    picked: frozenset[Address]


class PolicyHarness:
    """Owns one policy from its creation to `close`. Steps call its public methods."""

    def __init__(self, subject: Subject, seed: int) -> None:
        # Fixed at construction.
        self._traits = subject.traits
        self.helper = FakeHelper(subject.registry, rpc=subject.traits.rpc, seed=seed)
        self._config = subject.parse(self.helper.context.registry)
        self._stickiness = _Stickiness(subject.traits.sticky)
        # The list that the policy must use; None before the first update.
        self.endpoints: tuple[Endpoint, ...] | None = None
        # The times at which addresses were removed from the list.
        self._removed_s: dict[Address, float] = {}
        self.is_closed = False
        # The number of re-resolution requests at the last update or READY state.
        self._reresolutions_before = 0
        self._settled = SettledState(None, (), 0, frozenset())
        with self._checking(), self.helper.forbidding(Rule.QUIET_BEFORE_UPDATE):
            self._policy = subject.factory.create(self.helper)
            self._expect_no_timer(Rule.QUIET_BEFORE_UPDATE)

    def take(self, step: Step) -> None:
        """Apply the step; raise ConformanceError if a rule is broken."""
        if not self.is_closed:
            with self._checking():
                step.apply(self)
                self._settle()

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Convert exceptions of the policy into broken rules."""
        try:
            yield
        except ConformanceError:
            raise
        except RecursionError as error:
            raise ConformanceError(Rule.NO_RECURSION, f"policy recurses: {error}") from error
        except Exception as error:
            observed = f"policy raises {type(error).__name__}: {error}"
            raise ConformanceError(Rule.RAISES_NOTHING, observed) from error
        finally:
            # Even if the policy caught the error, or raised another one after it.
            if self.helper.broken is not None:
                raise self.helper.broken

    def resolve(self, endpoints: tuple[Endpoint, ...]) -> None:
        endpoints = tuple(map(self._traits.to_endpoint, endpoints))
        before = self.endpoints
        self._check_reports()
        if endpoints != before:
            self._stickiness.on_new_endpoints(is_first_list=not before)
        self.endpoints = endpoints
        status = self._update(endpoints)
        if not endpoints:
            self._expect_refused(Rule.EMPTY_LIST, status)
            self._expect_failure(Rule.EMPTY_LIST)
        elif not status.is_ok and not self._traits.refuses_in_part:
            self.endpoints = before
            if before:
                self._expect_unchanged()
            else:
                self._expect_failure(Rule.REFUSED_UPDATE)
        self._record_removed(before or ())

    def _record_removed(self, before: tuple[Endpoint, ...]) -> None:
        now_s = self.helper.clock.now_s()
        for address in _addresses_of(before):
            self._removed_s.setdefault(address, now_s)
        for address in _addresses_of(self.endpoints or ()):
            self._removed_s.pop(address, None)

    def resolver_error(self, text: str) -> None:
        status = self._update(Status(StatusCode.UNAVAILABLE, text))
        self._expect_refused(Rule.RESOLVER_ERROR, status)
        if self.endpoints:
            self._expect_unchanged()
            return
        self.endpoints = ()
        self._expect_failure(Rule.RESOLVER_ERROR)
        details = self.helper.picker.status.details
        if text not in details:
            self._fail(Rule.RESOLVER_ERROR, f"RPCs fail with {details!r}, not with {text!r}")

    def _update(self, endpoints: Endpoints) -> Status:
        update = Update(endpoints, self._config)
        status = self._call(lambda: self._policy.update(update), REPORTS_PER_UPDATE_MAX)
        self.helper.settle()
        self._reresolutions_before = self._settled.reresolutions
        if not self.helper.reports:
            self._fail(Rule.REPORTS_PER_CALL, "policy does not report after its first update")
        return status

    def _expect_refused(self, rule: Rule, status: Status) -> None:
        if status.is_ok:
            self._fail(rule, "update gives OK")

    def _expect_failure(self, rule: Rule) -> None:
        if self.helper.state is not FAILURE:
            self._fail(rule, f"policy is {self.helper.state}, wanted {FAILURE}")
        result = self.helper.pick()
        if not isinstance(result, Fail | Drop):
            self._fail(rule, f"pick gives {result}, wanted a failure")

    def _expect_unchanged(self) -> None:
        before, state = self._settled, self.helper.state
        if state is not before.state:
            self._fail(Rule.REFUSED_UPDATE, f"policy goes from {before.state} to {state}")
        if tuple(self.helper.subchannels) != before.subchannels:
            self._fail(Rule.REFUSED_UPDATE, "policy has other subchannels")
        if before.picked and not self._try_picks():
            self._fail(Rule.REFUSED_UPDATE, "no pick completes any more")

    def begin_change(self, names: Iterable[str], state: State) -> None:
        for connection in self._choose_connections(names):
            if connection.can_become(state):
                connection.become(state)

    def _choose_connections(self, names: Iterable[str]) -> Sequence[FakeConnection]:
        return [self.helper.connection(name) for name in names] or self.helper.connections

    def change_connections(self, names: Iterable[str], state: State) -> None:
        changing = self._choose_connections(names)
        is_used = any(
            each.address in self._settled.picked for each in changing if each.can_become(state)
        )
        self.begin_change(names, state)
        self.helper.settle()
        if self.helper.state is State.READY:
            # Before the check of re-resolution: using a lost connection is the worse error.
            self._try_picks()
        if is_used:
            self._expect_reresolution(self._settled.reresolutions, "a connection in use was lost")
        if state is FAILURE and self.helper.state is FAILURE and self._settled.state is not FAILURE:
            self._expect_reresolution(self._reresolutions_before, "every connection has failed")

    def share_connection(self, names: Iterable[str], state: State) -> None:
        for name in names:
            connection = self.helper.connection(name)
            if not connection.handles:
                connection.is_shared = True
                connection.become(state)

    def change_health(self, name: str, state: State) -> None:
        connection = self.helper.connection(name)
        is_watched = any(handle.is_health_watched for handle in connection.handles)
        if is_watched and connection.state is State.READY and connection.health is not state:
            connection.set_health(state)

    def _expect_reresolution(self, before: int, reason: str) -> None:
        if self._traits.requests_reresolution and self.helper.reresolutions <= before:
            self._fail(Rule.RERESOLUTION, f"no re-resolution is requested, though {reason}")

    def begin_picks(self, count: int) -> None:
        if self.helper.reports:
            for _ in range(count):
                self.helper.pick()

    def pick(self, count: int) -> None:
        self.begin_picks(count)
        self._expect_connecting("a pick")

    def queue_rpcs(self, count: int) -> None:
        self.helper.waiting_rpcs = count

    def exit_idle(self) -> None:
        if self.endpoints is not None:
            self._call(self._policy.exit_idle, REPORTS_PER_EVENT_MAX)
            self._expect_connecting("exit_idle")

    def _expect_connecting(self, after: str) -> None:
        """Check that a policy that is still IDLE has requested a connection."""
        self.helper.settle()
        is_requested = any(
            each.is_requested or each.state is not State.IDLE for each in self.helper.connections
        )
        if self._settled.state is self.helper.state is State.IDLE and not is_requested:
            self._fail(Rule.EXIT_IDLE, f"policy is IDLE and requests no connection after {after}")

    def reset_backoff(self) -> None:
        if self.endpoints is None:
            return
        waiting = [each for each in self.helper.subchannels if each.connection.state is FAILURE]
        resets = [each.backoff_resets for each in waiting]
        self._call(self._policy.reset_backoff, REPORTS_PER_EVENT_MAX)
        for subchannel, before in zip(waiting, resets, strict=True):
            if subchannel.backoff_resets == before and not subchannel.is_released:
                self._fail(Rule.RESET_BACKOFF, f"backoff of {subchannel.address} is not reset")

    def advance(self, seconds: float) -> None:
        self.helper.clock.advance(seconds)

    def recover(self) -> None:
        if not self.endpoints:
            return
        for _ in range(RECOVERY_ROUNDS_MAX):
            for connection in self.helper.connections:
                _advance_to_ready(connection)
            self.helper.clock.advance(RECOVERY_ROUND_S)
            if self._try_picks() and self.helper.state is State.READY:
                return
        recovery_s = RECOVERY_ROUNDS_MAX * RECOVERY_ROUND_S
        text = f"policy is {self.helper.state} after {recovery_s:g} s in which attempts succeed"
        self._fail(Rule.RECOVERS, text)

    def close(self) -> None:
        self.is_closed = True
        self.helper.forbidden = Rule.CLOSED
        self._call(self._policy.close, 0)
        for subchannel in self.helper.subchannels:
            self._fail(Rule.CLOSED, f"subchannel to {subchannel.address} is not released")
        for child in self.helper.children.open:
            self._fail(Rule.CLOSED, f"child {child.name!r} is not closed")
        self._expect_no_timer(Rule.CLOSED)
        with self.helper.forbidding(Rule.PICKS_CHANGE_NOTHING):
            for report in self.helper.reports[-OLD_PICKERS_MAX:]:
                report.picker.pick(self._traits.rpc)
        self._expect_no_timer(Rule.CLOSED)

    def _settle(self) -> None:
        if self.is_closed:
            return
        self.helper.settle()
        self._check_reports()
        state = self.helper.state
        picked = self._try_picks() if state is State.READY else frozenset()
        if state is State.READY:
            self._reresolutions_before = self.helper.reresolutions
        self._settled = SettledState(
            state, tuple(self.helper.subchannels), self.helper.reresolutions, picked
        )

    def _check_reports(self) -> None:
        """Check the new reports for stickiness. Called before and after updates."""
        for report in self.helper.reports[self._stickiness.reports_checked :]:
            if not self._stickiness.allows(report.state):
                self._fail(Rule.STICKY_FAILURE, f"policy reports {report.state}")

    def _try_picks(self) -> frozenset[Address]:
        """Pick several times, and return the addresses. All notifications have been delivered."""
        picked: set[Address] = set()
        for _ in range(min(2 * len(self.helper.subchannels) + 2, PICKS_PER_CHECK_MAX)):
            result = self.helper.pick()
            if isinstance(result, Complete):
                self._expect_usable(result.subchannel.address)
                picked.add(result.subchannel.address)
        self._expect_listed(picked)
        return frozenset(picked)

    def _expect_listed(self, picked: set[Address]) -> None:
        listed = _addresses_of(self.endpoints or ())
        oldest_s = self.helper.clock.now_s() - REMOVED_RETENTION_S
        for address in picked - listed:
            is_recent = self._removed_s.get(address, -inf) > oldest_s
            if not is_recent or picked & listed:
                self._fail(Rule.LISTED_PICKS, f"pick completes on {address}, which is not listed")

    def _expect_usable(self, picked: Address) -> None:
        # The state of the connection: the policy may have cancelled its watch.
        state = self.helper.connection(picked).state
        if state is not State.READY:
            self._fail(Rule.READY_PICKS, f"pick completes on {picked}, which is {state}")

    def _expect_no_timer(self, rule: Rule) -> None:
        if self.helper.clock.timers_pending:
            self._fail(rule, f"{self.helper.clock.timers_pending} timers are pending")

    def _call(self, call: Callable[[], T], reports_max: int) -> T:
        with self.helper.calling(reports_max):
            return call()

    def _fail(self, rule: Rule, observed: str) -> None:
        self.helper.fail(rule, observed)


class _Stickiness:
    """Decides whether a policy in TRANSIENT_FAILURE may report another state."""

    def __init__(self, sticky: Sticky) -> None:
        self._sticky = sticky
        self._is_failing = False
        self._may_leave = False
        self.reports_checked = 0

    def on_new_endpoints(self, *, is_first_list: bool) -> None:
        if is_first_list or self._sticky is not Sticky.UNTIL_READY:
            self._may_leave = True

    def allows(self, state: State) -> bool:
        self.reports_checked += 1
        is_stuck = self._is_failing and not self._may_leave and self._sticky is not Sticky.NEVER
        self._is_failing = state is FAILURE
        if self._is_failing:
            self._may_leave = False
        return not is_stuck or state in {State.READY, FAILURE}


def _addresses_of(endpoints: tuple[Endpoint, ...]) -> set[Address]:
    return {address for endpoint in endpoints for address in endpoint.addresses}


def _advance_to_ready(connection: FakeConnection) -> None:
    """Move the connection one state closer to READY."""
    if connection.health is not State.READY:
        connection.set_health(State.READY)
    match connection.state:
        case State.IDLE if connection.is_requested:
            connection.become(State.CONNECTING)
        case State.CONNECTING:
            connection.become(State.READY)
        case State.TRANSIENT_FAILURE:
            connection.become(State.IDLE)
        case _:
            return
