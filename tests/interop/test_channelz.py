"""Our channelz service, read with the stubs of grpcio-channelz."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

import proxyless.aio
from tests.worlds.live_meshes import METHOD, TARGET, live_client, live_mesh


async def test_channel_subchannel_and_socket_are_found_from_the_top() -> None:
    async with (
        live_mesh() as mesh,
        live_client() as client,
        proxyless.aio.insecure_channel(TARGET, bootstrap=mesh.control_plane.bootstrap()) as channel,
    ):
        call = channel.unary_unary(METHOD)
        for _ in range(3):
            await call(b"x")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"fail")
        stub = channelz_pb2_grpc.ChannelzStub(client.channel)
        top = await stub.GetTopChannels(channelz_pb2.GetTopChannelsRequest())
        (found,) = [each for each in top.channel if each.data.target == TARGET]
        request = channelz_pb2.GetChannelRequest(channel_id=found.ref.channel_id)
        one = (await stub.GetChannel(request)).channel
        number = one.subchannel_ref[0].subchannel_id
        request = channelz_pb2.GetSubchannelRequest(subchannel_id=number)
        subchannel = (await stub.GetSubchannel(request)).subchannel
        request = channelz_pb2.GetSocketRequest(socket_id=subchannel.socket_ref[0].socket_id)
        socket = (await stub.GetSocket(request)).socket
        servers = await stub.GetServers(channelz_pb2.GetServersRequest())
    ready = channelz_pb2.ChannelConnectivityState.READY
    for data in (found.data, one.data, subchannel.data):
        assert data.state.state == ready
        counts = (data.calls_started, data.calls_succeeded, data.calls_failed)
        assert counts == (4, 3, 1)
    assert top.end
    assert [event.description for event in one.data.trace.events] == [
        "state is CONNECTING",
        "state is READY",
    ]
    assert one.data.trace.creation_timestamp.seconds
    assert subchannel.ref.name == mesh.address
    assert socket.data.streams_started == 4
    assert socket.remote.tcpip_address.ip_address == bytes([127, 0, 0, 1])
    assert f"127.0.0.1:{socket.remote.tcpip_address.port}" == mesh.address
    assert (list(servers.server), servers.end) == ([], True)


async def test_channels_come_in_pages() -> None:
    mine = [f"ipv4:127.0.0.2:{port}" for port in (1, 2, 3)]
    channels = [proxyless.aio.insecure_channel(target) for target in mine]
    async with live_client() as client:
        for channel in channels:
            channel.get_state()
        stub = channelz_pb2_grpc.ChannelzStub(client.channel)
        request = channelz_pb2.GetTopChannelsRequest(max_results=2)
        pages = list[Any]()
        # Channels of other tests may not be garbage-collected yet.
        while not pages or not pages[-1].end:
            pages.append(await stub.GetTopChannels(request))
            request.start_channel_id = pages[-1].channel[-1].ref.channel_id + 1
    for channel in channels:
        await channel.close()
    targets = [each.data.target for page in pages for each in page.channel]
    assert [each for each in targets if each in mine] == mine
    assert len(pages) > 1
    assert {len(page.channel) for page in pages[:-1]} == {2}


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("GetChannel", lambda: channelz_pb2.GetChannelRequest(channel_id=10**9)),
        ("GetSubchannel", lambda: channelz_pb2.GetSubchannelRequest(subchannel_id=10**9)),
        ("GetSocket", lambda: channelz_pb2.GetSocketRequest(socket_id=-1)),
        ("GetServer", lambda: channelz_pb2.GetServerRequest(server_id=1)),
        ("GetServerSockets", lambda: channelz_pb2.GetServerSocketsRequest(server_id=1)),
    ],
)
async def test_unknown_id_is_not_found(method: str, request_of: object) -> None:
    assert callable(request_of)
    async with live_client() as client:
        stub = channelz_pb2_grpc.ChannelzStub(client.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(stub, method)(request_of())
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
