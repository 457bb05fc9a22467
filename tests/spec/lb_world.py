"""A world around one policy: its parent, its subchannels and its clock, all in the test's hands.

Addresses have short names: "a" is an IPv4 address, "a6" an IPv6 one, "a4in6" an IPv4 address mapped
into IPv6, "au" a Unix socket; "#17" is the IPv4 address number 17. An endpoint is the name of
its only address, or a tuple of names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

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
    Trace,
    UnixAddress,
    ValidationErrors,
)
from proxyless.lb import (
    Cancel,
    Complete,
    Context,
    Drop,
    Fail,
    Helper,
    LoadListener,
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
from proxyless.runtime import VirtualClock, seeded_random

IDLE = State.IDLE
CONNECTING = State.CONNECTING
READY = State.READY
FAILURE = State.TRANSIENT_FAILURE

Name = str
EndpointName = Name | tuple[Name, ...] | Endpoint

ANY_RPC = PickInfo("/pkg.Service/Method")


@cache
def address(name: Name) -> Address:
    if name.startswith("#"):
        number = int(name[1:])
        return IpAddress(f"10.1.{number >> 8}.{number & 255}", 80)
    number, family = ord(name[0]), name[1:]
    match family:
        case "":
            return IpAddress(f"10.0.0.{number}", 80)
        case "6":
            return IpAddress(f"fd00::{number:x}", 80)
        case "4in6":
            return IpAddress(f"::ffff:10.0.0.{number}", 80)
        case "u":
            return UnixAddress(f"/run/{name[0]}")
        case _:
            raise AssertionError(f"no address has the name {name!r}")


def endpoint(names: EndpointName, attributes: Attributes = EMPTY_ATTRIBUTES) -> Endpoint:
    if isinstance(names, Endpoint):
        return names
    each = (names,) if isinstance(names, str) else names
    return Endpoint(tuple(map(address, each)), attributes)


def unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)


@dataclass(frozen=True, slots=True)
class Report:
    """What the policy told its parent once."""

    state: State
    picker: Picker


class FakeSubchannel:
    """A subchannel whose states the test sets. Holds its policy to the contract, and keeps it."""

    def __init__(self, world: "World", at: Address, attributes: Attributes) -> None:
        self.address = at
        self.attributes = attributes
        self.is_released = False
        # Whether a connection was requested since the last change.
        self.is_requested = False
        self.backoff_resets = 0
        self.health_watches = 0
        self._world = world
        self.state, self._error = world.shared.get(at) or world.state_at(at)
        self._health, self._health_error = READY, OK
        # How often each watch of the load wants reports, and who gets them.
        self.load_watches: list[tuple[float, LoadListener]] = []
        self._listeners: list[StateListener] = []
        self._health_listeners: list[StateListener] = []

    # What the policy calls.

    def watch(self, listener: StateListener) -> Cancel:
        assert not self.is_released, "policy watches a subchannel that it released"
        self._listeners.append(listener)
        listener(self.state, self._error)
        return lambda: self._listeners.remove(listener)

    def watch_health(self, listener: StateListener) -> Cancel:
        assert not self.is_released, "policy watches a subchannel that it released"
        self.health_watches += 1
        self._health_listeners.append(listener)
        listener(self._health, self._health_error)
        return lambda: self._health_listeners.remove(listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        assert not self.is_released, "policy watches a subchannel that it released"
        watch = (interval_s, listener)
        self.load_watches.append(watch)
        return lambda: self.load_watches.remove(watch)

    def request_connection(self) -> None:
        assert not self.is_released, "policy requests a connection it released"
        if self.state is IDLE:
            self.is_requested = True
            self._world.on_request(self)

    def reset_backoff(self) -> None:
        assert not self.is_released, "policy resets a backoff it released"
        self.backoff_resets += 1

    def release(self) -> None:
        assert not self.is_released, "policy releases a subchannel twice"
        self.is_released = True
        self._world.live.remove(self)
        self._listeners.clear()
        self._health_listeners.clear()
        self.load_watches.clear()

    # What the test says.

    def connecting(self) -> None:
        self._become(CONNECTING)

    def ready(self) -> None:
        self._become(READY)

    def idle(self) -> None:
        self._become(IDLE)

    def fail(self, text: str = "refused") -> None:
        self._become(FAILURE, unavailable(text))

    def health(self, state: State, text: str = "") -> None:
        self._health, self._health_error = state, unavailable(text) if text else OK
        for listener in tuple(self._health_listeners):
            listener(self._health, self._health_error)

    def report_load(self, report: LoadReport) -> None:
        """The backend says this, out of band."""
        for _, listener in tuple(self.load_watches):
            listener(report)

    def _become(self, state: State, error: Status = OK) -> None:
        assert not self.is_released, f"test sets {state} on a released subchannel"
        self.state, self._error = state, error
        self.is_requested = False
        for listener in tuple(self._listeners):
            listener(state, error)


# What a subchannel may become, by itself or for others who share it.
CHANGES: dict[State, tuple[State, ...]] = {
    IDLE: (CONNECTING,),
    CONNECTING: (READY, FAILURE, IDLE),
    READY: (IDLE, CONNECTING, FAILURE),
    FAILURE: (IDLE,),
}
CHANGE: dict[State, Callable[[FakeSubchannel], None]] = {
    IDLE: FakeSubchannel.idle,
    CONNECTING: FakeSubchannel.connecting,
    READY: FakeSubchannel.ready,
    FAILURE: FakeSubchannel.fail,
}


class World:
    """The helper of the policy under test, and the vocabulary of its tests."""

    def __init__(
        self, factory: PolicyFactory, *, others: tuple[PolicyFactory, ...] = (), seed: int = 1
    ) -> None:
        self.clock = VirtualClock()
        self.trace = Trace()
        registry = PolicyRegistry([factory, *others])
        self.context = Context(self.clock, seeded_random(seed), registry, self.trace)
        # Subchannels that the policy has not released.
        self.live: list[FakeSubchannel] = []
        self._at: dict[Address, list[FakeSubchannel]] = {}
        # How many there ever were.
        self.created = 0
        self.reresolutions = 0
        # In which state new subchannels are, by address; as if connections were shared.
        self.shared: dict[Address, tuple[State, Status]] = {}
        # What a requested connection does, besides being noted.
        self.attempt: Callable[[FakeSubchannel], None] = lambda subchannel: None
        # What the parent does with a report, besides noting it.
        self.react: Callable[[State], None] = lambda state: None
        # The RPC that is picked for.
        self.rpc = ANY_RPC
        self._factory = factory
        self._requests: list[Name] = []
        self._reports: list[Report] = []
        self._reports_taken = 0
        self._names: dict[Address, Name] = {}
        self.policy: Policy = factory.create(self._helper)

    @property
    def _helper(self) -> Helper:
        return self

    # What the policy calls.

    def state_at(self, at: Address) -> tuple[State, Status]:
        """As a pool has it: whoever wants the connection that somebody has shares it."""
        live = self._at[at] = [each for each in self._at.get(at, ()) if not each.is_released]
        is_ready = any(each.state is READY for each in live)
        return (READY if is_ready else IDLE), OK

    def create_subchannel(self, address: Address, attributes: Attributes) -> FakeSubchannel:
        subchannel = FakeSubchannel(self, address, attributes)
        self.live.append(subchannel)
        self._at.setdefault(address, []).append(subchannel)
        self.created += 1
        return subchannel

    def update_state(self, state: State, picker: Picker) -> None:
        assert (state is FAILURE) == (not picker.status.is_ok), f"{state} with {picker.status}"
        self._reports.append(Report(state, picker))
        self.react(state)

    def request_reresolution(self) -> None:
        self.reresolutions += 1

    def on_request(self, subchannel: FakeSubchannel) -> None:
        self._requests.append(self.name(subchannel.address))
        self.attempt(subchannel)

    # What the test does.

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

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def settle(self) -> None:
        """Let happen what is to happen soon."""
        self.clock.advance(0)

    def share(self, name: Name, state: State, text: str = "refused") -> None:
        """New subchannels to this address are in this state from the start."""
        self.shared[address(name)] = (state, unavailable(text) if state is FAILURE else OK)

    def __getitem__(self, name: Name) -> FakeSubchannel:
        """The subchannel that the policy now has for this address."""
        found = [each for each in self.live if each.address == address(name)]
        assert len(found) == 1, f"policy has {len(found)} subchannels for {name!r}, wanted 1"
        return found[0]

    @property
    def live_names(self) -> list[Name]:
        return [self.name(each.address) for each in self.live]

    def name(self, at: Address) -> Name:
        return self._names.get(at, str(at))

    # What the test expects.

    @property
    def state(self) -> State:
        assert self._reports, "policy has not reported anything yet"
        return self._reports[-1].state

    @property
    def picker(self) -> Picker:
        assert self._reports, "policy has not reported anything yet"
        return self._reports[-1].picker

    def expect_requests(self, *names: Name) -> None:
        """These connections were requested since the last time, in this order, and no others."""
        requests, self._requests = self._requests, []
        assert requests == list(names)

    def take_requests(self) -> list[Name]:
        requests, self._requests = self._requests, []
        return requests

    def expect_reports(self, *states: State) -> None:
        """These states were reported since the last time, in this order, and no others."""
        reports = self._reports[self._reports_taken :]
        self._reports_taken = len(self._reports)
        assert [report.state for report in reports] == list(states)

    def expect_never(self, *states: State) -> None:
        """None of these states was reported since the last time."""
        reports = self._reports[self._reports_taken :]
        self._reports_taken = len(self._reports)
        assert not {report.state for report in reports}.intersection(states)

    def expect_state(self, state: State) -> None:
        assert self.state is state, f"policy is {self.state}, wanted {state}"

    def expect_subchannels(self, *names: Name) -> None:
        """The policy has subchannels for these addresses and no others."""
        assert sorted(self.live_names) == sorted(names)

    def pick(self, *, wait_for_ready: bool = False) -> Name | Status | None:
        """As the channel does it: an address, a failure, or None for a pick that waits."""
        match self.picker.pick(self.rpc):
            case Complete(subchannel):
                assert isinstance(subchannel, FakeSubchannel), "only what the helper made"
                assert not subchannel.is_released, "picker holds a released subchannel"
                return self.name(subchannel.address)
            case Queue():
                return None
            case Fail(status):
                return None if wait_for_ready else status
            case Drop(status):
                return status

    def picks(self, count: int) -> list[Name | Status | None]:
        return [self.pick() for _ in range(count)]

    def expect_pick(self, name: Name) -> None:
        assert self.pick() == name

    def expect_picker_queues(self) -> None:
        assert self.pick() is None

    def expect_pick_fails(self, *texts: str) -> None:
        """A pick fails, UNAVAILABLE, with all these texts; a wait-for-ready one waits."""
        failure = self.pick()
        assert isinstance(failure, Status), f"pick gives {failure!r}, wanted a failure"
        assert failure.code is StatusCode.UNAVAILABLE
        for text in texts:
            assert text in failure.details
        assert self.pick(wait_for_ready=True) is None

    def expect_closed(self) -> None:
        """The policy holds nothing any more."""
        assert not self.live_names
        assert self.clock.timers_pending == 0


class DeadAddresses:
    """Makes every attempt fail after a while, with the backoff of a real subchannel between."""

    def __init__(self, world: World, *, attempt_takes_s: float = 0.1) -> None:
        self._world = world
        self._attempt_takes_s = attempt_takes_s
        self._backoffs: dict[Address, Backoff] = {}
        # When attempts were made, by address.
        self.attempts: dict[Name, list[float]] = {}
        world.attempt = self._attempt

    def _attempt(self, subchannel: FakeSubchannel) -> None:
        clock, random = self._world.clock, self._world.context.random
        self.attempts.setdefault(self._world.name(subchannel.address), []).append(clock.now_s())
        backoff = self._backoffs.setdefault(subchannel.address, Backoff())
        delay_s = max(backoff.next_delay_s(random), self._attempt_takes_s)
        clock.call_later(0, unless_released(subchannel, subchannel.connecting))
        clock.call_later(self._attempt_takes_s, unless_released(subchannel, subchannel.fail))
        clock.call_later(delay_s, unless_released(subchannel, subchannel.idle))


def unless_released(subchannel: FakeSubchannel, step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        if not subchannel.is_released:
            step()

    return run
