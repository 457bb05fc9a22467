"""Connections that a peer closes or resets: responses that are delivered, RPCs that are retried.

The peers are raw sockets, so that a test decides what the kernel has received when.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

import proxyless
import proxyless.sync
from bench.transport_calls import UnaryCall
from proxyless.base import IpAddress, Status, StatusCode
from proxyless.front.sync.background import shared_background
from proxyless.transport import ClientTransport, Server, ServerCall, pump
from proxyless.wire import frames as kinds
from tests.worlds.raw_peers import ResettablePeer, reset
from tests.worlds.transports import (
    PATIENCE_S,
    SERVICE,
    TransportClient,
    encode,
    expect_reply,
    expect_status,
    finish,
)
from tests.worlds.wire import PREFACE, answer, read_frames, settings, window_update

ON_BOTH_LOOPS = True

METHOD = SERVICE + "Echo"
BLOCK = encode("Echo")
# More than are written without a look at the socket.
MANY = 10
INITIAL_WINDOW_SIZE = 0x4
WINDOW_MAX = 0x7FFF_FFFF
MIB = 1024 * 1024
BOTH = {b"first", b"second"}
ROUND_ROBIN = '{"loadBalancingConfig": [{"round_robin": {}}]}'


@asynccontextmanager
async def connected(
    client: TransportClient,
) -> AsyncIterator[tuple[ClientTransport, socket.socket]]:
    """A connection, and its other end: a blocking socket that has read the handshake."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        connecting = asyncio.create_task(client.connect(IpAddress(*listener.getsockname())))
        peer, _ = await loop.sock_accept(listener)
    peer.setblocking(False)
    with peer:
        await loop.sock_sendall(peer, settings((INITIAL_WINDOW_SIZE, WINDOW_MAX)))
        transport = await connecting
        received = b""
        while not received.endswith(kinds.SETTINGS_ACK):
            received += await loop.sock_recv(peer, 65536)
        peer.setblocking(True)
        peer.settimeout(PATIENCE_S)
        yield transport, peer


async def answer_two(transport: ClientTransport, peer: socket.socket) -> None:
    """Two calls whose responses come together: the next calls wait for the end of the turn."""
    calls = [UnaryCall(transport, BLOCK, b"request") for _ in range(2)]
    await asyncio.sleep(0)
    received = b""
    while sum(each.kind == kinds.DATA for each in read_frames(received)) < 2:
        received += peer.recv(65536)
    peer.sendall(answer(1, b"reply") + answer(3, b"reply"))
    for call in calls:
        assert await expect_reply(call) == b"reply"


async def test_response_that_was_received_before_a_write_error_is_delivered(
    client: TransportClient,
) -> None:
    async with connected(client) as (transport, peer):
        first = UnaryCall(transport, BLOCK, b"request")
        peer.recv(65536)
        peer.sendall(answer(1, b"reply"))
        reset(peer)
        # Written before the loop reads the response, because it has had no turn.
        second = UnaryCall(transport, BLOCK, b"request")
        assert await expect_reply(first) == b"reply"
        end = await expect_status(second, StatusCode.UNAVAILABLE, "connection lost")
    assert end.is_unprocessed
    assert end.is_retry_free


async def test_call_that_was_sent_and_not_answered_is_not_retried(client: TransportClient) -> None:
    async with connected(client) as (transport, peer):
        first = UnaryCall(transport, BLOCK, b"request")
        peer.recv(65536)
        reset(peer)
        second = UnaryCall(transport, BLOCK, b"request")
        end = await expect_status(first, StatusCode.UNAVAILABLE, "connection lost")
        assert not end.is_unprocessed
        assert (await finish(second)).is_unprocessed


async def test_exception_of_a_write_ends_the_connection_and_is_reported(
    client: TransportClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, output: bytes) -> int:
        os.write(descriptor, output)
        # As when a signal arrives during the write.
        raise MemoryError("raised by a signal handler")

    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with connected(client) as (transport, _):
        monkeypatch.setattr(pump, "write_directly", write)
        call = UnaryCall(transport, BLOCK, b"request")
        later = UnaryCall(transport, BLOCK, b"request")
        end = await expect_status(call, StatusCode.UNAVAILABLE, "connection lost: raised by")
        # The peer may have received it.
        assert not end.is_unprocessed
        assert (await finish(later)).is_unprocessed
    assert [type(error) for error in reported] == [MemoryError]


async def test_calls_of_one_turn_are_not_sent_when_the_peer_has_closed(
    client: TransportClient,
) -> None:
    async with connected(client) as (transport, peer):
        await answer_two(transport, peer)
        peer.close()
        calls = [UnaryCall(transport, BLOCK, b"request") for _ in range(MANY)]
        ends = [await finish(call) for call in calls]
    assert {end.status.details for end in ends} == {"connection lost: closed by peer"}
    assert all(end.is_unprocessed and end.is_retry_free for end in ends)
    assert client.unusable == [Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer")]


async def test_more_than_the_kernel_takes_is_sent_in_order(client: TransportClient) -> None:
    loop = asyncio.get_running_loop()
    messages = [bytes([letter]) * (4 * MIB) for letter in b"abc"]
    async with connected(client) as (transport, peer):
        peer.sendall(window_update(0, 100 * MIB))
        await answer_two(transport, peer)
        calls = [UnaryCall(transport, BLOCK, message) for message in messages]
        peer.setblocking(False)
        received = bytearray()
        while received.count(b"c") < 4 * MIB:
            received += await loop.sock_recv(peer, MIB)
        payloads: dict[int, bytes] = {}
        for each in read_frames(bytes(received)):
            if each.kind == kinds.DATA:
                payloads[each.stream_id] = payloads.get(each.stream_id, b"") + each.payload
        assert [payload[5:] for payload in payloads.values()] == messages
        await loop.sock_sendall(peer, b"".join(answer(stream_id, b"r") for stream_id in payloads))
        for call in calls:
            assert await expect_reply(call) == b"r"


async def test_server_ends_a_connection_that_it_cannot_write_to(client: TransportClient) -> None:
    is_called, may_answer = asyncio.Event(), asyncio.Event()

    async def echo(call: ServerCall) -> None:
        is_called.set()
        await may_answer.wait()
        call.send_head()

    server = Server({METHOD: echo})
    address = await server.listen(IpAddress("127.0.0.1", 0))
    assert isinstance(address, IpAddress)
    raw = socket.create_connection((address.host, address.port))
    raw.sendall(PREFACE + settings())
    raw.sendall(kinds.encode_headers(1, BLOCK, end_stream=True, frame_bytes_max=1 << 14))
    async with asyncio.timeout(PATIENCE_S):
        await is_called.wait()
    [connection] = server.connections
    reset(raw)
    may_answer.set()
    async with asyncio.timeout(PATIENCE_S):
        await connection.wait_closed()
    assert not server.connections
    await server.close()


# Channels


@pytest.fixture
def peers() -> Iterator[tuple[ResettablePeer, ResettablePeer]]:
    first, second = ResettablePeer(b"first"), ResettablePeer(b"second")
    yield first, second
    first.reset()
    second.reset()


async def test_rpcs_that_meet_a_reset_connection_are_made_elsewhere(
    peers: tuple[ResettablePeer, ResettablePeer],
) -> None:
    target = f"ipv4:{peers[0].address},{peers[1].address}"
    options = (("grpc.service_config", ROUND_ROBIN),)
    async with proxyless.aio.insecure_channel(target, options=options) as channel:
        unary = channel.unary_unary(METHOD)
        async with asyncio.timeout(PATIENCE_S):
            while {await unary(b"", wait_for_ready=True) for _ in range(2)} != BOTH:
                pass
            peers[0].reset()
            # The loop has had no turn in which it could read the end of the connection.
            answers = await asyncio.gather(*(unary(b"") for _ in range(2 * MANY)))
    assert answers == [b"second"] * (2 * MANY)


@contextmanager
def held_background() -> Iterator[None]:
    """The background loop does nothing, and what is posted meanwhile runs in one turn."""
    is_held, may_continue = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_continue.wait(PATIENCE_S)

    shared_background().post(hold)
    assert is_held.wait(PATIENCE_S)
    yield
    may_continue.set()


def test_blocking_rpcs_that_meet_a_reset_connection_are_made_elsewhere(
    peers: tuple[ResettablePeer, ResettablePeer],
) -> None:
    target = f"ipv4:{peers[0].address},{peers[1].address}"
    options = (("grpc.service_config", ROUND_ROBIN),)
    with proxyless.sync.insecure_channel(target, options=options) as channel:
        unary = channel.unary_unary(METHOD)
        while {unary(b"", wait_for_ready=True) for _ in range(2)} != BOTH:
            pass
        with held_background():
            peers[0].reset()
            futures = [unary.future(b"") for _ in range(2 * MANY)]
        answers = [future.result(PATIENCE_S) for future in futures]
    assert answers == [b"second"] * (2 * MANY)
