"""Outages of the control plane of ten minutes, across a change of every resource (D50, D51)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from proxyless.sim import UNARY, World, pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxyless.front import AioChannel

OUTAGE_S = 600.0
# The longest backoff, a connection attempt, and the way of the resources.
FOUND_AFTER_S = 30.0 + 20.0 + 5.0
TYPES = (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)


class OutageWorld:
    """A world with two backends, each of them the cluster of one generation, and a caller."""

    def __init__(self) -> None:
        self.world = World(seed=11)
        self.backends = [self.world.backend(name) for name in ("old", "new")]
        self.control = self.world.control_plane(snapshot=self.snapshot(0))
        self.client = self.world.client("till")
        self.replies: list[bytes] = []

    def snapshot(self, generation: int) -> Snapshot:
        """Resources of a generation; no name of a cluster or route configuration is the same."""
        name, address = f"web-{generation}", str(self.backends[generation].address)
        routes = f"routes-{generation}"
        made = [
            listener("orders", routes),
            route_config(routes, route(cluster=name)),
            eds_cluster(name),
            endpoints(name, [address]),
        ]
        return Snapshot.of(made, version=str(generation))

    async def call_for(self, channel: AioChannel, duration_s: float) -> None:
        """One RPC per second; each must succeed."""
        until_s = self.world.now_s() + duration_s
        while self.world.now_s() < until_s:
            self.replies.append(await channel.unary_unary(UNARY)(b"", timeout=1.0))
            await pause(1.0)

    # Outages

    async def stop(self) -> None:
        await self.control.stop()

    async def kill(self) -> None:
        self.control.host.reset_connections()
        await self.control.stop()

    async def cut(self) -> None:
        self.control.host.cut(*self.world.others(self.control.host))

    async def hang(self) -> None:
        self.control.host.hang(*self.world.others(self.control.host))

    async def mute(self) -> None:
        for type_url in TYPES:
            self.control.withhold(type_url)
        self.control.break_streams()

    async def recover(self) -> None:
        others = self.world.others(self.control.host)
        self.control.host.heal(*others)
        self.control.host.wake(*others)
        self.control.release()
        await self.control.start()


@pytest.mark.spec("HOLD-01", "HOLD-03", "HOLD-09")
@pytest.mark.parametrize("delivered", range(5))
@pytest.mark.parametrize("kind", ["stop", "kill", "cut", "hang", "mute"])
def test_no_rpc_fails_in_a_long_outage_across_a_change_of_every_resource(
    kind: str, delivered: int
) -> None:
    """The first `delivered` types of the change reach the client before the outage."""
    made = OutageWorld()
    lose: Callable[[], Awaitable[None]] = getattr(made, kind)

    async def story() -> None:
        channel: Any = made.client.channel("xds:///orders")
        await channel.channel_ready()
        await made.call_for(channel, 5.0)
        for type_url in TYPES[delivered:]:
            made.control.withhold(type_url)
        made.control.set_snapshot(made.snapshot(1))
        await pause(0.5)
        await lose()
        await made.call_for(channel, OUTAGE_S)
        # Unless the whole change was delivered, the old routes are held.
        expected = {b"new"} if delivered == len(TYPES) else {b"old"}
        assert set(made.replies[10:]) == expected
        await made.recover()
        await made.call_for(channel, FOUND_AFTER_S)
        assert made.replies[-1] == b"new"

    made.world.run(story(), virtual_seconds=2_000.0)
    assert not made.world.exceptions


@pytest.mark.parametrize("is_delta", [False, True])
def test_no_rpc_fails_when_the_control_plane_comes_back_with_another_mesh(
    *, is_delta: bool
) -> None:
    """Nothing of the mesh in use is left in the one that clients get when they connect again."""
    made = OutageWorld()
    made.control.is_delta = is_delta

    async def story() -> None:
        channel: Any = made.client.channel("xds:///orders")
        await channel.channel_ready()
        await made.call_for(channel, 2.0)
        await made.stop()
        made.control.set_snapshot(made.snapshot(1))
        await pause(10.0)
        await made.recover()
        while not made.control.streams:
            await pause(0.0001)
        calls = []
        for _ in range(1_000):
            calls.append(asyncio.ensure_future(channel.unary_unary(UNARY)(b"", timeout=1.0)))
            await pause(0.0001)
        made.replies += await asyncio.gather(*calls)
        assert {made.replies[0], made.replies[-1]} == {b"old", b"new"}

    made.world.run(story(), virtual_seconds=200.0)
    assert not made.world.exceptions


@pytest.mark.spec("HOLD-10")
@pytest.mark.parametrize("is_delta", [False, True])
@pytest.mark.parametrize("late", [LISTENER, ROUTE_CONFIG])
def test_no_rpc_fails_when_the_routes_come_long_after_the_clusters_of_another_mesh(
    late: str, *, is_delta: bool
) -> None:
    """A server without an order of its own answers CDS, without the cluster in use, first."""
    made = OutageWorld()
    made.control.is_delta, made.control.is_paced = is_delta, False

    async def story() -> None:
        channel: Any = made.client.channel("xds:///orders")
        await channel.channel_ready()
        await made.call_for(channel, 2.0)
        await made.stop()
        made.control.set_snapshot(made.snapshot(1))
        made.control.withhold(late)
        await pause(10.0)
        await made.control.start()
        while not made.control.streams:
            await pause(0.1)
        await made.call_for(channel, 10.0)
        assert set(made.replies) == {b"old"}
        made.control.release()
        await made.call_for(channel, 5.0)
        assert made.replies[-1] == b"new"

    made.world.run(story(), virtual_seconds=200.0)
    assert not made.world.exceptions
