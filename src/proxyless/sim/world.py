"""What is a world: clients, backends and control planes on one loop, in virtual time?

    world = World(seed=7)
    world.backend("web-1")
    control = world.control_plane("control", simple_mesh("api", {"web": ["10.0.0.1:50051"]}))

    async def story() -> bytes:
        channel = world.client("shop").channel("xds:///api")
        return await channel.unary_unary(UNARY)(b"", timeout=5.0)

    assert world.run(story()) == b"web-1"

The same seed gives the same run, event by event: see `journal`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.backends import Backend
from proxyless.sim.control import SimControlPlane
from proxyless.sim.hosts import Host
from proxyless.sim.journal import LINES_KEPT, Journal
from proxyless.sim.loop import SimLoop, pause
from proxyless.sim.network import Fabric
from proxyless.sim.random_choices import derived_random
from proxyless.wire.frames import DATA, FRAME_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from proxyless.assembly import Registries
    from proxyless.base import Address
    from proxyless.front import AioChannel

T = TypeVar("T")

# Where hosts have their IP addresses.
SUBNET: Final = "10.0"
# How long the last bytes of a closed world may take.
_LAST_BYTES_S: Final = 10.0


class Client:
    """An application's host. Driven by stories and workloads."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self.host: Final = host
        self.name: Final = host.name
        self.channels: list[AioChannel] = []

    def channel(
        self,
        target: str,
        *,
        options: Iterable[tuple[str, Any]] | None = None,
        registries: Registries | None = None,
    ) -> AioChannel:
        """A real channel, closed with the world."""
        bootstrap = self._world.bootstrap(self.name)
        channel = self.host.channel(
            target, options=options, bootstrap=bootstrap, registries=registries
        )
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        channels, self.channels = self.channels, []
        for channel in channels:
            await channel.close()


class World:
    """Everything. Driven by a story or by workloads."""

    def __init__(
        self, seed: int = 0, *, lines_kept: int | None = LINES_KEPT, subnet: str = SUBNET
    ) -> None:
        # Fixed at construction.
        self.seed: Final = seed
        self._subnet: Final = subnet
        self.loop: Final = SimLoop()
        self.loop.set_exception_handler(self._on_exception)
        self.fabric: Final = Fabric(derived_random(seed, "fabric"))
        self.journal: Final = Journal(self.loop.time, kept=lines_kept)
        self.fabric.on_cut_short = self._on_cut_short
        # By name, in the order of their creation.
        self.hosts: Final[dict[str, Host]] = {}
        self.clients: Final[dict[str, Client]] = {}
        self.backends: Final[dict[str, Backend]] = {}
        self.control_planes: Final[dict[str, SimControlPlane]] = {}
        # Told of each RPC that arrives at a backend.
        self.on_rpc: Callable[[Backend, str], None] = lambda _backend, _rpc: None
        # What nobody caught.
        self.exceptions: Final[list[str]] = []
        # What was still there when everything was closed, at the end of `run`.
        self.left_behind: Final[list[str]] = []

    # Who is there

    def host(self, name: str) -> Host:
        """A machine; the same one for the same name."""
        found = self.hosts.get(name)
        if found is None:
            number = len(self.hosts) + 1
            ip = f"{self._subnet}.{number // 250}.{number % 250}"
            parts = (self.loop, self.fabric, self.journal)
            found = self.hosts[name] = Host(name, ip, self.seed, parts)
            self.fabric.names[name] = [ip]
        return found

    def backend(
        self,
        name: str,
        zone: str = "",
        *,
        addresses: Sequence[Address] = (),
        methods: Sequence[str] = (),
    ) -> Backend:
        """A server, started with the world or by `start`; at these addresses, if any are given."""
        found = self.backends.get(name)
        if found is None:
            host = self.host(name)
            self.fabric.places |= dict.fromkeys(addresses, host.ip)
            found = Backend(host, zone, self._on_rpc, addresses=addresses, methods=methods)
            self.backends[name] = found
        return found

    def control_plane(
        self, name: str = "control", snapshot: Snapshot | None = None
    ) -> SimControlPlane:
        """A control plane; clients prefer them in the order of their creation."""
        found = self.control_planes.get(name)
        if found is None:
            found = SimControlPlane(self.host(name), snapshot or Snapshot.of([]))
            self.control_planes[name] = found
        elif snapshot is not None:
            found.set_snapshot(snapshot)
        return found

    def client(self, name: str = "client") -> Client:
        found = self.clients.get(name)
        if found is None:
            found = self.clients[name] = Client(self, self.host(name))
        return found

    def bootstrap(self, node_id: str) -> dict[str, object]:
        """What a client of these control planes reads at its start."""
        servers = [each.bootstrap_server for each in self.control_planes.values()]
        return {"xds_servers": servers, "node": {"id": node_id}}

    def others(self, host: Host) -> list[Host]:
        """All hosts but this one."""
        return [each for each in self.hosts.values() if each is not host]

    # Time

    def now_s(self) -> float:
        return self.loop.time()

    def run(self, story: Coroutine[Any, Any, T], virtual_seconds: float | None = None) -> T:
        """Start whoever is not running, run the story, close everything; TimeoutError if late."""
        try:
            return self.loop.run_until_complete(self._live(story, virtual_seconds))
        finally:
            self.loop.close()

    async def _live(self, story: Coroutine[Any, Any, T], virtual_seconds: float | None) -> T:
        try:
            await self.start()
            async with asyncio.timeout(virtual_seconds):
                return await story
        finally:
            story.close()
            await self.close()
            self.left_behind.extend(self.leftovers())

    async def start(self) -> None:
        """Start every backend and control plane that does not run."""
        for server in self._servers():
            await server.start()

    async def close(self) -> None:
        """End all faults, close whoever is there, and let the last bytes arrive. Idempotent."""
        self.fabric.heal_all()
        for client in self.clients.values():
            await client.close()
        await pause(_LAST_BYTES_S)
        for server in self._servers():
            await server.stop()
        await pause(_LAST_BYTES_S)

    def leftovers(self) -> list[str]:
        """What is left of a closed world, asked from inside of it: nothing should be."""
        found = [each for host in self.hosts.values() for each in host.leftovers()]
        found += [f"the network: an end of a connection ({each})" for each in self._ends()]
        for control_plane in self.control_planes.values():
            found += [f"{control_plane.name}: an ADS stream"] * len(control_plane.streams)
            found += [f"{control_plane.name}: an LRS stream"] * control_plane.load_streams
        current = asyncio.current_task(self.loop)
        tasks = [task for task in asyncio.all_tasks(self.loop) if task is not current]
        found += sorted(f"a task: {_name_of(task)}" for task in tasks)
        found += [f"a timer: {each}" for each in self.loop.pending_timers()]
        return found

    def _ends(self) -> list[str]:
        return [
            f"{each.local} to {each.remote}"
            for host in self.hosts.values()
            for each in self.fabric.connections_of(host.ip)
        ]

    # Inside

    def _servers(self) -> list[Backend | SimControlPlane]:
        return [*self.backends.values(), *self.control_planes.values()]

    def _on_rpc(self, backend: Backend, rpc_id: str) -> None:
        self.on_rpc(backend, rpc_id)

    def _on_cut_short(self, sent: bytes, arrived_bytes: int) -> None:
        frame = name_cut_frame(sent, arrived_bytes)
        self.journal.note("world", "network.cut_short", arrived_bytes=arrived_bytes, inside=frame)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = f"{context.get('message')}: {type(error).__name__}: {error}"
        self.exceptions.append(text)
        self.journal.note("world", "exception", error=type(error).__name__)


def name_cut_frame(sent: bytes, arrived_bytes: int) -> str:
    """In what a cut fell: DATA, another frame, or between two. Frames are sent whole."""
    start = 0
    while start < arrived_bytes:
        stop = start + FRAME_HEADER_BYTES + int.from_bytes(sent[start : start + 3], "big")
        if stop > arrived_bytes:
            return "DATA" if sent[start + 3] == DATA else "another frame"
        start = stop
    return "nothing"


def _name_of(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__qualname__", coroutine))
