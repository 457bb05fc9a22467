"""Load of a fleet of xDS clients on a control plane, simulated: connections, messages, bytes, time.

Real xDS clients on the package's own HTTP/2, one per host, with the four watches of one target, and
the core of `proxyless.controlplane` on one host; only sockets and time are simulated (`sim`). Times
are virtual, so they show waiting (round trips, backoff, jitter) and no CPU; the CPU that the run
took is reported beside it. Backends are not part of it: their number does not change the load of
the control plane.

    python -m tools.fleet --clients 1000 --endpoints 5000
"""

import argparse
import asyncio
import json
import time  # noqa: TID251 - CPU time of the run
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

from proxyless.assembly import Registries
from proxyless.base import Address, Status
from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route, route_config
from proxyless.resolver import DnsFactory
from proxyless.sim import SimControlPlane, World, pause
from proxyless.sim.links import SimTransport
from proxyless.sim.network import Fabric, SimNetwork
from proxyless.xds.bootstrap import Bootstrap, load_bootstrap
from proxyless.xds.client import XdsClient
from proxyless.xds.resolver import XdsTools
from proxyless.xds.resources import EndpointResource

TARGET = "xds:///api"
CONTROL = "control"
# Longest time of one phase.
PATIENCE_S = 1_200.0


@dataclass
class Traffic:
    """Traffic at the control plane in one phase."""

    started_s: float
    attempts: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    responses: int = 0
    lookups: int = 0


@dataclass(frozen=True)
class Phase:
    """Result of one phase."""

    name: str
    # Virtual time until the last client has the config.
    seconds: float
    cpu_s: float
    connections: int
    attempts: int
    attempts_in_1_s: int
    accepted_in_1_s: int
    requests: int
    responses: int
    bytes_in: int
    bytes_out: int
    lookups: int


def most_in_a_second(times: list[float]) -> int:
    """Largest number of events in any second that starts with one of them."""
    most = first = 0
    for last, now_s in enumerate(times):
        while times[first] <= now_s - 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


def make_snapshot(addresses: int, version: int) -> Snapshot:
    """One service with this many endpoints, of which the last one depends on the version."""
    hosts = [f"10.9.{each // 250}.{each % 250 + 1}:50051" for each in range(addresses)]
    hosts[-1] = f"10.200.0.{version}:50051"
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", route(cluster="pool")),
            eds_cluster("pool"),
            endpoints("pool", hosts),
        ],
        version=str(version),
    )


class FleetClient:
    """One xDS client with the watches of a channel: listener, routes, cluster, endpoints."""

    def __init__(self, client: XdsClient, tools: XdsTools, on_change: Callable[[], None]) -> None:
        self.client = client
        self._tools = tools
        self._on_change = on_change
        # Last address of the endpoints.
        self.last: str = ""
        self.errors = 0
        for kind, name in (
            (tools.types.listener, "api"),
            (tools.types.route_config, "routes"),
            (tools.types.cluster, "pool"),
            (tools.types.endpoint, "pool"),
        ):
            watched: Any = kind
            client.watch(watched, name, self)

    def on_resource(self, resource: Any) -> None:  # noqa: ANN401 - of any type
        if isinstance(resource, Status):
            self.errors += 1
        elif isinstance(resource, EndpointResource):
            [[locality]] = resource.priorities
            self.last = str(locality.endpoints[-1].addresses[0])
            self._on_change()

    def on_ambient_error(self, status: Status) -> None:
        self.errors += not status.is_ok

    def close(self) -> None:
        self._tools.release(self.client)


class Fleet:
    """A control plane, its clients, and the traffic between them."""

    def __init__(self, world: World, size: int, addresses: int, *, has_name: bool = False) -> None:
        self.world = world
        self.size = size
        self.addresses = addresses
        self.control: SimControlPlane = world.control_plane(CONTROL, make_snapshot(addresses, 1))
        self._server_uri = f"dns:///{CONTROL}:18000" if has_name else None
        self.clients: list[FleetClient] = []
        self.traffic = Traffic(world.loop.time())
        self._changed = asyncio.Event()

    # Phases

    async def start(self) -> None:
        """All clients start in the same second."""
        for number in range(self.size):
            self.clients.append(self._make_client(f"client-{number}"))
        await self._all_have("10.200.0.1:50051")

    async def change(self, version: int) -> None:
        """One endpoint of the cluster is replaced."""
        self.control.set_snapshot(make_snapshot(self.addresses, version))
        await self._all_have(f"10.200.0.{version}:50051")

    async def restart(self, down_s: float, version: int) -> None:
        """The control plane ends, and is back after some time with a changed endpoint."""
        await self.control.stop()
        self.control.set_snapshot(make_snapshot(self.addresses, version))
        await pause(down_s)
        await self.control.start()
        await self._all_have(f"10.200.0.{version}:50051")

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await pause(1.0)

    def _make_client(self, name: str) -> FleetClient:
        document: dict[str, Any] = dict(self.world.bootstrap(name))
        if self._server_uri is not None:
            [server] = document["xds_servers"]
            document["xds_servers"] = [{**server, "server_uri": self._server_uri}]
        bootstrap = load_bootstrap(document, {})
        assert isinstance(bootstrap, Bootstrap), bootstrap
        registries, host = Registries(), self.world.host(name)
        host.trace.subscribe(self._on_event)
        tools = host.xds().tools(registries.policies, registries.filters, DnsFactory())
        client = tools.acquire(bootstrap, TARGET, None)
        return FleetClient(client, tools, self._changed.set)

    async def _all_have(self, address: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while any(client.last != address for client in self.clients):
                self._changed.clear()
                await self._changed.wait()

    # Traffic

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count bytes, connections, messages and look-ups while it lasts."""
        write, connect, resolve = SimTransport.write, Fabric.connect, SimNetwork.resolve
        address, fleet = self.control.address, self

        def counted_write(transport: SimTransport, data: Any) -> None:  # noqa: ANN401
            if transport.local == address:
                fleet.traffic.bytes_out += len(data)
            elif transport.remote == address:
                fleet.traffic.bytes_in += len(data)
            write(transport, data)

        async def counted_connect(fabric: Fabric, source: str, to: Address, make: Any) -> Any:  # noqa: ANN401
            traffic = fleet.traffic
            traffic.attempts.append(fleet.world.loop.time())
            found = await connect(fabric, source, to, make)
            traffic.accepted.append(fleet.world.loop.time())
            return found

        async def counted_resolve(network: SimNetwork, host: str, port: int) -> Any:  # noqa: ANN401
            fleet.traffic.lookups += host == CONTROL
            return await resolve(network, host, port)

        trace = self.control.host.trace
        trace.subscribe(self._on_event)
        with (
            mock.patch.object(SimTransport, "write", counted_write),
            mock.patch.object(Fabric, "connect", counted_connect),
            mock.patch.object(SimNetwork, "resolve", counted_resolve),
        ):
            yield

    def _on_event(self, event: Any) -> None:  # noqa: ANN401
        self.traffic.responses += event.name == "controlplane.response"
        self.traffic.requests += event.name == "xds.request"

    async def measure(self, name: str, phase: Any) -> Phase:  # noqa: ANN401 - a coroutine
        self.traffic = traffic = Traffic(self.world.loop.time())
        cpu_s = time.process_time()
        await phase
        seconds = self.world.loop.time() - traffic.started_s
        # The last ACKs are under way.
        await pause(1.0)
        return Phase(
            name,
            round(seconds, 3),
            round(time.process_time() - cpu_s, 2),
            len(traffic.accepted),
            len(traffic.attempts),
            most_in_a_second(traffic.attempts),
            most_in_a_second(sorted(traffic.accepted)),
            traffic.requests,
            traffic.responses,
            traffic.bytes_in,
            traffic.bytes_out,
            traffic.lookups,
        )


def run(
    size: int,
    addresses: int,
    outages_s: tuple[float, ...],
    *,
    seed: int = 1,
    has_name: bool = False,
) -> list[Phase]:
    """Measure a start, a change, and restarts after outages of these lengths."""
    world = World(seed, lines_kept=10)

    fleet = Fleet(world, size, addresses, has_name=has_name)

    async def story() -> list[Phase]:
        with fleet.counted():
            phases = [await fleet.measure("start", fleet.start())]
            phases.append(await fleet.measure("change", fleet.change(2)))
            for version, down_s in enumerate(outages_s, 3):
                await pause(60.0)
                restart = fleet.restart(down_s, version)
                phases.append(await fleet.measure(f"restart after {down_s:g} s", restart))
            await fleet.close()
        return phases

    return world.run(story())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outages", type=float, nargs="*", default=[1.0, 30.0, 600.0])
    parser.add_argument("--dns", action="store_true", help="the control plane has a DNS name")
    parsed = parser.parse_args()
    outages_s, size = tuple(parsed.outages), parsed.clients
    phases = run(size, parsed.endpoints, outages_s, seed=parsed.seed, has_name=parsed.dns)
    for phase in phases:
        print(json.dumps(asdict(phase)))


if __name__ == "__main__":
    main()
