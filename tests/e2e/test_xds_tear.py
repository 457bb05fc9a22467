"""Changes of the mesh are applied as a whole, over real sockets.

Our channel, our control plane, grpcio's backends. The control plane is not paced: it sends all
parts of a change at once, so that the client has to order them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    ServiceOptions,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TARGET = "xds:///api"
WHERE = "/test.Mesh/Where"
WITHHELD_S = 1.0
# The maximum time of one RPC on a busy machine; an RPC that waits for withheld config takes longer.
LATENCY_MAX_S = 0.8
FLIPS = 1000
UNPACED = ServiceOptions(is_paced=False)


def generation(current: NamedBackend, *others: NamedBackend, version: int) -> Snapshot:
    """A mesh that sends all RPCs to one backend; the others are there and not used.

    Every name but the listener's is the backend's own.
    """
    parts = [listener("api", f"routes-{current.name}")]
    for backend in (current, *others):
        name = backend.name
        parts.append(route_config(f"routes-{name}", route(cluster=name)))
        parts.append(eds_cluster(name))
        parts.append(endpoints(name, [backend.address]))
    return Snapshot.of(parts, version=str(version))


@dataclass
class Load:
    """Callers that call again and again, and what became of their RPCs."""

    channel: Any
    # Between two RPCs of a caller.
    pause_s: float = 0.0
    served: Counter[str] = field(default_factory=Counter)
    # Seconds, in the order in which the RPCs ended.
    latencies_s: list[float] = field(default_factory=list)
    is_over: bool = False

    async def call_until_over(self) -> None:
        call = self.channel.unary_unary(WHERE)
        now_s = asyncio.get_running_loop().time
        while not self.is_over:
            start_s = now_s()
            try:
                answer = bytes(await call(b"", timeout=20.0)).decode()
            except grpc.aio.AioRpcError as error:
                answer = str(error)
            self.latencies_s.append(now_s() - start_s)
            self.served[answer] += 1
            await asyncio.sleep(self.pause_s)


@asynccontextmanager
async def loaded(
    control_plane: ControlPlane, callers: int, pause_s: float = 0.0
) -> AsyncIterator[Load]:
    """So many callers while inside; all of them have ended afterwards, and none has failed."""
    bootstrap = control_plane.bootstrap()
    async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        await channel.unary_unary(WHERE)(b"", timeout=20.0)
        load = Load(channel, pause_s)
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(load.call_until_over())
            try:
                yield load
            finally:
                load.is_over = True
        assert set(load.served) <= {"a", "b"}, load.served


def subscribed(control_plane: ControlPlane) -> dict[str, set[str]]:
    """The subscriptions of the only client, by type."""
    [stream] = control_plane.streams
    return {kind: set(each.names) for kind, each in stream.subscriptions.items() if each.names}


def only(name: str) -> dict[str, set[str]]:
    return {
        LISTENER: {"api"},
        ROUTE_CONFIG: {f"routes-{name}"},
        CLUSTER: {name},
        ENDPOINTS: {name},
    }


async def until_applied(control_plane: ControlPlane, name: str) -> None:
    """Wait until the client subscribes to exactly the resources of this generation."""
    await until(lambda: subscribed(control_plane) == only(name), f"only {name} to be asked for")


@pytest.mark.rerun("limits the latency of each RPC")
@pytest.mark.spec("A74-16", "A74-18", "A74-20")
@pytest.mark.parametrize("withheld", [(CLUSTER, "b"), (ENDPOINTS, "b"), (ROUTE_CONFIG, "routes-b")])
async def test_no_rpc_waits_for_a_late_generation(
    withheld: tuple[str, str],
) -> None:
    async with backends("a", "b") as (old, new):
        start = generation(old, version=1)
        async with ControlPlane(start, options=UNPACED) as control_plane:
            control_plane.withhold(*withheld)
            async with loaded(control_plane, callers=20) as load:
                await until(lambda: len(load.latencies_s) > 200, "some calm")
                control_plane.set_snapshot(generation(new, old, version=2))
                await control_plane.wait_for_ack(LISTENER, "2")
                if withheld[0] != ROUTE_CONFIG:
                    # The old cluster is removed as soon as the client has the new routes.
                    await control_plane.wait_for_ack(ROUTE_CONFIG, "2")
                    control_plane.set_snapshot(generation(new, version=3))
                await asyncio.sleep(WITHHELD_S)
                assert set(load.served) == {"a"}
                control_plane.release()
                await until(lambda: load.served["b"] > 200, "the new generation")
                await until_applied(control_plane, "b")
            assert max(load.latencies_s) < LATENCY_MAX_S
            assert not control_plane.nacks


def in_use(channel: Any) -> dict[str, int]:  # noqa: ANN401
    """Who holds each cluster, by its name; a selector counts as one."""
    refs = channel._core._resolver._refs  # noqa: SLF001 - the marks themselves
    return {key.removeprefix("cluster:"): refs.count(key) for key in refs.keys}


@pytest.mark.spec("A31-44", "A31-32", "A74-20")
async def test_a_thousand_flips_under_fifty_callers() -> None:
    async with backends("a", "b") as started:
        start = generation(*started, version=0)
        async with ControlPlane(start, options=UNPACED) as control_plane:
            # Gives the shared loop time for the changes.
            async with loaded(control_plane, callers=50, pause_s=0.1) as load:
                for number in range(1, FLIPS + 1):
                    current, other = started[number % 2], started[1 - number % 2]
                    control_plane.set_snapshot(generation(current, other, version=number))
                    # Some are overtaken by the next, most arrive.
                    if number % 5:
                        await until_applied(control_plane, current.name)
                last = started[FLIPS % 2].name
                await until_applied(control_plane, last)
                served = load.served[last]
                await until(lambda: load.served[last] > served + 100, "RPCs after it")
                load.is_over = True
                await until(lambda: in_use(load.channel) == {last: 1}, "all RPCs to end")
            assert min(load.served.values()) > 50, "both were in force at times"
            assert len(load.served) == 2
            assert not control_plane.nacks
