"""Policy under test: its helper, its subchannels and its clock, built on `proxyless.testing`.

Addresses have the short names of `proxyless.testing.address`, and two more kinds: "a4in6" is an
IPv4 address mapped into IPv6, "au" a Unix socket. An endpoint is the name of its only address, or a
tuple of names.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from proxyless import testing
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Address,
    Attributes,
    Backoff,
    Endpoint,
    IpAddress,
    State,
    Status,
    StatusCode,
    UnixAddress,
    ValidationErrors,
)
from proxyless.lb import (
    Cancel,
    Complete,
    Drop,
    Fail,
    LoadReport,
    Picker,
    PickInfo,
    Policy,
    PolicyFactory,
    PolicyRegistry,
    Queue,
    StateListener,
    Update,
)
from proxyless.runtime import WorkQueue
from proxyless.runtime.work_queue import COLLECTION_DELAY_S
from proxyless.testing import ANY_RPC, FakeConnection, FakeHelper, FakeSubchannel

IDLE = State.IDLE
CONNECTING = State.CONNECTING
READY = State.READY
FAILURE = State.TRANSIENT_FAILURE

Name = str
EndpointName = Name | tuple[Name, ...] | Endpoint


@cache
def address(name: Name) -> Address:
    match name[1:]:
        case "4in6":
            plain = testing.address(name[0])
            assert isinstance(plain, IpAddress)
            return IpAddress(f"::ffff:{plain.host}", plain.port)
        case "u":
            return UnixAddress(f"/run/{name[0]}")
        case _:
            return testing.address(name)


def endpoint(names: EndpointName, attributes: Attributes = EMPTY_ATTRIBUTES) -> Endpoint:
    if isinstance(names, Endpoint):
        return names
    each = (names,) if isinstance(names, str) else names
    return Endpoint(tuple(map(address, each)), attributes)


def unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)


class ScriptedSubchannel(FakeSubchannel):
    """Subchannel with a connection of its own, whose state the test sets."""

    # The number of calls of `watch_health`.
    health_watches = 0

    def watch_health(self, listener: StateListener) -> Cancel:
        self.health_watches += 1
        return super().watch_health(listener)

    @property
    def state(self) -> State:
        return self.connection.state

    @property
    def is_requested(self) -> bool:
        """Whether a connection was requested since the last change of state."""
        return self.connection.is_requested

    # Called by tests.

    def become(self, state: State, error: Status = OK) -> None:
        assert not self.is_released, f"test sets {state} on a released subchannel"
        self.connection.become(state, error)

    def connecting(self) -> None:
        self.become(CONNECTING)

    def ready(self) -> None:
        self.become(READY)

    def idle(self) -> None:
        self.become(IDLE)

    def fail(self, text: str = "refused") -> None:
        self.become(FAILURE, unavailable(text))

    def set_health(self, state: State, text: str = "") -> None:
        self.connection.set_health(state, unavailable(text) if text else OK)

    def report_load(self, report: LoadReport) -> None:
        self.connection.report_load(report)


class ScriptedHelper(FakeHelper):
    """Helper of the policy under test. Creates scripted subchannels, and calls the test's hooks."""

    def __init__(self, registry: PolicyRegistry, seed: int) -> None:
        super().__init__(registry, seed=seed)
        # The number of subchannels so far, and the addresses that had another one at that time.
        self.created = 0
        self.created_again: list[Address] = []
        self._by_address: dict[Address, list[ScriptedSubchannel]] = {}
        # Set by the test: states of new subchannels.
        self.initial_states: dict[Address, tuple[State, Status]] = {}
        # Set by the test: called for each request and after each report.
        self.attempt: Callable[[ScriptedSubchannel], None] = lambda subchannel: None
        self.react: Callable[[State], None] = lambda state: None

    def create_subchannel(self, address: Address, attributes: Attributes) -> ScriptedSubchannel:
        self.record_call(f"creates a subchannel to {address}")
        others = [each for each in self._by_address.get(address, ()) if not each.is_released]
        if others:
            self.created_again.append(address)
        connection = FakeConnection(self, address)
        # As in a pool, the new one is READY if another one is.
        is_ready = any(each.state is READY for each in others)
        default = (READY if is_ready else IDLE, OK)
        connection.state, connection.error = self.initial_states.get(address, default)
        subchannel = ScriptedSubchannel(self, connection, attributes)
        connection.handles.append(subchannel)
        self.subchannels.append(subchannel)
        self._by_address[address] = [*others, subchannel]
        self.created += 1
        return subchannel

    def update_state(self, state: State, picker: Picker) -> None:
        super().update_state(state, picker)
        self.react(state)

    def on_request(self, subchannel: FakeSubchannel) -> None:
        super().on_request(subchannel)
        assert isinstance(subchannel, ScriptedSubchannel)
        self.attempt(subchannel)


class PolicyWorld:
    """Policy under test with its helper, and the vocabulary of its tests."""

    def __init__(
        self, factory: PolicyFactory, *, others: tuple[PolicyFactory, ...] = (), seed: int = 1
    ) -> None:
        self.helper = self.create_helper(PolicyRegistry([factory, *others]), seed)
        self.clock = self.helper.clock
        self.context = self.helper.context
        self.trace = self.helper.context.trace
        # The RPC of `pick`.
        self.rpc: PickInfo = ANY_RPC
        self._factory = factory
        self._reports_taken = 0
        self._names: dict[Address, Name] = {}
        self.policy: Policy = factory.create(self.helper)

    def create_helper(self, registry: PolicyRegistry, seed: int) -> ScriptedHelper:
        return ScriptedHelper(registry, seed)

    # Calls of the channel.

    def update(
        self,
        *endpoints: EndpointName,
        config: Mapping[str, object] | None = None,
        attributes: Attributes = EMPTY_ATTRIBUTES,
        note: str = "",
    ) -> Status:
        resolved = tuple(map(endpoint, endpoints))
        for names in endpoints:
            if not isinstance(names, Endpoint):
                each = (names,) if isinstance(names, str) else names
                self._names.update((address(name), name) for name in each)
        return self.policy.update(Update(resolved, self.parse(config or {}), attributes, note))

    def resolver_error(self, text: str = "no such host") -> Status:
        return self.policy.update(Update(unavailable(text), self.parse({})))

    def parse(self, json: Mapping[str, object]) -> object:
        errors = ValidationErrors()
        config = self._factory.parse_config(json, errors, self.context.registry)
        errors.raise_if_any("config")
        return config

    def pick(self, *, wait_for_ready: bool = False) -> Name | Status | None:
        """Return the name of the address, the error, or None if the pick is queued."""
        match self.helper.pick(self.rpc):
            case Complete(subchannel):
                return self.name(subchannel.address)
            case Queue():
                return None
            case Fail(status):
                return None if wait_for_ready else status
            case Drop(status):
                return status

    def picks(self, count: int) -> list[Name | Status | None]:
        return [self.pick() for _ in range(count)]

    # Time, and the state of the policy.

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def settle(self) -> None:
        self.helper.settle()

    def share(self, name: Name, state: State, text: str = "refused") -> None:
        """Set the initial state of new subchannels to this address."""
        error = unavailable(text) if state is FAILURE else OK
        self.helper.initial_states[address(name)] = (state, error)

    @property
    def subchannels(self) -> list[ScriptedSubchannel]:
        """Subchannels that the policy has not released, the oldest first."""
        return [each for each in self.helper.subchannels if isinstance(each, ScriptedSubchannel)]

    def __getitem__(self, name: Name) -> ScriptedSubchannel:
        """Return the only subchannel to this address."""
        found = [each for each in self.subchannels if each.address == address(name)]
        assert len(found) == 1, f"policy has {len(found)} subchannels for {name!r}, wanted 1"
        return found[0]

    @property
    def subchannel_names(self) -> list[Name]:
        return [self.name(each.address) for each in self.subchannels]

    def name(self, at: Address) -> Name:
        return self._names.get(at, str(at))

    @property
    def state(self) -> State:
        assert self.helper.state is not None, "policy has not reported anything yet"
        return self.helper.state

    @property
    def reresolutions(self) -> int:
        return self.helper.reresolutions

    @property
    def picker(self) -> Picker:
        return self.helper.picker

    def take_requests(self) -> list[Name]:
        """Take the names of the requested connections, in order."""
        names = [self.name(at) for at in self.helper.requests]
        self.helper.requests.clear()
        return names

    def _take_states(self) -> list[State]:
        reports = self.helper.reports[self._reports_taken :]
        self._reports_taken = len(self.helper.reports)
        return [report.state for report in reports]

    # Expectations.

    def expect_requests(self, *names: Name) -> None:
        """These connections were requested since the last call, in this order, and no others."""
        assert self.take_requests() == list(names)

    def expect_reports(self, *states: State) -> None:
        """These states were reported since the last call, in this order, and no others."""
        assert self._take_states() == list(states)

    def expect_never(self, *states: State) -> None:
        """None of these states was reported since the last call."""
        assert not set(self._take_states()).intersection(states)

    def expect_state(self, state: State) -> None:
        assert self.state is state, f"policy is {self.state}, wanted {state}"

    def expect_subchannels(self, *names: Name) -> None:
        """The policy has subchannels for these addresses and no others."""
        assert sorted(self.subchannel_names) == sorted(names)

    def expect_pick(self, name: Name) -> None:
        assert self.pick() == name

    def expect_picker_queues(self) -> None:
        assert self.pick() is None

    def expect_pick_fails(self, *texts: str) -> None:
        """A pick fails with UNAVAILABLE and all these texts; a wait-for-ready one is queued."""
        failure = self.pick()
        assert isinstance(failure, Status), f"pick gives {failure!r}, wanted a failure"
        assert failure.code is StatusCode.UNAVAILABLE
        for text in texts:
            assert text in failure.details
        assert self.pick(wait_for_ready=True) is None

    def expect_closed(self) -> None:
        """The policy has no subchannels and no timers."""
        assert not self.subchannel_names
        assert self.clock.timers_pending == 0


class DeadAddresses:
    """Makes every connection attempt fail, with a subchannel's backoff after it."""

    def __init__(self, world: PolicyWorld, *, attempt_takes_s: float = 0.1) -> None:
        self._world = world
        self._attempt_takes_s = attempt_takes_s
        self._backoffs: dict[Address, Backoff] = {}
        # Times of the attempts.
        self.attempts: dict[Name, list[float]] = {}
        world.helper.attempt = self._attempt

    def _attempt(self, subchannel: ScriptedSubchannel) -> None:
        clock, random = self._world.clock, self._world.context.random
        self.attempts.setdefault(self._world.name(subchannel.address), []).append(clock.now_s())
        backoff = self._backoffs.setdefault(subchannel.address, Backoff())
        delay_s = max(backoff.next_delay_s(random), self._attempt_takes_s)
        clock.call_later(0, unless_released(subchannel, subchannel.connecting))
        clock.call_later(self._attempt_takes_s, unless_released(subchannel, subchannel.fail))
        clock.call_later(delay_s, unless_released(subchannel, subchannel.idle))


def unless_released(subchannel: ScriptedSubchannel, step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        if not subchannel.is_released:
            step()

    return run


class SlicedWorld(PolicyWorld):
    """A policy whose work is done in slices, as in a channel."""

    def create_helper(self, registry: PolicyRegistry, seed: int) -> ScriptedHelper:
        helper = super().create_helper(registry, seed)
        helper.context = replace(helper.context, work=WorkQueue(helper.clock))
        return helper

    def expect_closed(self) -> None:
        # The work queue, which is the loop's, may have a timer.
        self.clock.advance(COLLECTION_DELAY_S)
        super().expect_closed()
