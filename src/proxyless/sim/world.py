"""World: clients, backends and control planes on one loop, in virtual time.

    world = World(seed=7)
    world.backend("web-1")
    control = world.control_plane("control", simple_mesh("api", {"web": ["10.0.0.1:50051"]}))

    async def story() -> bytes:
        channel = world.client("shop").channel("xds:///api")
        return await channel.unary_unary(UNARY)(b"", timeout=5.0)

    assert world.run(story()) == b"web-1"

The same seed gives the same run, event by event (`journal`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.backends import Backend
from proxyless.sim.control_plane import SimControlPlane
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

# Prefix of the IP addresses of hosts.
SUBNET: Final = "10.0"
# Time for the last bytes to arrive when a world is closed.
_LAST_BYTES_S: Final = 10.0


class Client:
    """Host of an application. It owns the channels."""

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
        """Create a real channel, which is closed with the world."""
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
    """One simulated mesh. It owns the loop, the network, the journal and all hosts."""

    def __init__(
        self, seed: int = 0, *, lines_kept: int | None = LINES_KEPT, subnet: str = SUBNET
    ) -> None:
        self.seed: Final = seed
        self._subnet: Final = subnet
        self.loop: Final = SimLoop()
        self.loop.set_exception_handler(self._on_exception)
        self.fabric: Final = Fabric(derived_random(seed, "fabric"))
        self.journal: Final = Journal(self.loop.time, kept=lines_kept)
        self.fabric.on_cut_short = self._on_cut_short
        # By name, in the order of creation.
        self.hosts: Final[dict[str, Host]] = {}
        self.clients: Final[dict[str, Client]] = {}
        self.backends: Final[dict[str, Backend]] = {}
        self.control_planes: Final[dict[str, SimControlPlane]] = {}
        # Called for each RPC with an ID that arrives at a backend.
        self.on_rpc: Callable[[Backend, str], None] = lambda _backend, _rpc: None
        # Authorities of the bootstraps; changed before the clients read them.
        self.authorities: Final[dict[str, object]] = {}
        self.exceptions: Final[list[str]] = []
        # Tasks, timers and connections that were left at the end of `run`.
        self.left_behind: Final[list[str]] = []

    # Hosts: each method returns the same object for the same name.

    def host(self, name: str) -> Host:
        found = self.hosts.get(name)
        if found is None:
            number = len(self.hosts) + 1
            ip = f"{self._subnet}.{number // 250}.{number % 250}"
            parts = (self.loop, self.fabric, self.journal)
            found = self.hosts[name] = Host(name, ip, self.seed, parts)
            self.fabric.names[name] = [ip]
        return found

    def backend(
        self, name: str, *, addresses: Sequence[Address] = (), methods: Sequence[str] = ()
    ) -> Backend:
        """A server at these addresses, or at that of its host. `run` or its `start` starts it."""
        found = self.backends.get(name)
        if found is None:
            host = self.host(name)
            self.fabric.places |= dict.fromkeys(addresses, host.ip)
            found = Backend(host, self._on_rpc, addresses=addresses, methods=methods)
            self.backends[name] = found
        return found

    def control_plane(
        self, name: str = "control", snapshot: Snapshot | None = None
    ) -> SimControlPlane:
        """A control plane. Clients prefer control planes in the order of creation."""
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
        servers = [each.bootstrap_server for each in self.control_planes.values()]
        return {
            "xds_servers": servers,
            "node": {"id": node_id},
            "authorities": dict(self.authorities),
        }

    def others(self, host: Host) -> list[Host]:
        return [each for each in self.hosts.values() if each is not host]

    def now_s(self) -> float:
        return self.loop.time()

    def run(self, story: Coroutine[Any, Any, T], virtual_seconds: float | None = None) -> T:
        """Start all servers, run the story, close everything. Raises TimeoutError if it is late."""
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
        for server in self._servers():
            await server.start()

    async def close(self) -> None:
        """End all faults, close all channels and servers, let the last bytes arrive. Idempotent."""
        self.fabric.heal_all()
        for client in self.clients.values():
            await client.close()
        await pause(_LAST_BYTES_S)
        for server in self._servers():
            await server.stop()
        await pause(_LAST_BYTES_S)

    def leftovers(self) -> list[str]:
        """What is left of a closed world. Called on its loop."""
        found = [each for host in self.hosts.values() for each in host.leftovers()]
        for control_plane in self.control_planes.values():
            found += [f"{control_plane.name}: an ADS stream"] * len(control_plane.streams)
            found += [f"{control_plane.name}: an LRS stream"] * control_plane.load_streams
        current = asyncio.current_task(self.loop)
        tasks = [task.get_coro() for task in asyncio.all_tasks(self.loop) if task is not current]
        found += sorted(f"a task: {getattr(each, '__qualname__', each)}" for each in tasks)
        found += [f"a timer: {each}" for each in self.loop.pending_timers()]
        return found

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
    """Type of the frame that was cut. `sent` has whole frames."""
    start = 0
    while start < arrived_bytes:
        stop = start + FRAME_HEADER_BYTES + int.from_bytes(sent[start : start + 3], "big")
        if stop > arrived_bytes:
            return "DATA" if sent[start + 3] == DATA else "another frame"
        start = stop
    return "nothing"
