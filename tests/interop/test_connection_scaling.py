"""Several connections to one grpcio server with a limit of concurrent streams (A105)."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

import proxyless.aio
from proxyless.controlplane import ControlPlane, eds_cluster, simple_mesh
from proxyless.lb.connection_limit import SERVICE_CONFIG_GUARD, XDS_GUARD
from tests.interop.drop_in import Untyped, stop_server
from tests.worlds.live_meshes import live_client
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WAIT = "/test.Service/Wait"
STREAMS_MAX = 2
CALLS = 20


class GatedBackend:
    """A grpcio server whose RPCs wait until the gate is opened."""

    def __init__(self) -> None:
        self.server: Untyped = grpc.aio.server(
            options=[("grpc.max_concurrent_streams", STREAMS_MAX), ("grpc.so_reuseport", 0)]
        )
        methods = {"Wait": grpc.unary_unary_rpc_method_handler(self._wait)}
        handler = grpc.method_handlers_generic_handler("test.Service", methods)
        self.server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.gate = asyncio.Event()
        self.running = 0
        # The connections that RPCs came on.
        self.peers: set[str] = set()

    async def _wait(self, request: bytes, context: Untyped) -> bytes:
        self.peers.add(context.peer())
        self.running += 1
        await self.gate.wait()
        self.running -= 1
        return request


@asynccontextmanager
async def gated_backend() -> AsyncIterator[GatedBackend]:
    backend = GatedBackend()
    await backend.server.start()
    try:
        yield backend
    finally:
        backend.gate.set()
        await stop_server(backend.server)


def scaling_options(maximum: int, *more: tuple[str, int]) -> list[tuple[str, Untyped]]:
    config = {"connectionScaling": {"maxConnectionsPerSubchannel": maximum}}
    return [("grpc.service_config", json.dumps(config)), *more]


async def expect_connections(channel: Untyped, backend: GatedBackend, connections: int) -> None:
    """Start more calls than streams, check how many run at once, and let all end."""
    wait = channel.unary_unary(WAIT)
    calls = [wait(b"%d" % number, timeout=PATIENCE_S) for number in range(CALLS)]
    await until(lambda: backend.running == connections * STREAMS_MAX, "all streams in use")
    assert len(backend.peers) == connections
    backend.gate.set()
    assert await asyncio.gather(*calls) == [b"%d" % number for number in range(CALLS)]
    assert len(backend.peers) == connections


@pytest.mark.spec("A105-02", "A105-05")
@pytest.mark.parametrize(("maximum", "cap", "connections"), [(3, 10, 3), (5, 2, 2), (1, 10, 1)])
async def test_calls_share_as_many_connections_as_the_service_config_allows(
    monkeypatch: pytest.MonkeyPatch, maximum: int, cap: int, connections: int
) -> None:
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    options = scaling_options(maximum, ("grpc.max_connections_per_subchannel_cap", cap))
    async with (
        gated_backend() as backend,
        proxyless.aio.insecure_channel(backend.address, options) as channel,
    ):
        await expect_connections(channel, backend, connections)


@pytest.mark.spec("A105-02")
@pytest.mark.parametrize("maximum", [0, 3, 99])
async def test_grpcio_opens_as_many_connections_with_the_same_config(
    monkeypatch: pytest.MonkeyPatch, maximum: int
) -> None:
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    options, peers = scaling_options(maximum), []
    for connect in (proxyless.aio.insecure_channel, grpc.aio.insecure_channel):
        async with gated_backend() as backend, connect(backend.address, options=options) as channel:
            wait = channel.unary_unary(WAIT)
            calls = [wait(b"", timeout=PATIENCE_S) for _ in range(CALLS)]
            wanted = max(maximum, 1) * STREAMS_MAX
            await until(lambda: backend.running == min(wanted, CALLS), "all streams in use")  # noqa: B023
            peers.append(len(backend.peers))
            backend.gate.set()
            # Some RPCs of grpcio fail: its server refuses streams within the limit.
            await asyncio.gather(*calls, return_exceptions=True)
    assert peers == [min(max(maximum, 1), CALLS // STREAMS_MAX)] * 2


@pytest.mark.spec("A105-01", "A105-02")
async def test_calls_share_one_connection_unless_the_environment_enables_more() -> None:
    async with (
        gated_backend() as backend,
        proxyless.aio.insecure_channel(backend.address, scaling_options(3)) as channel,
    ):
        await expect_connections(channel, backend, 1)


@pytest.mark.spec("A105-03", "A105-05")
async def test_calls_share_as_many_connections_as_the_cluster_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(XDS_GUARD, "true")
    cluster = eds_cluster("orders")
    cluster.circuit_breakers.per_host_thresholds.add().max_connections.value = 3
    async with gated_backend() as backend:
        mesh = simple_mesh("api", {"orders": [backend.address]}).with_(cluster)
        async with (
            ControlPlane(mesh) as control_plane,
            proxyless.aio.insecure_channel(
                "xds:///api", bootstrap=control_plane.bootstrap()
            ) as channel,
        ):
            await expect_connections(channel, backend, 3)


@pytest.mark.spec("A105-10")
async def test_calls_are_sent_again_when_the_server_closes_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    async with gated_backend() as first, gated_backend() as second:
        target = f"ipv4:{first.address},{second.address}"
        async with proxyless.aio.insecure_channel(target, scaling_options(2)) as channel:
            wait = channel.unary_unary(WAIT)
            calls = [wait(b"%d" % number, timeout=PATIENCE_S) for number in range(CALLS)]
            await until(lambda: first.running == 2 * STREAMS_MAX, "all streams in use")
            first.gate.set()
            second.gate.set()
            # GOAWAY on both connections: calls under way end, the others go to the next address.
            await first.server.stop(PATIENCE_S)
            assert await asyncio.gather(*calls) == [b"%d" % number for number in range(CALLS)]


@pytest.mark.spec("A105-11")
async def test_channelz_shows_all_connections_as_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    async with (
        gated_backend() as backend,
        live_client() as client,
        proxyless.aio.insecure_channel(backend.address, scaling_options(3)) as channel,
    ):
        wait = channel.unary_unary(WAIT)
        calls = [wait(b"", timeout=PATIENCE_S) for _ in range(CALLS)]
        await until(lambda: backend.running == 3 * STREAMS_MAX, "all streams in use")
        stub = channelz_pb2_grpc.ChannelzStub(client.channel)
        top = await stub.GetTopChannels(channelz_pb2.GetTopChannelsRequest())
        [found] = [each for each in top.channel if each.data.target.endswith(backend.address)]
        [ref] = found.subchannel_ref
        request = channelz_pb2.GetSubchannelRequest(subchannel_id=ref.subchannel_id)
        subchannel = (await stub.GetSubchannel(request)).subchannel
        started = []
        for socket_ref in subchannel.socket_ref:
            socket_request = channelz_pb2.GetSocketRequest(socket_id=socket_ref.socket_id)
            socket = (await stub.GetSocket(socket_request)).socket
            started.append(socket.data.streams_started)
        backend.gate.set()
        await asyncio.gather(*calls)
    assert started == [STREAMS_MAX] * 3
