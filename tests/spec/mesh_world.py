"""A whole xDS channel in hand: its control plane, its backends and its clock.

Channel, resolver, dependency manager, selector and the tree of policies are the real ones. What the
control plane says is what the test says (`xds_world.Watches`); a backend is an address whose
connections succeed or fail as the test says, and whose streams the test answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from proxyless.assembly import Registries
from proxyless.base import OK, Address, Metadata, State, Status, StatusCode, parse_address
from proxyless.channel import Call, Channel, ChannelOptions, LoopStack, SubchannelPool
from proxyless.lb import PolicyRegistry
from proxyless.resolver import ResolverRegistry
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock, seeded_random
from proxyless.xds.config.dependencies import Wanted
from proxyless.xds.resolver import XdsResolver, XdsTools
from tests.cluster_world import BOOTSTRAP
from tests.spec.channel_world import FakeStream, FakeTransport, Observer
from tests.spec.xds_world import (
    SERVICE,
    TYPES,
    FakeDns,
    FakeType,
    Watches,
    listener,
    set_resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb import Helper, Update
    from proxyless.lb.api import Cancel, StateListener
    from proxyless.resolver import Resolver, ResolverContext, ResolverListener, Target

PATH = "/pkg.Service/Method"
NODE = "node-1"


class Backend:
    """One address. Driven by the test; while it is up, connections that are asked for succeed."""

    def __init__(self, clock: VirtualClock, address: Address) -> None:
        self._clock = clock
        self.address = address
        self.is_up = True
        # Connections that succeeded, ever.
        self.accepts = 0
        self.state = State.IDLE
        self.status = OK
        self.transport: FakeTransport | None = None
        # All that there were: RPCs under way go on when nobody wants the connection any more.
        self._transports: list[FakeTransport] = []
        self.handles: list[Handle] = []

    @property
    def streams(self) -> list[FakeStream]:
        """Those that are not over, in the order in which they were opened."""
        streams = (stream for transport in self._transports for stream in transport.streams)
        return [stream for stream in streams if not stream.is_ended]

    def connect(self) -> None:
        if self.state is State.IDLE:
            self._become(State.CONNECTING)
            self._clock.call_later(0, self._finish_connecting)

    def _finish_connecting(self) -> None:
        if self.state is not State.CONNECTING:
            return
        if self.is_up:
            self.accepts += 1
            self.transport = FakeTransport()
            self._transports.append(self.transport)
            self._become(State.READY)
        else:
            text = f"{self.address}: connection refused"
            self._become(State.TRANSIENT_FAILURE, Status(StatusCode.UNAVAILABLE, text))

    def down(self) -> None:
        """Lose the connection and refuse new ones."""
        self.is_up = False
        self.transport = None
        if self.state is not State.IDLE:
            self._become(State.IDLE)

    def up(self) -> None:
        """Accept again; whoever was refused may try again now."""
        self.is_up = True
        if self.state is State.TRANSIENT_FAILURE:
            self._become(State.IDLE)

    def _become(self, state: State, status: Status = OK) -> None:
        self.state, self.status = state, status
        for handle in tuple(self.handles):
            handle.tell()

    def drop(self, handle: Handle) -> None:
        self.handles.remove(handle)
        if not self.handles:
            self.state, self.status, self.transport = State.IDLE, OK, None


class Handle:
    """A policy's end of a connection: what the channel's pool would give."""

    def __init__(self, world: MeshWorld, backend: Backend, options: SubchannelOptions) -> None:
        self._world = world
        self._backend = backend
        self.options = options
        self._listeners: list[StateListener] = []
        self.is_released = False
        backend.handles.append(self)

    @property
    def address(self) -> Address:
        return self._backend.address

    @property
    def transport(self) -> FakeTransport | None:
        return self._backend.transport if self._backend.state is State.READY else None

    def watch(self, told: StateListener) -> Cancel:
        self._listeners.append(told)
        told(self._backend.state, self._backend.status)

        def cancel() -> None:
            if told in self._listeners:
                self._listeners.remove(told)

        return cancel

    def watch_health(self, told: StateListener) -> Cancel:
        told(State.READY, OK)
        return lambda: None

    def watch_load_reports(self, interval_s: float, told: Any) -> Cancel:  # noqa: ANN401
        return lambda: None

    def request_connection(self) -> None:
        self._world.clock.call_later(0, self._connect)

    def _connect(self) -> None:
        if not self.is_released:
            self._backend.connect()

    def reset_backoff(self) -> None:
        return

    def release(self) -> None:
        self.is_released = True
        self._listeners.clear()
        self._backend.drop(self)

    def tell(self) -> None:
        """Soon, as the pool does it."""
        state, status = self._backend.state, self._backend.status
        for told in tuple(self._listeners):
            self._world.clock.call_later(0, self._teller(told, state, status))

    def _teller(self, told: StateListener, state: State, status: Status) -> Callable[[], None]:
        def tell() -> None:
            if told in self._listeners:
                told(state, status)

        return tell


class FakePool:
    """Gives handles of backends."""

    def __init__(self, world: MeshWorld) -> None:
        self._world = world

    def acquire(
        self, address: Address, options: SubchannelOptions, health: object, holder: object
    ) -> Handle:
        return Handle(self._world, self._world.backend(str(address)), options)

    def held_connections(self) -> list[object]:
        return []


class FakeClient:
    """Where an XdsClient stands: watches, and whoever counts the load if the test has one."""

    def __init__(self, world: MeshWorld) -> None:
        self.watch = world.watches.watch
        self.load_stats = world.load_stats
        self.bootstrap = world.bootstrap


class MeshFactory:
    """Makes xDS resolvers that ask the test."""

    scheme = "xds"

    def __init__(self, world: MeshWorld) -> None:
        self._world = world
        self.resolver: XdsResolver | None = None

    def create(self, target: Target, told: ResolverListener, context: ResolverContext) -> Resolver:
        world = self._world
        tools = XdsTools(
            cast("Any", None), lambda _: None, TYPES, world.registries.filters, world.dns
        )
        client = cast("Any", FakeClient(world))
        self.resolver = XdsResolver(Wanted(SERVICE, SERVICE, NODE), client, told, context, tools)
        return self.resolver

    def default_authority(self, target: Target) -> str:
        return SERVICE


class MeshWorld:
    """One channel for `xds:///orders`."""

    def __init__(self, registries: Registries | None = None, **options: object) -> None:
        self.clock = VirtualClock()
        self.watches = Watches(self.clock)
        self.dns = FakeDns()
        self.registries = registries or Registries()
        self.factory = MeshFactory(self)
        self.bootstrap = BOOTSTRAP
        # XdsClient.load_stats, for tests of load reports.
        self.load_stats: Any = None
        self._backends: dict[str, Backend] = {}
        stack = LoopStack(
            self.clock,
            seeded_random(1),
            AsyncioNetwork(),
            DeadlineQueue(self.clock),
            cast("SubchannelPool", FakePool(self)),
        )
        self.channel = Channel(
            f"xds:///{SERVICE}",
            ChannelOptions(**cast("Any", options)),
            stack,
            policies=self.registries.policies,
            resolvers=ResolverRegistry([self.factory], default_scheme="xds"),
        )

    # The world acts

    def backend(self, address: str) -> Backend:
        found = self._backends.get(address)
        if found is None:
            found = self._backends[address] = Backend(self.clock, parse_address(address))
        return found

    def settle(self) -> None:
        self.clock.advance(0)

    def say(self, *resources: object) -> None:
        """What the control plane has now; all of these are heard in one turn."""
        for resource in resources:
            set_resource(self.watches, resource)
        self.settle()

    def remove(self, resource_type: FakeType, name: str) -> None:
        self.watches.put(resource_type, name, Status(StatusCode.NOT_FOUND, "does not exist"))
        self.settle()

    def start(self, *resources: object) -> None:
        """Leave IDLE with these resources."""
        self.say(listener(), *resources)
        self.channel.request_connection()
        self.settle()

    @property
    def resolver(self) -> XdsResolver:
        assert self.factory.resolver is not None, "the channel is idle"
        return self.factory.resolver

    def in_use(self, cluster: str) -> int:
        """Who holds a cluster: the selector in force, and RPCs that are not committed."""
        return self.resolver._refs.count(f"cluster:{cluster}")  # noqa: SLF001 - the mark itself

    @property
    def children(self) -> set[str]:
        """The clusters in the load balancing config."""
        config = self.channel.config.service_config
        assert config is not None
        assert config.policy is not None
        names = cast("Any", config.policy.config).children
        return {name.removeprefix("cluster:") for name in names}

    # The application acts

    def call(
        self,
        path: str = PATH,
        metadata: Metadata = (),
        *,
        timeout_s: float | None = None,
        wait_for_ready: bool | None = None,
    ) -> tuple[Call, Observer]:
        """Start a unary RPC, and let everything happen that happens at once."""
        observer = Observer()
        method = self.channel.method(path)
        make_call = self.channel.call_type
        call = make_call(self.channel, method, observer, metadata, timeout_s, wait_for_ready)
        call.start_unary(b"request")
        self.settle()
        return call, observer

    def serve(self, path: str = PATH, metadata: Metadata = ()) -> str:
        """One RPC that has to succeed; the address of who served it."""
        before = {stream for each in self._backends.values() for stream in each.streams}
        _, observer = self.call(path, metadata)
        for address, backend in self._backends.items():
            for stream in backend.streams:
                if stream not in before:
                    stream.answer()
                    self.settle()
                    assert observer.status == OK
                    return address
        raise AssertionError(f"nobody serves: {observer.ends}")

    def answer_all(self) -> None:
        for backend in self._backends.values():
            for stream in backend.streams:
                stream.answer()
        self.settle()

    def streams(self, address: str) -> list[FakeStream]:
        return self.backend(address).streams


class SpyFactory:
    """A kind of policy that works as ever, and shows what was created and what it was told."""

    def __init__(self, real: Any) -> None:  # noqa: ANN401 - any factory
        self.name = real.name
        self._real = real
        self.created: list[Any] = []
        self.alive: list[Any] = []
        self.updates: list[Update] = []

    def parse_config(self, json: Any, errors: Any, registry: Any) -> Any:  # noqa: ANN401
        return self._real.parse_config(json, errors, registry)

    def create(self, helper: Helper) -> Any:  # noqa: ANN401
        spied = _SpiedPolicy(self, self._real.create(helper))
        self.created.append(spied)
        self.alive.append(spied)
        return spied


class _SpiedPolicy:
    def __init__(self, spy: SpyFactory, policy: Any) -> None:  # noqa: ANN401
        self._spy = spy
        self._policy = policy
        self.updates: list[Update] = []
        self.exit_idle = policy.exit_idle
        self.reset_backoff = policy.reset_backoff

    def update(self, update: Update) -> Status:
        self._spy.updates.append(update)
        self.updates.append(update)
        status: Status = self._policy.update(update)
        return status

    def close(self) -> None:
        self._spy.alive.remove(self)
        self._policy.close()


def spying(*names: str) -> tuple[Registries, dict[str, SpyFactory]]:
    """Registries in which these policies are watched, and who watches them."""
    known = Registries()
    spies: dict[str, SpyFactory] = {}
    factories: list[Any] = []
    for name in known.policies.names:
        factory = known.policies.find(name)
        if name in names:
            factory = spies[name] = SpyFactory(factory)
        factories.append(factory)
    return Registries(PolicyRegistry(factories), known.resolvers, known.filters), spies
