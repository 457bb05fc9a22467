"""Failover of an aggregate cluster under load, on real sockets (A75, A56)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from typing import TYPE_CHECKING, Final

import grpc
import pytest

import proxyless
from proxyless.base import OK, IpAddress, Status
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.transport import Server, ServerCall
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from proxyless.front import AioChannel

PATH: Final = "/test.Aggregate/Who"
# RPCs per second, of each of the two loads.
RATE: Final = 100
# Longer than any wait of a test.
NEVER_S: Final = 3600.0
QUICK_RECONNECTS: Final = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
]


@pytest.fixture(autouse=True)
def no_failover_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failover must not need the timer: connections that are refused fail at once."""
    monkeypatch.setattr("proxyless.lb.policies.priority.policy.FAILOVER_TIMEOUT_S", NEVER_S)


class Level:
    """A backend that answers with its name, and finishes its RPCs when it stops.

    grpcio's servers cancel RPCs that come while they stop, so this is one of ours.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._address = IpAddress("127.0.0.1", 0)
        self._server: Server | None = None
        self._accepted_before = 0

    @property
    def address(self) -> str:
        return str(self._address)

    @property
    def port(self) -> int:
        return self._address.port

    @property
    def accepted(self) -> int:
        """Number of connections so far."""
        return self._accepted_before + (self._server.accepted if self._server else 0)

    async def start(self) -> None:
        """Serve, at the same port each time."""
        self._server = Server({PATH: self._answer})
        address = await self._server.listen(self._address)
        assert isinstance(address, IpAddress)
        self._address = address

    async def leave(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._accepted_before += server.accepted
            server.drain()
            await until(lambda: not server.connections, "the last RPC to end")
            await server.close()

    async def _answer(self, call: ServerCall) -> Status:
        await call.read()
        call.send_head()
        await call.write(self.name.encode())
        return OK


@asynccontextmanager
async def levels_of(*names: str) -> AsyncIterator[list[Level]]:
    async with AsyncExitStack() as exits:
        started = [Level(name) for name in names]
        for level in started:
            await level.start()
            exits.push_async_callback(level.leave)
        yield started


@dataclass
class Rpc:
    """One RPC: its times, and its backend or its error."""

    started_s: float
    ended_s: float = inf
    answer: str = ""
    code: grpc.StatusCode | None = None


class Load:
    """RPCs at a steady rate, one not waiting for the other."""

    def __init__(self, channel: AioChannel, *, wait_for_ready: bool) -> None:
        self._call = channel.unary_unary(PATH)
        self._wait_for_ready = wait_for_ready
        # In the order of their starts.
        self.rpcs: list[Rpc] = []
        self._is_over = False

    async def run(self) -> None:
        """Send RPCs until stopped, then wait for those under way."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while not self._is_over:
                rpc = Rpc(loop.time())
                self.rpcs.append(rpc)
                group.create_task(self._run_one(rpc))
                await asyncio.sleep(1 / RATE)

    def stop(self) -> None:
        self._is_over = True

    async def _run_one(self, rpc: Rpc) -> None:
        try:
            reply = await self._call(b"", timeout=NEVER_S, wait_for_ready=self._wait_for_ready)
        except grpc.aio.AioRpcError as error:
            rpc.answer, rpc.code = str(error.details()), error.code()
        else:
            rpc.answer, rpc.code = bytes(reply).decode(), grpc.StatusCode.OK
        rpc.ended_s = asyncio.get_running_loop().time()

    @property
    def failures(self) -> list[Rpc]:
        return [rpc for rpc in self.rpcs if rpc.code not in {None, grpc.StatusCode.OK}]

    @property
    def order(self) -> list[str]:
        """The backends that served, in order, with one name for a run of RPCs."""
        served = (rpc.answer for rpc in self.rpcs if rpc.code is grpc.StatusCode.OK)
        return [name for name, _ in groupby(served)]

    async def until_served_by(self, name: str) -> None:
        """Wait until ten RPCs that start now are served by this backend."""
        started = len(self.rpcs)
        await until(
            lambda: sum(rpc.answer == name for rpc in self.rpcs[started:]) >= 10,
            f"RPCs that {name} serves",
        )


@dataclass
class Loads:
    """Two loads: RPCs with and without wait-for-ready."""

    patient: Load
    hasty: Load

    async def until_served_by(self, name: str) -> None:
        await self.patient.until_served_by(name)
        await self.hasty.until_served_by(name)


@asynccontextmanager
async def loaded(snapshot: Snapshot) -> AsyncIterator[tuple[ControlPlane, Loads]]:
    """A channel of this mesh under load."""
    async with (
        ControlPlane(snapshot) as control_plane,
        proxyless.aio.insecure_channel(
            "xds:///api", options=QUICK_RECONNECTS, bootstrap=control_plane.bootstrap()
        ) as channel,
        asyncio.TaskGroup() as group,
    ):
        loads = Loads(Load(channel, wait_for_ready=True), Load(channel, wait_for_ready=False))
        both = (loads.patient, loads.hasty)
        for load in both:
            group.create_task(load.run())
        try:
            yield control_plane, loads
        finally:
            for load in both:
                load.stop()


def three_levels(high: Level, low: Level, dns: Level, last: Level) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", [route(cluster="top")]),
            aggregate_cluster("top", ["first", "second", "third"]),
            eds_cluster("first"),
            endpoints("first", {0: [high.address], 1: [low.address]}),
            dns_cluster("second", "localhost", dns.port),
            eds_cluster("third"),
            endpoints("third", [last.address]),
        ]
    )


@pytest.mark.spec("A75-07")
async def test_levels_fail_over_in_their_order_and_back() -> None:
    loop = asyncio.get_running_loop()
    async with (
        levels_of("high", "low", "dns", "last") as levels,
        loaded(three_levels(*levels)) as (_, loads),
    ):
        await loads.until_served_by("high")
        for level, below in pairwise(levels):
            await level.leave()
            await loads.until_served_by(below.name)
        all_left_s = loop.time()
        await levels[3].leave()
        await until(lambda: loads.hasty.failures, "an RPC to fail")
        await levels[3].start()
        await loads.until_served_by("last")
        one_is_back_s = loop.time()
        for level in reversed(levels[:3]):
            await level.start()
            await loads.until_served_by(level.name)
    expected = ["high", "low", "dns", "last", "dns", "low", "high"]
    assert loads.patient.order == loads.hasty.order == expected
    assert not loads.patient.failures
    # RPCs without wait-for-ready fail only while no level is up.
    for rpc in loads.hasty.failures:
        assert rpc.code is grpc.StatusCode.UNAVAILABLE
        assert all_left_s <= rpc.ended_s
        assert rpc.started_s <= one_is_back_s


@pytest.mark.spec("A75-07")
async def test_each_level_alone_fails_and_recovers() -> None:
    async with (
        levels_of("high", "low", "dns", "last") as levels,
        loaded(three_levels(*levels)) as (_, loads),
    ):
        await loads.until_served_by("high")
        # The loss of an unused level has no effect.
        for level in levels[1:]:
            await level.leave()
            await level.start()
        high, low = levels[:2]
        await high.leave()
        await loads.until_served_by("low")
        await high.start()
        await loads.until_served_by("high")
        # With both priorities gone the second cluster serves, until one of them is back.
        await asyncio.gather(high.leave(), low.leave())
        await loads.until_served_by("dns")
        await high.start()
        await loads.until_served_by("high")
    assert not loads.patient.failures
    assert not loads.hasty.failures


def in_order(backends: Sequence[Level], names: str) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", [route(cluster="top")]),
            aggregate_cluster("top", list(names)),
            *(eds_cluster(backend.name) for backend in backends),
            *(endpoints(backend.name, [backend.address]) for backend in backends),
        ]
    )


@pytest.mark.spec("A75-09")
async def test_another_order_loses_no_rpc_and_no_connection() -> None:
    async with (
        levels_of("a", "b", "c") as backends,
        loaded(in_order(backends, "abc")) as (control_plane, loads),
    ):
        await loads.until_served_by("a")
        orders = ["bca", "cab", "abc"] * 3
        for names in orders:
            control_plane.set_snapshot(in_order(backends, names))
            await loads.until_served_by(names[0])
    expected = ["a", *(names[0] for names in orders)]
    assert loads.patient.order == loads.hasty.order == expected
    assert not loads.patient.failures
    assert not loads.hasty.failures
    assert [backend.accepted for backend in backends] == [1, 1, 1]
