"""What does a test put in place of a channel?

`FakeHelper` is the parent of the policy under test, with a clock that stands still until the test
moves it. Behind the subchannels it makes, there is one `FakeConnection` per address, whose states
the test sets. All of them hold the policy to its contract while they are used, and raise
`ConformanceError`; `check_policy` drives them through everything else.

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

# For pickers that do not look at the RPC.
ANY_RPC: Final = PickInfo("/testing.Service/Method")

# What a connection may become next: by itself, or for others who share it.
CHANGES: Final[dict[State, tuple[State, ...]]] = {
    State.IDLE: (State.CONNECTING,),
    State.CONNECTING: (State.READY, State.TRANSIENT_FAILURE, State.IDLE),
    State.READY: (State.IDLE, State.CONNECTING, State.TRANSIENT_FAILURE),
    State.TRANSIENT_FAILURE: (State.IDLE,),
    State.SHUTDOWN: (),
}

# How often a policy may report in one call to it: what was true on the way, and what is true.
REPORTS_PER_UPDATE_MAX: Final = 1
REPORTS_PER_EVENT_MAX: Final = 2


@cache
def address(name: str) -> Address:
    """An address by a short name: "a" to "z", the same with "6" for IPv6, or a number."""
    if name.isdigit():
        return IpAddress(f"10.1.{int(name) >> 8}.{int(name) & 255}", 80)
    letter, family = name[0], name[1:]
    if not ("a" <= letter <= "z" and family in {"", "6"}):
        raise ValueError(f"address name {name!r} is not valid: wanted 'a' to 'z', 'a6', or '17'")
    number = ord(letter) - ord("a") + 1
    return IpAddress(f"fd00::{number:x}" if family else f"10.0.0.{number}", 80)


@frozen
class Report:
    """What the policy told its parent once."""

    state: State
    picker: Picker


class FakeConnection:
    """What the subchannels to one address share. Driven by the test."""

    def __init__(self, helper: FakeHelper, at: Address) -> None:
        # Fixed at construction.
        self._helper = helper
        self.address = at
        # Whether somebody else uses it, so that it lives on when the policy releases it.
        self.is_shared = False
        # Changed by the test.
        self.state, self.error = State.IDLE, OK
        self.health, self.health_error = State.READY, OK
        # Changed by the policy: whether a connection was requested since the last change.
        self.is_requested = False
        self.handles: list[FakeSubchannel] = []

    def can_become(self, state: State) -> bool:
        """Whether a real one could: without a request, only one that is shared leaves IDLE."""
        is_wanted = self.state is not State.IDLE or self.is_requested or self.is_shared
        return is_wanted and state in CHANGES[self.state]

    def become(self, state: State, error: Status = OK) -> None:
        """Be in this state from now on, and tell everybody who watches."""
        if state is State.TRANSIENT_FAILURE and error.is_ok:
            error = Status(StatusCode.UNAVAILABLE, f"{self.address}: connection refused")
        self.state, self.error = state, error
        self.is_requested = False
        if state is not State.READY:
            self.health, self.health_error = State.READY, OK
        for handle in tuple(self.handles):
            handle.tell_state()

    def set_health(self, state: State, error: Status = OK) -> None:
        """Let this be its health from now on, and tell everybody who watches that."""
        if state is State.TRANSIENT_FAILURE and error.is_ok:
            error = Status(StatusCode.UNAVAILABLE, f"{self.address}: not serving")
        self.health, self.health_error = state, error
        for handle in tuple(self.handles):
            handle.tell_health()

    def report_load(self, report: LoadReport) -> None:
        """Let the backend report its load to everybody who watches it."""
        for handle in tuple(self.handles):
            handle.tell_load(report)

    def on_release(self, handle: FakeSubchannel) -> None:
        self.handles.remove(handle)
        if not self.handles and not self.is_shared:
            self.state, self.error, self.is_requested = State.IDLE, OK, False
            self.health, self.health_error = State.READY, OK


class FakeSubchannel:
    """One handle of a connection. Driven by the policy and the connection."""

    def __init__(
        self, helper: FakeHelper, connection: FakeConnection, attributes: Attributes
    ) -> None:
        # Fixed at construction.
        self.helper: Final = helper
        self.connection: Final = connection
        self.attributes: Final = attributes
        # What the policy knows.
        self.told: State | None = None
        self.told_health: State | None = None
        # Changed by the policy.
        self.is_released = False
        self.backoff_resets = 0
        self._listeners: list[StateListener] = []
        self._health_listeners: list[StateListener] = []
        # How often each watch of the load wants reports, and who gets them.
        self.load_watches: list[tuple[float, LoadListener]] = []

    @property
    def address(self) -> Address:
        return self.connection.address

    def watch(self, listener: StateListener) -> Cancel:
        self._allow("watches")
        self._listeners.append(listener)
        self.told = self.connection.state
        listener(self.connection.state, self.connection.error)
        return partial(_discard, self._listeners, listener)

    def watch_health(self, listener: StateListener) -> Cancel:
        self._allow("watches the health of")
        self._health_listeners.append(listener)
        self.told_health = self.connection.health
        listener(self.connection.health, self.connection.health_error)
        return partial(_discard, self._health_listeners, listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        self._allow("watches the load of")
        watch = (interval_s, listener)
        self.load_watches.append(watch)
        return partial(_discard, self.load_watches, watch)

    def request_connection(self) -> None:
        self._allow("requests a connection of")
        if self.connection.state is State.IDLE:
            self.connection.is_requested = True

    def reset_backoff(self) -> None:
        self._allow("resets the backoff of")
        self.backoff_resets += 1

    def release(self) -> None:
        self._allow("releases", is_release=True)
        self.is_released = True
        self._listeners.clear()
        self._health_listeners.clear()
        self.load_watches.clear()
        self.helper.on_release(self)
        self.connection.on_release(self)

    def tell_state(self) -> None:
        """For the connection: it has changed."""
        for listener in tuple(self._listeners):
            if listener in self._listeners:
                self.told = self.connection.state
                with self.helper.calling(REPORTS_PER_EVENT_MAX):
                    listener(self.connection.state, self.connection.error)

    def tell_health(self) -> None:
        """For the connection: its health has changed."""
        for listener in tuple(self._health_listeners):
            if listener in self._health_listeners:
                self.told_health = self.connection.health
                with self.helper.calling(REPORTS_PER_EVENT_MAX):
                    listener(self.connection.health, self.connection.health_error)

    def tell_load(self, report: LoadReport) -> None:
        """For the connection: the backend reports its load."""
        for watch in tuple(self.load_watches):
            if watch in self.load_watches:
                with self.helper.calling(REPORTS_PER_EVENT_MAX):
                    watch[1](report)

    @property
    def is_health_watched(self) -> bool:
        return bool(self._health_listeners)

    def _allow(self, what: str, *, is_release: bool = False) -> None:
        if self.is_released:
            self.helper.fail(
                Rule.RELEASED_IS_GONE, f"policy {what} {self.address}, which it released"
            )
        self.helper.allow(f"{what} {self.address}", is_release=is_release)


def _discard(watches: list[W], watch: W) -> None:
    if watch in watches:
        watches.remove(watch)


def usual_children() -> PolicyRegistry:
    """The policies that others are made of."""
    factories = (
        PickFirstFactory(),
        RoundRobinFactory(),
        PriorityFactory(),
        WeightedTargetFactory(),
    )
    return PolicyRegistry(factories)


class FakeHelper:
    """The parent of the policy under test, and everything around it.

    Driven by the policy, as a `Helper`, and by the test, which moves the clock, changes
    connections and looks at what was reported.
    """

    def __init__(
        self,
        registry: PolicyRegistry | None = None,
        *,
        rpc: PickInfo = ANY_RPC,
        seed: int = 1,
    ) -> None:
        """The registry has the policies that may be children; if None, `usual_children`.

        The RPC is the one that is picked for, unless another one is given.
        """
        known = registry or usual_children()
        # Fixed at construction.
        self._rpc = rpc
        self.clock = _PolicyClock(self)
        self.children = Children(self.fail)
        self.context = Context(self.clock, seeded_random(seed), self.children.guard(known), Trace())
        # Changed by the policy.
        self.reports: list[Report] = []
        self.subchannels: list[FakeSubchannel] = []
        self.reresolutions = 0
        # All that was seen from outside, in order; equal in two runs that are the same.
        self.events: list[str] = []
        # Changed by the test: how many RPCs are picked for as soon as there is a new picker.
        self.waiting_rpcs = 0
        self._connections: dict[Address, FakeConnection] = {}
        # The first rule that was broken: a policy may swallow what we raise.
        self.broken: ConformanceError | None = None
        # The rule that forbids to call us now.
        self.forbidden: Rule | None = None
        # How often the policy may still report in this call to it; None if that is not counted.
        self._reports_left: int | None = None

    # What the policy calls.

    def create_subchannel(self, address: Address, attributes: Attributes) -> FakeSubchannel:
        self.allow(f"creates a subchannel to {address}")
        connection = self.connection(address)
        subchannel = FakeSubchannel(self, connection, attributes)
        self.subchannels.append(subchannel)
        connection.handles.append(subchannel)
        return subchannel

    def update_state(self, state: State, picker: Picker) -> None:
        self.allow(f"reports {state}")
        self._check_report(state, picker.status)
        self.reports.append(Report(state, picker))
        for _ in range(self.waiting_rpcs):
            self.pick()

    def request_reresolution(self) -> None:
        self.allow("requests re-resolution")
        self.reresolutions += 1

    # What the test does.

    def connection(self, at: Address | str) -> FakeConnection:
        """What is behind the subchannels to this address. A name is short for an address."""
        at = address(at) if isinstance(at, str) else at
        if at not in self._connections:
            self._connections[at] = FakeConnection(self, at)
        return self._connections[at]

    @property
    def connections(self) -> tuple[FakeConnection, ...]:
        """Those that the policy has a subchannel to, the oldest first."""
        return tuple(dict.fromkeys(each.connection for each in self.subchannels))

    @property
    def state(self) -> State | None:
        """What was reported last; None before the first report."""
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
        """Where an RPC goes, or why it fails; None if it has to wait."""
        match self.pick(info):
            case Complete(subchannel):
                return subchannel.address
            case Fail(status) | Drop(status):
                return status
            case Queue():
                return None

    def settle(self) -> None:
        """Let happen what is to happen soon."""
        self.clock.advance(0)

    # The contract.

    def allow(self, what: str, *, is_release: bool = False) -> None:
        """Note that the policy calls; raise if it may not do so now."""
        self.events.append(what)
        rule = self.forbidden
        if rule is not None and not (is_release and rule is Rule.CLOSED):
            self.fail(rule, f"policy {what} {_WHEN[rule]}")

    @contextmanager
    def forbidding(self, rule: Rule) -> Iterator[None]:
        """Nobody may call the helper meanwhile."""
        before, self.forbidden = self.forbidden, rule
        try:
            yield
        finally:
            self.forbidden = before

    @contextmanager
    def calling(self, reports_max: int) -> Iterator[None]:
        """The policy is called meanwhile, and may report this often."""
        before, self._reports_left = self._reports_left, reports_max
        try:
            yield
        finally:
            self._reports_left = before

    def fail(self, rule: Rule, seen: str) -> NoReturn:
        error = ConformanceError(rule, seen)
        self.broken = self.broken or error
        raise error

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
        at, told, health = subchannel.address, subchannel.told, subchannel.told_health
        if subchannel.is_released:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which was released")
        if told is None:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which the policy never watched")
        if told is not State.READY:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, which is {told}")
        if health is not None and health is not State.READY:
            self.fail(Rule.READY_PICKS, f"pick completes on {at}, the health of which is {health}")


# When a rule forbids to call.
_WHEN: Final = {
    Rule.PICKS_CHANGE_NOTHING: "during a pick",
    Rule.QUIET_BEFORE_UPDATE: "before its first update",
    Rule.CLOSED: "after it was closed",
}


class _PolicyClock(VirtualClock):
    """Lets the helper know that a timer's callback is a call to the policy."""

    def __init__(self, helper: FakeHelper) -> None:
        super().__init__()
        self._helper = helper

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(delay_s, partial(self._fire, callback))

    def _fire(self, callback: Callable[[], None]) -> None:
        with self._helper.calling(REPORTS_PER_EVENT_MAX):
            callback()
