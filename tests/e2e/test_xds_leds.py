"""Collections of endpoints (LEDS) from our control plane, on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.base import Status, StatusCode
from proxyless.controlplane import (
    ENDPOINTS,
    LB_ENDPOINT,
    ControlPlane,
    Resource,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
)
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from proxyless.protos import Proto

TARGET = "xds:///api"
DIRECTORY = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web"
# One member has about 200 bytes, an EDS resource with 1,000 endpoints 40,000.
ONE_MEMBER_BYTES_MAX = 2_000


def member(name: str, endpoint: Proto | str) -> Resource:
    message = lb_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    return Resource.of(message, f"{DIRECTORY}/{name}")


def mesh(*members: Resource, lb_policy: str = "ROUND_ROBIN", **more: str) -> Snapshot:
    """A mesh whose only cluster has two priorities: the collection, and other addresses."""
    where: dict[Any, Any] = {0: f"{DIRECTORY}/*"}
    if more:
        where[1] = list(more.values())
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", route(cluster="web")),
            eds_cluster("web", lb_policy=lb_policy),
            endpoints("web", where),
            *members,
        ]
    )


class CountingProxy:
    """TCP proxy in front of the control plane that counts the bytes of its responses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = [
            asyncio.ensure_future(self._copy(reader, back_writer, counted=False)),
            asyncio.ensure_future(self._copy(back_reader, writer, counted=True)),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        back_writer.close()
        writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            self.received += len(data) if counted else 0
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def counted(plane: ControlPlane) -> AsyncIterator[tuple[CountingProxy, str]]:
    proxy = CountingProxy(plane.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield proxy, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def calling(
    plane: ControlPlane, *, address: str = "", features: tuple[str, ...] = ("delta",)
) -> AsyncIterator[tuple[Callable[[], Awaitable[str]], Any]]:
    """A call that returns the backend's name, and its channel."""
    bootstrap = {**plane.bootstrap(features=features), "authorities": {"mesh": {}}}
    if address:
        bootstrap["xds_servers"][0]["server_uri"] = address
    async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        call = channel.unary_unary(WHERE)

        async def where() -> str:
            return bytes(await call(b"", timeout=PATIENCE_S)).decode()

        yield where, channel


async def until_only(where: Callable[[], Awaitable[str]], name: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while {await where() for _ in range(4)} != {name}:
            pass


@pytest.mark.spec("LE-01", "LE-14", "A95-02")
async def test_rpcs_go_to_the_members_of_a_collection_as_they_change() -> None:
    async with (
        backends("a", "b") as (a, b),
        ControlPlane(mesh(member("1", a.address))) as plane,
        calling(plane) as (where, _),
    ):
        assert await where() == "a"
        plane.set_snapshot(plane.snapshot.with_(member("1", b.address)))
        await until_only(where, "b")
        plane.set_snapshot(plane.snapshot.with_(member("2", a.address)))
        async with asyncio.timeout(PATIENCE_S):
            while {await where() for _ in range(4)} != {"a", "b"}:
                pass
        plane.set_snapshot(plane.snapshot.without(LB_ENDPOINT, f"{DIRECTORY}/1"))
        await until_only(where, "a")
        [stream] = plane.streams
        assert stream.subscriptions[LB_ENDPOINT].names == {f"{DIRECTORY}/*"}
        assert stream.nack(LB_ENDPOINT) is None


@pytest.mark.spec("LE-05")
async def test_one_changed_endpoint_of_1000_costs_the_bytes_of_one() -> None:
    async with backends("a") as (a,):
        members = [
            member(str(number), f"127.0.{number >> 8}.{number & 255}:9")
            for number in range(1, 1_000)
        ]
        snapshot = mesh(member("0", a.address), *members, lb_policy="RING_HASH")
        async with (
            ControlPlane(snapshot) as plane,
            counted(plane) as (proxy, address),
            calling(plane, address=address) as (_, channel),
        ):
            channel.get_state(try_to_connect=True)
            await plane.wait_for_streams(1)
            await plane.wait_for_ack(LB_ENDPOINT)
            first, proxy.received = proxy.received, 0
            plane.set_snapshot(snapshot.with_(member("7", "127.1.2.3:9")))
            await plane.wait_for_ack(LB_ENDPOINT)
            assert first > 50_000
            assert proxy.received < ONE_MEMBER_BYTES_MAX


@pytest.mark.spec("LE-08")
async def test_changes_of_a_time_without_a_stream_come_with_the_next() -> None:
    async with backends("a", "b") as (a, b):
        snapshot = mesh(member("1", a.address), member("2", a.address))
        async with ControlPlane(snapshot) as plane, calling(plane) as (where, _):
            assert await where() == "a"
            plane.withhold(LB_ENDPOINT)
            changed = snapshot.with_(member("3", b.address)).without(
                LB_ENDPOINT, f"{DIRECTORY}/1", f"{DIRECTORY}/2"
            )
            plane.set_snapshot(changed)
            plane.break_streams(Status(StatusCode.UNAVAILABLE, "gone"))
            assert await where() == "a"
            plane.release(LB_ENDPOINT)
            await until_only(where, "b")


@pytest.mark.spec("LE-07")
async def test_invalid_member_is_rejected_and_the_others_are_used() -> None:
    async with (
        backends("a", "b") as (a, b),
        ControlPlane(mesh(member("1", a.address))) as plane,
        calling(plane) as (where, _),
    ):
        assert await where() == "a"
        broken = lb_endpoint(a.address)
        broken.endpoint.address.socket_address.address = "no address"
        plane.set_snapshot(plane.snapshot.with_(member("1", broken), member("2", b.address)))
        nack = await plane.wait_for_nack(LB_ENDPOINT)
        assert f'endpoint "{DIRECTORY}/1"' in nack.message
        assert "wanted a literal IP address" in nack.message
        async with asyncio.timeout(PATIENCE_S):
            while {await where() for _ in range(4)} != {"a", "b"}:
                pass


@pytest.mark.spec("LE-11")
async def test_next_priority_is_used_when_the_collection_does_not_exist() -> None:
    async with (
        backends("a", "b") as (a, b),
        ControlPlane(mesh(other=b.address)) as plane,
        calling(plane) as (where, _),
    ):
        assert await where() == "b"
        plane.set_snapshot(plane.snapshot.with_(member("1", a.address)))
        await until_only(where, "a")


@pytest.mark.spec("LE-11")
async def test_rpcs_fail_with_the_reason_when_the_collection_does_not_exist() -> None:
    async with ControlPlane(mesh()) as plane, calling(plane) as (where, _):
        with pytest.raises(grpc.RpcError) as failure:
            await where()
        details = failure.value.details()
        assert f'endpoint "{DIRECTORY}/*": does not exist' in details


@pytest.mark.spec("LE-03")
async def test_state_of_the_world_rejects_collections() -> None:
    async with backends("a") as (a,):
        snapshot = mesh(member("1", a.address))
        async with ControlPlane(snapshot) as plane, calling(plane, features=()) as (where, _):
            call = asyncio.ensure_future(where())
            nack = await plane.wait_for_nack(ENDPOINTS)
            assert "needs incremental xDS" in nack.message
            with pytest.raises(grpc.RpcError) as failure:
                await call
            assert "needs incremental xDS" in failure.value.details()


async def test_explanation_names_the_collection_of_a_locality() -> None:
    async with (
        backends("a") as (a,),
        ControlPlane(mesh(member("1", a.address))) as plane,
        calling(plane) as (where, channel),
    ):
        assert await where() == "a"
        text = str(channel.explain(WHERE))
        assert f'endpoints of collection "{DIRECTORY}/*"' in text
        assert a.address in text
