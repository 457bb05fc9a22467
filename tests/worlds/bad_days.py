"""A bad day of a client in the simulator: backends die, the config changes, backends come back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from proxyless.controlplane import Locality, Snapshot, eds_cluster, endpoints, listener, route
from proxyless.sim import UNARY, World, pause

PORT = 50051


def bad_day(seed: int = 7) -> list[str]:
    """The lines of the recording of a day with a failover, a second one, and a failback."""
    world = World(seed)
    first, second, third, fourth, _last = (world.backend(f"web-{n}") for n in range(1, 6))
    control = world.control_plane("control", _mesh("1", {0: (1, 2), 1: (3, 4)}))

    async def live() -> list[str]:
        client = world.client("shop")
        recorder = client.host.record_flight()
        call = client.channel("xds:///api").unary_unary(UNARY)

        async def send_all() -> None:
            for _ in range(400):
                with suppress(grpc.aio.AioRpcError):
                    await call(b"", timeout=2.0)
                await pause(0.2)

        load = asyncio.ensure_future(send_all())
        await pause(5)
        await first.kill()
        await pause(3)
        await second.kill()
        await pause(10)
        control.set_snapshot(_mesh("2", {0: (1, 2), 1: (3, 4), 2: (5,)}))
        await pause(5)
        await third.kill()
        await fourth.lose_power()
        await pause(20)
        await second.start()
        await load
        return list(recorder.dump_lines())

    return world.run(live())


def _mesh(version: str, priorities: dict[int, tuple[int, ...]]) -> Snapshot:
    addresses: dict[int | Locality, list[str]] = {
        number: [f"10.0.0.{host}:{PORT}" for host in hosts] for number, hosts in priorities.items()
    }
    resources = [
        listener("api", [route(cluster="web")]),
        eds_cluster("web"),
        endpoints("web", addresses),
    ]
    return Snapshot.of(resources, version)
