"""xDS channel with a fake XdsClient and fake backends, in virtual time.

Channel, resolver, dependency manager, config selector and policies are real. The test publishes the
resources (`xds_dependencies.Watches`). A backend is an address: the test decides whether its
connections succeed, and responds to its streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from proxyless.assembly import Registries
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Address,
    Attributes,
    Metadata,
    State,
    Status,
    StatusCode,
    parse_address,
)
from proxyless.channel import Call, Channel, ChannelOptions, LoopStack, SubchannelPool
from proxyless.lb import PolicyRegistry
from proxyless.resolver import ResolverRegistry
from proxyless.runtime import (
    UNLIMITED_WORK,
    AsyncioNetwork,
    DeadlineQueue,
    VirtualClock,
    Work,
    seeded_random,
)
from proxyless.xds.config.plan import ConfigTarget
from proxyless.xds.resolver import XdsResolver, XdsTools
from proxyless.xds.resolver_options import choose_options
from tests.worlds.channels import CallObserver, FakeStream, FakeTransport
from tests.worlds.xds_dependencies import TYPES, FakeDns, FakeType, Watches, set_resource
from tests.worlds.xds_messages import BOOTSTRAP
from tests.worlds.xds_resources import NOT_FOUND, SERVICE, listener

if TYPE_CHECKING:
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb import Helper, Update
    from proxyless.lb.api import Cancel, StateListener
    from proxyless.lb.connection_limit import ConnectionLimit
    from proxyless.metrics import Metrics
    from proxyless.resolver import Resolver, ResolverContext, ResolverListener, Target

PATH = "/pkg.Service/Method"
NODE = "node-1"


class Backend:
    """Backend at one address. Connections to it succeed while `is_up`."""

    def __init__(self, clock: VirtualClock, address: Address) -> None:
        self._clock = clock
        self.address = address
        self.is_up = True
        # The number of connections that succeeded.
        self.accepts = 0
        self.state = State.IDLE
        self.status = OK
        self.transport: FakeTransport | None = None
        # All of them: RPCs in progress continue after the connection is released.
        self._transports: list[FakeTransport] = []
        self.handles: list[BackendHandle] = []

    @property
    def streams(self) -> list[FakeStream]:
        """Streams that have not ended, the oldest first."""
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
        """Lose the connection, and refuse new ones."""
        self.is_up = False
        self.transport = None
        if self.state is not State.IDLE:
            self._become(State.IDLE)

    def up(self) -> None:
        """Accept connections, and end the backoff of those that failed."""
        self.is_up = True
        if self.state is State.TRANSIENT_FAILURE:
            self._become(State.IDLE)

    def _become(self, state: State, status: Status = OK) -> None:
        self.state, self.status = state, status
        for handle in tuple(self.handles):
            handle.notify()

    def on_release(self, handle: BackendHandle) -> None:
        self.handles.remove(handle)
        if not self.handles:
            self.state, self.status, self.transport = State.IDLE, OK, None


class BackendHandle:
    """Subchannel handle of a policy, as the pool returns it."""

    def __init__(self, world: MeshWorld, backend: Backend, options: SubchannelOptions) -> None:
        self._world = world
        self._backend = backend
        self.options = options
        self._listeners: list[StateListener] = []
        self.is_released = False
        # Attributes that its metrics have labels of.
        self.measured = EMPTY_ATTRIBUTES
        # Set by the channel.
        self.attributes = EMPTY_ATTRIBUTES
        self.connection_limit: ConnectionLimit | None = None
        backend.handles.append(self)

    @property
    def address(self) -> Address:
        return self._backend.address

    @property
    def transport(self) -> FakeTransport | None:
        return self._backend.transport if self._backend.state is State.READY else None

    def watch(self, listener: StateListener) -> Cancel:
        self._listeners.append(listener)
        listener(self._backend.state, self._backend.status)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        listener(State.READY, OK)
        return lambda: None

    def watch_load_reports(self, interval_s: float, listener: Any) -> Cancel:  # noqa: ANN401
        return lambda: None

    def measure(self, metrics: Metrics, attributes: Attributes) -> None:
        self.measured = attributes

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
        self._backend.on_release(self)

    def notify(self) -> None:
        """Notify the listeners in the next turn, as the pool does."""
        state, status = self._backend.state, self._backend.status
        for watching in tuple(self._listeners):
            self._world.clock.call_later(0, partial(self._deliver, watching, state, status))

    def _deliver(self, listener: StateListener, state: State, status: Status) -> None:
        if listener in self._listeners:
            listener(state, status)


class BackendPool:
    """Subchannel pool that returns handles of backends."""

    def __init__(self, world: MeshWorld) -> None:
        self._world = world

    def acquire(
        self,
        address: Address,
        options: SubchannelOptions,
        health: object,
        holder: object,
        owner: object = None,
    ) -> BackendHandle:
        return BackendHandle(self._world, self._world.backend(str(address)), options)

    def connections_of(self, owner: object) -> list[object]:
        return []

    async def wait_released(self, owner: object) -> None:
        return


class FakeXdsClient:
    """XdsClient with the watches of the test, and its load statistics if it has some."""

    def __init__(self, world: MeshWorld) -> None:
        self.watch = world.watches.watch
        self.load_stats = world.load_stats
        self.bootstrap = world.bootstrap


class MeshResolverFactory:
    """Factory of xDS resolvers with a fake XdsClient."""

    scheme = "xds"

    def __init__(self, world: MeshWorld) -> None:
        self._world = world
        self.resolver: XdsResolver | None = None

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        world = self._world
        tools = XdsTools(
            cast("Any", None), lambda _: None, TYPES, world.registries.filters, world.dns
        )
        client = cast("Any", FakeXdsClient(world))
        options = choose_options(context.options, world.bootstrap)
        target_ = ConfigTarget(SERVICE, SERVICE, NODE)
        self.resolver = XdsResolver(target_, client, listener, context, tools, options)
        return self.resolver

    def default_authority(self, target: Target) -> str:
        return SERVICE


@dataclass(frozen=True, eq=False)
class StartedRpc:
    """RPC that was sent to a backend."""

    call: Call
    observer: CallObserver
    address: str
    stream: FakeStream


class MeshWorld:
    """Channel to `xds:///orders`, its control plane and its backends."""

    def __init__(self, registries: Registries | None = None, **options: object) -> None:
        self.clock = VirtualClock()
        self.watches = Watches(self.clock)
        self.dns = FakeDns()
        self.registries = registries or Registries()
        self.factory = MeshResolverFactory(self)
        self.bootstrap = BOOTSTRAP
        # XdsClient.load_stats, in tests of load reports.
        self.load_stats: Any = None
        self._backends: dict[str, Backend] = {}
        stack = LoopStack(
            self.clock,
            seeded_random(1),
            AsyncioNetwork(),
            DeadlineQueue(self.clock),
            cast("SubchannelPool", BackendPool(self)),
            work=self.make_work(),
        )
        self.channel = Channel(
            f"xds:///{SERVICE}",
            ChannelOptions(**cast("Any", options)),
            stack,
            policies=self.registries.policies,
            resolvers=ResolverRegistry([self.factory], default_scheme="xds"),
        )

    def make_work(self) -> Work:
        """Updates run to their end at once, unless a subclass has a queue."""
        return UNLIMITED_WORK

    # Control plane and backends

    def backend(self, address: str) -> Backend:
        found = self._backends.get(address)
        if found is None:
            found = self._backends[address] = Backend(self.clock, parse_address(address))
        return found

    def settle(self) -> None:
        self.clock.advance(0)

    def publish(self, *resources: object) -> None:
        """Publish these resources in one turn."""
        for resource in resources:
            set_resource(self.watches, resource)
        self.settle()

    def remove(self, resource_type: FakeType, name: str) -> None:
        self.watches.put(resource_type, name, NOT_FOUND)
        self.settle()

    def start(self, *resources: object) -> None:
        """Publish these resources and a listener, and connect."""
        self.publish(listener(), *resources)
        self.channel.request_connection()
        self.settle()

    @property
    def resolver(self) -> XdsResolver:
        assert self.factory.resolver is not None, "the channel is idle"
        return self.factory.resolver

    def in_use(self, cluster: str) -> int:
        """Count the references to a cluster: the config selector, and uncommitted RPCs."""
        return self.resolver._refs.count(f"cluster:{cluster}")  # noqa: SLF001 - not public

    @property
    def children(self) -> set[str]:
        """Clusters in the load balancing config."""
        config = self.channel.config.service_config
        assert config is not None
        assert config.policy is not None
        names = cast("Any", config.policy.config).children
        return {name.removeprefix("cluster:") for name in names}

    # Application

    def call(
        self,
        path: str = PATH,
        metadata: Metadata = (),
        *,
        timeout_s: float | None = None,
        wait_for_ready: bool | None = None,
    ) -> tuple[Call, CallObserver]:
        """Start a unary RPC, and run what is due."""
        observer = CallObserver()
        method = self.channel.method(path)
        make_call = self.channel.call_type
        call = make_call(self.channel, method, observer, metadata, timeout_s, wait_for_ready)
        call.start_unary(b"request")
        self.settle()
        return call, observer

    def start_rpc(self, path: str = PATH, metadata: Metadata = ()) -> StartedRpc:
        """Start a unary RPC, which must be sent at once."""
        before = {stream for _, stream in self.open_streams}
        call, observer = self.call(path, metadata)
        new = [pair for pair in self.open_streams if pair[1] not in before]
        assert len(new) == 1, f"RPC has {len(new)} streams, wanted 1: {observer.ends}"
        return StartedRpc(call, observer, *new[0])

    def complete(self, rpc: StartedRpc) -> None:
        """Respond to an RPC, which must succeed."""
        rpc.stream.respond()
        self.settle()
        assert rpc.observer.status == OK

    def send_rpc(self, path: str = PATH, metadata: Metadata = ()) -> str:
        """Send an RPC that must succeed; return the address of its backend."""
        rpc = self.start_rpc(path, metadata)
        self.complete(rpc)
        return rpc.address

    @property
    def open_streams(self) -> list[tuple[str, FakeStream]]:
        """Address and stream of each RPC that a backend has not responded to."""
        return [(at, stream) for at, each in self._backends.items() for stream in each.streams]

    def respond_to_all(self) -> None:
        for _, stream in self.open_streams:
            stream.respond()
        self.settle()

    def streams(self, address: str) -> list[FakeStream]:
        return self.backend(address).streams


class SpyFactory:
    """Factory that wraps another one, and records the policies and their updates."""

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
    """Return registries in which these policies are recorded, and their spies."""
    known = Registries()
    spies: dict[str, SpyFactory] = {}
    factories: list[Any] = []
    for name in known.policies.names:
        factory = known.policies.find(name)
        if name in names:
            factory = spies[name] = SpyFactory(factory)
        factories.append(factory)
    return Registries(PolicyRegistry(factories), known.resolvers, known.filters), spies
