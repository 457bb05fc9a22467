"""Fakes of the channel for tests of a policy.

`FakeHelper` is the parent of the policy under test; its clock advances only when the test moves it.
The subchannels to one address share a `FakeConnection`, whose state the test sets. All fakes raise
`ConformanceError` if the policy breaks a rule while they are used; `check_policy` checks the rest.

    helper = FakeHelper()
    policy = MyFactory().create(helper)
    policy.update(Update((Endpoint((address("a"),)),), my_config))
    helper.connection("a").become(State.CONNECTING)
    helper.connection("a").become(State.READY)
    assert helper.pick_address() == address("a")
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from proxyless.base import OK, Address, IpAddress, State, Status, StatusCode, Trace
from proxyless.base.frozen import frozen
from proxyless.lb import (
    Complete,
    Context,
    Drop,
    Fail,
    Picker,
    PickInfo,
    PickResult,
    PolicyRegistry,
    Queue,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.policies.weighted_target import WeightedTargetFactory
from proxyless.runtime import Timer, VirtualClock, seeded_random
from proxyless.testing.children import Children
from proxyless.testing.rules import ConformanceError, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.base import Attributes
    from proxyless.lb import Cancel, LoadListener, LoadReport, StateListener

W = TypeVar("W")

# For pickers that do not depend on the RPC.
ANY_RPC: Final = PickInfo("/testing.Service/Method")

# Possible next states of a connection.
CHANGES: Final[dict[State, tuple[State, ...]]] = {
    State.IDLE: (State.CONNECTING,),
    State.CONNECTING: (State.READY, State.TRANSIENT_FAILURE, State.IDLE),
    State.READY: (State.IDLE, State.CONNECTING, State.TRANSIENT_FAILURE),
    State.TRANSIENT_FAILURE: (State.IDLE,),
    State.SHUTDOWN: (),
}

# Limits of the number of reports in one call to the policy. An event may lead to two: an
# intermediate one and the final one.
REPORTS_PER_UPDATE_MAX: Final = 1
REPORTS_PER_EVENT_MAX: Final = 2


@cache
def address(name: str) -> Address:
    """Return the address of a short name: "a" to "z", with "6" for IPv6, or a number."""
    if name.isdigit():
        return IpAddress(f"10.1.{int(name) >> 8}.{int(name) & 255}", 80)
    letter, family = name[0], name[1:]
    if not ("a" <= letter <= "z" and family in {"", "6"}):
        raise ValueError(f"address name {name!r} is not valid: wanted 'a' to 'z', 'a6', or '17'")
    number = ord(letter) - ord("a") + 1
    return IpAddress(f"fd00::{number:x}" if family else f"10.0.0.{number}", 80)


@frozen
class Report:
    """One report of the policy."""

    state: State
    picker: Picker


class FakeConnection:
    """Connection that the subchannels to one address share. The test sets its state."""

    def __init__(self, helper: FakeHelper, at: Address) -> None:
        # Fixed at construction.
        self._helper = helper
        self.address = at
        # Whether another channel uses it, so that it stays open when the policy releases it.
        self.is_shared = False
        # Changed by the test.
        self.state, self.error = State.IDLE, OK
        self.health, self.health_error = State.READY, OK
        # Set by the policy: whether a connection was requested since the last change of state.
        self.is_requested = False
        self.handles: list[FakeSubchannel] = []

    def can_become(self, state: State) -> bool:
        """Whether a real connection could. Without a request, only a shared one leaves IDLE."""
        can_change = self.state is not State.IDLE or self.is_requested or self.is_shared
        return can_change and state in CHANGES[self.state]

    def become(self, state: State, error: Status = OK) -> None:
        """Set the state and notify the watchers."""
        if state is State.TRANSIENT_FAILURE and error.is_ok:
            error = Status(StatusCode.UNAVAILABLE, f"{self.address}: connection refused")
        self.state, self.error = state, error
        self.is_requested = False
        if state is not State.READY:
            self.health, self.health_error = State.READY, OK
        for handle in tuple(self.handles):
            handle.notify_state()

    def set_health(self, state: State, error: Status = OK) -> None:
        """Set the health and notify its watchers."""
        if state is State.TRANSIENT_FAILURE and error.is_ok:
            error = Status(StatusCode.UNAVAILABLE, f"{self.address}: not serving")
        self.health, self.health_error = state, error
        for handle in tuple(self.handles):
            handle.notify_health()

    def report_load(self, report: LoadReport) -> None:
        """Notify the watchers of load reports."""
        for handle in tuple(self.handles):
            handle.notify_load(report)

    def on_release(self, handle: FakeSubchannel) -> None:
        self.handles.remove(handle)
        if not self.handles and not self.is_shared:
            self.state, self.error, self.is_requested = State.IDLE, OK, False
            self.health, self.health_error = State.READY, OK


class FakeSubchannel:
    """Handle of the policy for a connection."""

    def __init__(
        self, helper: FakeHelper, connection: FakeConnection, attributes: Attributes
    ) -> None:
        # Fixed at construction.
        self.helper: Final = helper
        self.connection: Final = connection
        self.attributes: Final = attributes
        # The last state and health that the policy was notified of.
        self.last_state: State | None = None
        self.last_health: State | None = None
        # Changed by the policy.
        self.is_released = False
        self.backoff_resets = 0
        self._listeners: list[StateListener] = []
        self._health_listeners: list[StateListener] = []
        # Interval and listener of each watch of load reports.
        self.load_watches: list[tuple[float, LoadListener]] = []

    @property
    def address(self) -> Address:
        return self.connection.address

    def watch(self, listener: StateListener) -> Cancel:
        self._record_call("watches")
        self._listeners.append(listener)
        self._publish_state(listener)
        return partial(_discard, self._listeners, listener)

    def watch_health(self, listener: StateListener) -> Cancel:
        self._record_call("watches the health of")
        self._health_listeners.append(listener)
        self._publish_health(listener)
        return partial(_discard, self._health_listeners, listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        self._record_call("watches the load of")
        watch = (interval_s, listener)
        self.load_watches.append(watch)
        return partial(_discard, self.load_watches, watch)

    def request_connection(self) -> None:
        self._record_call("requests a connection of")
        if self.connection.state is State.IDLE:
            self.connection.is_requested = True
            self.helper.on_request(self)

    def reset_backoff(self) -> None:
        self._record_call("resets the backoff of")
        self.backoff_resets += 1

    def release(self) -> None:
        self._record_call("releases", is_release=True)
        self.is_released = True
        self._listeners.clear()
        self._health_listeners.clear()
        self.load_watches.clear()
        self.helper.on_release(self)
        self.connection.on_release(self)

    # Called by the connection.

    def notify_state(self) -> None:
        self._notify(self._listeners, self._publish_state)

    def notify_health(self) -> None:
        self._notify(self._health_listeners, self._publish_health)

    def notify_load(self, report: LoadReport) -> None:
        self._notify(self.load_watches, lambda watch: watch[1](report))

    def _notify(self, watches: list[W], publish: Callable[[W], None]) -> None:
        for watch in tuple(watches):
            if watch in watches:
                with self.helper.calling(REPORTS_PER_EVENT_MAX):
                    publish(watch)

    def _publish_state(self, listener: StateListener) -> None:
        self.last_state = self.connection.state
        listener(self.connection.state, self.connection.error)

    def _publish_health(self, listener: StateListener) -> None:
        self.last_health = self.connection.health
        listener(self.connection.health, self.connection.health_error)

    @property
    def is_health_watched(self) -> bool:
        return bool(self._health_listeners)

    def _record_call(self, what: str, *, is_release: bool = False) -> None:
        if self.is_released:
            self.helper.fail(
                Rule.RELEASED_IS_GONE, f"policy {what} {self.address}, which it released"
            )
        self.helper.record_call(f"{what} {self.address}", is_release=is_release)


def _discard(watches: list[W], watch: W) -> None:
    if watch in watches:
        watches.remove(watch)


def default_registry() -> PolicyRegistry:
    factories = (PickFirstFactory, RoundRobinFactory, PriorityFactory, WeightedTargetFactory)
    return PolicyRegistry(factory() for factory in factories)


class FakeHelper:
    """Parent of the policy under test.

    The policy uses it as a `Helper`. The test advances the clock, changes the connections and reads
    the reports.
    """

    def __init__(
        self,
        registry: PolicyRegistry | None = None,
        *,
        rpc: PickInfo = ANY_RPC,
        seed: int = 1,
    ) -> None:
        """Create a helper. The registry has the policies that may be children (`default_registry`).

        `rpc` is the default RPC of picks.
        """
        # Fixed at construction.
        self._rpc = rpc
        self.clock = _PolicyClock(self)
        self.children = Children(self.fail)
        guarded = self.children.guard(registry or default_registry())
        self.context = Context(self.clock, seeded_random(seed), guarded, Trace())
        # Changed by the policy.
        self.reports: list[Report] = []
        self.subchannels: list[FakeSubchannel] = []
        self.reresolutions = 0
        # Addresses of the requested connections, in order.
        self.requests: list[Address] = []
        # Calls and picks in order, to compare two runs.
        self.events: list[str] = []
        # Set by the test: the number of RPCs that are picked with each new picker.
        self.waiting_rpcs = 0
        self._connections: dict[Address, FakeConnection] = {}
        # The first broken rule, because the policy may catch the error.
        self.broken: ConformanceError | None = None
        # The rule that forbids calls now.
        self.forbidden: Rule | None = None
        # The number of reports left in the current call to the policy; None if not limited.
        self._reports_left: int | None = None

    # Called by the policy.

    def create_subchannel(self, address: Address, attributes: Attributes) -> FakeSubchannel:
        self.record_call(f"creates a subchannel to {address}")
        connection = self.connection(address)
        subchannel = FakeSubchannel(self, connection, attributes)
        self.subchannels.append(subchannel)
        connection.handles.append(subchannel)
        return subchannel

    def update_state(self, state: State, picker: Picker) -> None:
        self.record_call(f"reports {state}")
        self._check_report(state, picker.status)
        self.reports.append(Report(state, picker))
        for _ in range(self.waiting_rpcs):
            self.pick()

    def request_reresolution(self) -> None:
        self.record_call("requests re-resolution")
        self.reresolutions += 1

    # Called by the test.

    def connection(self, at: Address | str) -> FakeConnection:
        """Return the connection to an address, given as an `Address` or as its short name."""
        at = address(at) if isinstance(at, str) else at
        if at not in self._connections:
            self._connections[at] = FakeConnection(self, at)
        return self._connections[at]

    @property
    def connections(self) -> tuple[FakeConnection, ...]:
        """Connections that the policy has a subchannel to, the oldest first."""
        return tuple(dict.fromkeys(each.connection for each in self.subchannels))

    @property
    def state(self) -> State | None:
        """Last reported state; None before the first report."""
        return self.reports[-1].state if self.reports else None

    @property
    def picker(self) -> Picker:
        assert self.reports, "policy has not reported anything yet"
        return self.reports[-1].picker

    def pick(self, info: PickInfo | None = None) -> PickResult:
        """Pick with the newest picker, as a channel does."""
        with self.forbidding(Rule.PICKS_CHANGE_NOTHING):
            result = self.picker.pick(info or self._rpc)
        self._check_result(result)
        if isinstance(result, Complete):
            self.events.append(f"picks {result.subchannel.address}")
        return result

    def pick_address(self, info: PickInfo | None = None) -> Address | Status | None:
        """Return the address that the RPC is sent to, its error, or None if it is queued."""
        match self.pick(info):
            case Complete(subchannel):
                return subchannel.address
            case Fail(status) | Drop(status):
                return status
            case Queue():
                return None

    def settle(self) -> None:
        """Run the timers that are due now."""
        self.clock.advance(0)

    # Rules.

    def record_call(self, what: str, *, is_release: bool = False) -> None:
        """Record a call of the policy; raise if it is forbidden now."""
        self.events.append(what)
        rule = self.forbidden
        if rule is not None and not (is_release and rule is Rule.CLOSED):
            self.fail(rule, f"policy {what} {_WHEN[rule]}")

    @contextmanager
    def forbidding(self, rule: Rule) -> Iterator[None]:
        """Forbid calls to the helper inside the block."""
        before, self.forbidden = self.forbidden, rule
        try:
            yield
        finally:
            self.forbidden = before

    @contextmanager
    def calling(self, reports_max: int) -> Iterator[None]:
        """Limit the number of reports inside the block, which calls the policy."""
        before, self._reports_left = self._reports_left, reports_max
        try:
            yield
        finally:
            self._reports_left = before

    def fail(self, rule: Rule, observed: str) -> NoReturn:
        error = ConformanceError(rule, observed)
        self.broken = self.broken or error
        raise error

    def on_request(self, subchannel: FakeSubchannel) -> None:
        """Called for each request of a connection that is IDLE. A subclass may connect here."""
        self.requests.append(subchannel.address)

    def on_release(self, subchannel: FakeSubchannel) -> None:
        self.subchannels.remove(subchannel)

    def _check_report(self, state: State, status: Status) -> None:
        if state is State.SHUTDOWN:
            self.fail(Rule.HONEST_REPORTS, "policy reports SHUTDOWN")
        if (state is State.TRANSIENT_FAILURE) == status.is_ok:
            self.fail(Rule.HONEST_REPORTS, f"policy reports {state} with the status {status}")
        if self._reports_left is None:
            return
        self._reports_left -= 1
        if self._reports_left < 0:
            self.fail(Rule.REPORTS_PER_CALL, f"policy reports {state} once more in the same call")

    def _check_result(self, result: object) -> None:
        match result:
            case Complete(subchannel):
                self._check_complete(subchannel)
            case Fail(status) | Drop(status):
                if status.is_ok:
                    self.fail(Rule.HONEST_REPORTS, "pick fails with the status OK")
            case Queue():
                return
            case _:
                self.fail(Rule.HONEST_REPORTS, f"pick gives {result!r}, which is no result")

    def _check_complete(self, subchannel: object) -> None:
        if not isinstance(subchannel, FakeSubchannel) or subchannel.helper is not self:
            self.fail(Rule.OWN_SUBCHANNELS, f"pick completes on {subchannel!r}")
        at, state, health = subchannel.address, subchannel.last_state, subchannel.last_health
        if subchannel.is_released:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which was released")
        if state is None:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which the policy never watched")
        if state is not State.READY:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which is {state}")
        if health is not None and health is not State.READY:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, the health of which is {health}")


# The time in which a rule forbids calls.
_WHEN: Final = {
    Rule.PICKS_CHANGE_NOTHING: "during a pick",
    Rule.QUIET_BEFORE_UPDATE: "before its first update",
    Rule.CLOSED: "after it was closed",
}


class _PolicyClock(VirtualClock):
    """Clock that limits the reports of a timer callback like those of other calls."""

    def __init__(self, helper: FakeHelper) -> None:
        super().__init__()
        self._helper = helper

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(delay_s, partial(self._fire, callback))

    def _fire(self, callback: Callable[[], None]) -> None:
        with self._helper.calling(REPORTS_PER_EVENT_MAX):
            callback()
