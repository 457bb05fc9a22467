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
# Longer than `until` waits: an RPC that waits for withheld config stops its caller.
DEADLINE_S = 60.0
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
    """Callers that send RPCs without pause, and the results of these."""

    channel: Any
    # Between two RPCs of a caller.
    pause_s: float = 0.0
    served: Counter[str] = field(default_factory=Counter)
    # Number of RPCs that ended, by caller.
    ended: Counter[int] = field(default_factory=Counter)
    is_over: bool = False

    async def call_until_over(self, caller: int) -> None:
        call = self.channel.unary_unary(WHERE)
        self.ended[caller] = 0
        while not self.is_over:
            try:
                answer = bytes(await call(b"", timeout=DEADLINE_S)).decode()
            except grpc.aio.AioRpcError as error:
                answer = str(error)
            self.ended[caller] += 1
            self.served[answer] += 1
            await asyncio.sleep(self.pause_s)

    async def until_each_ended(self, count: int) -> None:
        """Wait until this many more RPCs of each caller have ended."""
        before = self.ended.copy()
        await until(
            lambda: all(self.ended[each] >= before[each] + count for each in self.ended),
            f"{count} RPCs of each caller",
        )


@asynccontextmanager
async def loaded(
    control_plane: ControlPlane, callers: int, pause_s: float = 0.0
) -> AsyncIterator[Load]:
    """This many callers inside the block; afterwards all have ended, and none has failed."""
    bootstrap = control_plane.bootstrap()
    async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        await channel.unary_unary(WHERE)(b"", timeout=DEADLINE_S)
        load = Load(channel, pause_s)
        async with asyncio.TaskGroup() as group:
            for caller in range(callers):
                group.create_task(load.call_until_over(caller))
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
                await until(lambda: len(load.ended) == 20, "all callers")
                await load.until_each_ended(10)
                control_plane.set_snapshot(generation(new, old, version=2))
                await control_plane.wait_for_ack(LISTENER, "2")
                if withheld[0] != ROUTE_CONFIG:
                    # The old cluster is removed as soon as the client has the new routes.
                    await control_plane.wait_for_ack(ROUTE_CONFIG, "2")
                    control_plane.set_snapshot(generation(new, version=3))
                await load.until_each_ended(50)
                assert set(load.served) == {"a"}
                control_plane.release()
                await until(lambda: load.served["b"] > 200, "the new generation")
                await until_applied(control_plane, "b")
            assert not control_plane.nacks


def in_use(channel: Any) -> dict[str, int]:  # noqa: ANN401
    """The number of holders of each cluster, by its name; a selector counts as one."""
    refs = channel._core._resolver._refs  # noqa: SLF001 - the marks themselves
    return {key.removeprefix("cluster:"): refs.count(key) for key in refs.keys}


@pytest.mark.spec("A31-44", "A31-32", "A74-20")
async def test_no_rpc_is_torn_when_routes_flip_a_thousand_times() -> None:
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
