"""Mirrored RPCs (`request_mirror_policies` of a route): the whole stack, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.base import Status, StatusCode
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    Snapshot,
    eds_cluster,
    endpoints,
    fault,
    fault_filter,
    listener,
    route,
)
from proxyless.metrics.instruments import MIRRORED_RPCS
from proxyless.sim import STREAM, UNARY, World, pause
from tests.worlds.stats_plugins import RecordingPlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.front import AioChannel

TARGET = "xds:///api"
# Longer than connecting takes.
SOON_S = 1.0


class MirroredMesh:
    """A service with one backend, whose RPCs are mirrored to another cluster."""

    def __init__(self) -> None:
        self.world = World(seed=1)
        self.main = self.world.backend("main")
        self.copy = self.world.backend("copy")
        self.plugin = RecordingPlugin()
        self.channel: AioChannel
        self.control = self.world.control_plane("control", self.snapshot())

    def snapshot(self, percent: int | None = None, **faults: Any) -> Snapshot:  # noqa: ANN401
        mirrored = fault(route(cluster="web", timeout_s=5.0), **faults)
        policy = mirrored.route.request_mirror_policies.add(cluster="copies")
        if percent is not None:
            policy.runtime_fraction.default_value.numerator = percent
        return Snapshot.of(
            [
                listener("api", [mirrored], filters=[fault_filter()]),
                eds_cluster("web"),
                endpoints("web", [str(self.main.address)]),
                eds_cluster("copies"),
                endpoints("copies", [str(self.copy.address)]),
            ]
        )

    def open(self) -> AioChannel:
        registries = proxyless.Registries().extended(metrics=[self.plugin])
        self.channel = self.world.client().channel(TARGET, registries=registries)
        return self.channel

    async def connect(self) -> AioChannel:
        """A channel that is connected to both clusters; both backends count from 0."""
        channel = self.open()
        await self.call()
        await pause(SOON_S)
        self.main.rpcs = self.copy.rpcs = 0
        return channel

    async def call(self, count: int = 1) -> None:
        for _ in range(count):
            assert await self.channel.unary_unary(UNARY)(b"", timeout=5.0) == b"main"

    def statuses(self) -> dict[str, int]:
        counts = self.plugin.counts(MIRRORED_RPCS)
        return {labels[1]: count for labels, count in counts.items()}


@pytest.fixture
def mesh() -> Iterator[MirroredMesh]:
    mesh = MirroredMesh()
    yield mesh
    assert not mesh.world.exceptions
    assert not mesh.world.left_behind


# Copies


@pytest.mark.spec("MR-01", "MR-08")
def test_unary_rpcs_are_copied_once_each(mesh: MirroredMesh) -> None:
    async def story() -> None:
        await mesh.connect()
        await mesh.call(10)
        await pause(SOON_S)
        assert (mesh.main.rpcs, mesh.copy.rpcs) == (10, 10)
        assert mesh.statuses()["OK"] == 10

    mesh.world.run(story())


@pytest.mark.spec("MR-01")
def test_server_streaming_rpcs_are_copied_and_client_streaming_ones_are_not(
    mesh: MirroredMesh,
) -> None:
    async def story() -> None:
        channel = await mesh.connect()
        assert [each async for each in channel.unary_stream(STREAM)(b"")] == [b"main"]
        await pause(SOON_S)
        assert (mesh.main.rpcs, mesh.copy.rpcs) == (1, 1)
        stream = channel.stream_stream(STREAM)()
        for _ in range(2):
            await stream.write(b"")
            assert await stream.read() == b"main"
        await stream.done_writing()
        await pause(SOON_S)
        assert (mesh.main.rpcs, mesh.copy.rpcs) == (2, 1)

    mesh.world.run(story())


@pytest.mark.spec("MR-01")
def test_stream_of_one_request_is_not_copied_even_if_it_is_complete_after_a_delay(
    mesh: MirroredMesh,
) -> None:
    mesh.control.set_snapshot(mesh.snapshot(delay_s=2.0))

    async def story() -> None:
        channel = await mesh.connect()
        stream = channel.stream_stream(STREAM)()
        # A blocking channel does the same in its own thread: it does not wait for the delay.
        writing = asyncio.create_task(stream.write(b""))
        await pause(SOON_S)
        await stream.done_writing()
        await writing
        assert await stream.read() == b"main"
        await pause(SOON_S)
        assert (mesh.main.rpcs, mesh.copy.rpcs) == (1, 0)

    mesh.world.run(story())


@pytest.mark.spec("MR-02")
def test_share_of_copies_is_that_of_the_fraction(mesh: MirroredMesh) -> None:
    mesh.control.set_snapshot(mesh.snapshot(percent=30))

    async def story() -> None:
        await mesh.connect()
        await mesh.call(300)
        await pause(SOON_S)
        assert 60 < mesh.copy.rpcs < 120

    mesh.world.run(story())


@pytest.mark.spec("MR-01")
def test_copies_begin_and_end_with_the_policy_of_the_route(mesh: MirroredMesh) -> None:
    mesh.control.set_snapshot(mesh.snapshot(percent=0))

    async def story() -> None:
        await mesh.connect()
        await mesh.call(5)
        assert mesh.copy.accepted == 0
        mesh.control.set_snapshot(mesh.snapshot())
        await pause(SOON_S)
        await mesh.call(5)
        await pause(SOON_S)
        assert mesh.copy.rpcs == 5
        mesh.control.set_snapshot(mesh.snapshot(percent=0))
        await pause(SOON_S)
        await mesh.call(5)
        await pause(SOON_S)
        assert mesh.copy.rpcs == 5

    mesh.world.run(story())


@pytest.mark.spec("MR-08")
def test_explanation_names_the_mirror(mesh: MirroredMesh) -> None:
    mesh.control.set_snapshot(mesh.snapshot(percent=30))

    async def story() -> None:
        channel = await mesh.connect()
        text = 'mirror: 30 % of RPCs with one request are copied to cluster "copies"'
        assert text in str(channel.explain(UNARY))

    mesh.world.run(story())


# Mirrors that do not work


@pytest.mark.spec("MR-05")
@pytest.mark.parametrize("missing", ["cluster", "endpoint resource", "endpoints"])
def test_first_rpc_does_not_wait_for_a_missing_mirror(mesh: MirroredMesh, missing: str) -> None:
    snapshot = mesh.snapshot()
    match missing:
        case "cluster":
            snapshot = snapshot.without(CLUSTER, "copies", partial=True)
        case "endpoint resource":
            snapshot = snapshot.without(ENDPOINTS, "copies", partial=True)
        case _:
            snapshot = snapshot.with_(endpoints("copies", []))
    mesh.control.set_snapshot(snapshot)

    async def story() -> None:
        mesh.open()
        began_s = mesh.world.now_s()
        await mesh.call(3)
        assert mesh.world.now_s() - began_s < SOON_S
        # The resource counts as missing after 15 s.
        await pause(20.0)
        await mesh.call(3)
        assert mesh.channel.get_state() is grpc.ChannelConnectivity.READY
        assert set(mesh.statuses()) == {"UNAVAILABLE"}
        mesh.control.set_snapshot(mesh.snapshot())
        await pause(SOON_S)
        await mesh.call(3)
        await pause(SOON_S)
        assert mesh.copy.rpcs == 3

    mesh.world.run(story())


@pytest.mark.spec("MR-04", "MR-05")
def test_dead_mirror_changes_nothing_for_callers(mesh: MirroredMesh) -> None:
    async def story() -> None:
        await mesh.connect()
        await mesh.copy.kill()
        began_s = mesh.world.now_s()
        await mesh.call(10)
        assert mesh.world.now_s() - began_s < SOON_S
        assert mesh.channel.get_state() is grpc.ChannelConnectivity.READY
        assert mesh.main.rpcs == 10
        await mesh.copy.start()
        await pause(30.0)
        await mesh.call(1)
        await pause(SOON_S)
        assert mesh.copy.rpcs == 1

    mesh.world.run(story())


@pytest.mark.spec("MR-04")
def test_failing_mirror_changes_nothing_for_callers(mesh: MirroredMesh) -> None:
    async def story() -> None:
        await mesh.connect()
        mesh.copy.status = Status(StatusCode.INTERNAL, "broken")
        await mesh.call(10)
        await pause(SOON_S)
        assert mesh.copy.rpcs == 10
        assert mesh.statuses()["INTERNAL"] == 10

    mesh.world.run(story())


@pytest.mark.spec("MR-04", "MR-06")
def test_slow_mirror_delays_neither_rpcs_nor_close(mesh: MirroredMesh) -> None:
    async def story() -> None:
        channel = await mesh.connect()
        mesh.copy.delay_s = 3600.0
        began_s = mesh.world.now_s()
        await mesh.call(10)
        assert mesh.world.now_s() - began_s < SOON_S
        # The copies are in flight, and end with the timeout of the route.
        assert mesh.copy.rpcs == 10
        await pause(6.0)
        assert mesh.statuses()["DEADLINE_EXCEEDED"] == 10
        await mesh.call(1)
        began_s = mesh.world.now_s()
        await channel.close(grace=100.0)
        assert mesh.world.now_s() - began_s < SOON_S
        assert mesh.statuses()["CANCELLED"] == 1

    mesh.world.run(story())


@pytest.mark.spec("MR-04")
def test_state_of_the_channel_does_not_depend_on_the_mirror(mesh: MirroredMesh) -> None:
    async def story() -> None:
        await mesh.connect()
        await mesh.main.kill()
        await pause(SOON_S)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await mesh.call()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert mesh.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    mesh.world.run(story())


# Filters


@pytest.mark.spec("MR-07")
def test_rpc_that_a_filter_aborts_is_not_copied(mesh: MirroredMesh) -> None:
    mesh.control.set_snapshot(mesh.snapshot(abort=StatusCode.PERMISSION_DENIED))

    async def story() -> None:
        mesh.open()
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError):
                await mesh.call()
            await pause(SOON_S)
        assert mesh.copy.rpcs == 0

    mesh.world.run(story())


@pytest.mark.spec("MR-07")
def test_copy_is_sent_after_the_delay_of_its_original(mesh: MirroredMesh) -> None:
    mesh.control.set_snapshot(mesh.snapshot(delay_s=2.0))

    async def story() -> None:
        await mesh.connect()
        call = asyncio.create_task(mesh.call())
        await pause(1.5)
        assert mesh.copy.rpcs == 0
        await call
        await pause(SOON_S)
        assert mesh.copy.rpcs == 1

    mesh.world.run(story())
