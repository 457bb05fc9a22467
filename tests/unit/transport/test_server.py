"""Unit tests of proxyless.transport.server."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, cast

import pytest

from proxyless.base import Address, IpAddress, Status, StatusCode
from proxyless.runtime import Listener
from proxyless.transport import Server, ServerCall
from proxyless.transport.pump import Pump
from proxyless.wire import ErrorCode, Limits, compress
from proxyless.wire import frames as kinds
from proxyless.wire.limits import BUFFERED_BYTES_MAX
from tests.worlds.fake_sockets import ADDRESS, SocketEnd, turn
from tests.worlds.wire import (
    PREFACE,
    REQUEST,
    SentFrames,
    data,
    decode_block,
    headers,
    prefixed,
    rst_stream,
    settings,
    settings_ack,
    window_update,
)

P = TypeVar("P", bound=asyncio.BaseProtocol)
Method = Callable[[ServerCall], Awaitable[Status | None]]
PATH = dict(REQUEST)[":path"]
INITIAL_WINDOW_SIZE = 0x4
KIB = 1024


class FakeListener:
    """Accepts connections of the test."""

    def __init__(self, address: Address, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        self.address = address
        self.accept = accept
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    async def wait_closed(self) -> None:
        return


class FakeNetwork:
    """The network of the server under test."""

    def __init__(self) -> None:
        self.listeners: list[FakeListener] = []

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        raise NotImplementedError

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        raise NotImplementedError

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        raise NotImplementedError

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        self.listeners.append(FakeListener(address, protocol_factory))
        return self.listeners[-1]

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        raise NotImplementedError


class Client(SocketEnd):
    """The client's end of an accepted connection."""

    def __init__(self, listener: FakeListener, *, announce: tuple[tuple[int, int], ...]) -> None:
        pump = listener.accept()
        assert isinstance(pump, Pump)
        super().__init__(pump)
        self.pump = pump
        pump.connection_made(self.socket)
        self.peer_sends(PREFACE, settings(*announce), settings_ack())
        self.take_frames()

    def request(self, *messages: bytes, stream_id: int = 1, half_close: bool = True) -> None:
        self.peer_sends(headers(stream_id, REQUEST))
        for message in messages:
            self.peer_sends(data(stream_id, prefixed(message)))
        if half_close:
            self.peer_sends(data(stream_id, b"", end=True))


class ServerTransportWorld:
    """A server with one method, and clients of it."""

    def __init__(self, method: Method, limits: Limits | None = None) -> None:
        self.network = FakeNetwork()
        self.server = Server({PATH: method}, limits)

    async def client(self, *announce: tuple[int, int]) -> Client:
        if not self.network.listeners:
            await self.server.listen(ADDRESS, network=self.network)
        return Client(self.network.listeners[0], announce=announce)


Open = Callable[..., ServerTransportWorld]


@pytest.fixture
async def open_world() -> AsyncIterator[Open]:
    worlds: list[ServerTransportWorld] = []

    def open_world(method: Method, limits: Limits | None = None) -> ServerTransportWorld:
        worlds.append(ServerTransportWorld(method, limits))
        return worlds[-1]

    yield open_world
    for world in worlds:
        await world.server.close()
        assert not world.server.connections


def expect_status(frames: SentFrames, code: StatusCode, text: str = "", stream_id: int = 1) -> None:
    """Assert the status in the last header block of the stream."""
    fields = dict(decode_block(frames.of(kinds.HEADERS, stream_id)[-1].payload))
    assert fields["grpc-status"] == str(int(code))
    assert fields.get("grpc-message", "") == text


async def echo(call: ServerCall) -> None:
    async for message in call:
        await call.write(message)


async def wait_for_ever(_call: ServerCall) -> None:
    await asyncio.Event().wait()


# What a method returns


async def test_a_method_that_returns_nothing_ends_with_ok(open_world: Open) -> None:
    client = await open_world(echo).client()
    client.request(b"one", b"two")
    await turn()
    frames = client.take_frames()
    assert frames.payload(1) == prefixed(b"one") + prefixed(b"two")
    expect_status(frames, StatusCode.OK)
    assert frames.resets() == []


async def test_a_method_returns_a_status_and_trailers(open_world: Open) -> None:
    async def fail(call: ServerCall) -> Status:
        call.trailers = (("t-why", "because"),)
        return Status(StatusCode.ABORTED, "no")

    client = await open_world(fail).client()
    client.request()
    await turn()
    (block,) = client.take_frames().of(kinds.HEADERS)
    fields = dict(decode_block(block.payload))
    assert fields[":status"] == "200"
    assert (fields["grpc-status"], fields["grpc-message"], fields["t-why"]) == (
        "10",
        "no",
        "because",
    )


async def test_a_method_that_raises_ends_with_internal(open_world: Open) -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def crash(call: ServerCall) -> None:
        raise LookupError("a bug of the method")

    client = await open_world(crash).client()
    client.request()
    await turn()
    expect_status(client.take_frames(), StatusCode.INTERNAL, "the method raised an exception")
    await turn()


async def test_a_path_without_a_method_is_unimplemented(open_world: Open) -> None:
    world = open_world(echo)
    client = await world.client()
    fields = [(key, "/no/Where" if key == ":path" else value) for key, value in REQUEST]
    client.peer_sends(headers(1, fields, end=True))
    await turn()
    expect_status(client.take_frames(), StatusCode.UNIMPLEMENTED, "no method '/no/Where' here")


async def test_stream_is_reset_when_the_method_ends_before_the_client(open_world: Open) -> None:
    async def refuse(call: ServerCall) -> Status:
        return Status(StatusCode.PERMISSION_DENIED, "not you")

    client = await open_world(refuse).client()
    client.request(half_close=False)
    await turn()
    frames = client.take_frames()
    expect_status(frames, StatusCode.PERMISSION_DENIED, "not you")
    assert frames.resets() == [(1, ErrorCode.NO_ERROR)]


async def test_a_head_may_announce_metadata_and_compression(open_world: Open) -> None:
    async def zip_up(call: ServerCall) -> None:
        call.send_head((("x-key", "value"),), "gzip")
        await call.write(b"message")

    client = await open_world(zip_up).client()
    client.request()
    await turn()
    frames = client.take_frames()
    head = dict(decode_block(frames.of(kinds.HEADERS)[0].payload))
    assert (head["x-key"], head["grpc-encoding"]) == ("value", "gzip")
    assert frames.payload(1) == prefixed(compress("gzip", b"message"), compressed=1)


# Reading and writing


async def test_reading_gives_messages_and_then_none(open_world: Open) -> None:
    read: list[bytes | None] = []

    async def take(call: ServerCall) -> None:
        read.extend([await call.read() for _ in range(3)])

    client = await open_world(take).client()
    client.request(b"one", half_close=False)
    await turn()
    client.peer_sends(data(1, prefixed(b"two"), end=True))
    await turn()
    await turn()
    assert read == [b"one", b"two", None]


async def test_client_gets_no_window_when_the_method_does_not_read(open_world: Open) -> None:
    gate = asyncio.Event()

    async def swallow(call: ServerCall) -> None:
        await gate.wait()
        async for _ in call:
            pass

    client = await open_world(swallow).client()
    window = Limits().stream_window_bytes
    message = bytes(64 * KIB)
    assert window > 2 * BUFFERED_BYTES_MAX
    client.request(*[message] * (window // (len(message) + 5)), half_close=False)
    await turn()
    assert [stream for stream, _ in client.take_frames().updates() if stream] == []
    gate.set()
    for _ in range(3):
        await turn()
    assert [stream for stream, _ in client.take_frames().updates() if stream] == [1]


async def test_a_method_may_read_and_write_in_two_tasks(open_world: Open) -> None:
    done: list[str] = []

    async def both(call: ServerCall) -> None:
        async def write() -> None:
            await call.write(b"0123456789")
            done.append("written")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            done.append(f"read {await call.read()!r}")

    client = await open_world(both).client((INITIAL_WINDOW_SIZE, 1))
    client.request(half_close=False)
    for _ in range(3):
        await turn()
    assert done == []
    # The reader waited first, then the writer; each has its own event.
    client.peer_sends(data(1, prefixed(b"hello")))
    await turn()
    await turn()
    assert done == ["read b'hello'"]
    client.peer_sends(window_update(1, 100))
    await turn()
    await turn()
    assert done == ["read b'hello'", "written"]


async def test_the_status_waits_for_messages_that_wait_for_the_window(open_world: Open) -> None:
    client = await open_world(echo).client((INITIAL_WINDOW_SIZE, 8))
    client.request(b"hello")
    await turn()
    frames = client.take_frames()
    assert frames.payload(1) == prefixed(b"hello")[:8]
    assert len(frames.of(kinds.HEADERS)) == 1
    client.peer_sends(window_update(1, 100))
    await turn()
    await turn()
    expect_status(client.take_frames(), StatusCode.OK)


# Ends of calls


class Cancelled:
    """A method that records its cancellation."""

    def __init__(self, wait: Callable[[ServerCall], Awaitable[object]]) -> None:
        self.count = 0
        self._wait = wait

    async def __call__(self, call: ServerCall) -> None:
        try:
            await self._wait(call)
        except asyncio.CancelledError:
            self.count += 1
            raise


async def write_much(call: ServerCall) -> None:
    await call.write(bytes(100))


WAITS: dict[str, Callable[[ServerCall], Awaitable[object]]] = {
    "anywhere": wait_for_ever,
    "reading": lambda call: call.read(),
    "writing": write_much,
}


OVERS: dict[str, Callable[[Client], None]] = {
    "reset": lambda client: client.peer_sends(rst_stream(1, ErrorCode.CANCEL)),
    "lost": lambda client: client.socket.lose(),
    "closed": lambda client: client.pump.close(),
    # Queued messages are sent before the status that refuses the message.
    "refused": lambda client: client.peer_sends(
        data(1, prefixed(bytes(11))), window_update(1, 1000)
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
async def test_a_method_is_cancelled_when_its_call_is_over(
    open_world: Open,
    over: Callable[[Client], None],
    wait: Callable[[ServerCall], Awaitable[object]],
) -> None:
    method = Cancelled(wait)
    world = open_world(method, Limits(message_bytes_max=10))
    client = await world.client((INITIAL_WINDOW_SIZE, 1))
    client.request(half_close=False)
    await turn()
    assert method.count == 0
    over(client)
    await turn()
    await turn()
    assert method.count == 1


async def test_a_method_that_has_ended_is_not_cancelled(open_world: Open) -> None:
    calls: list[ServerCall] = []

    async def reply(call: ServerCall) -> None:
        calls.append(call)
        await call.write(b"reply")

    client = await open_world(reply).client()
    client.request()
    await turn()
    expect_status(client.take_frames(), StatusCode.OK)
    client.socket.lose()
    await turn()
    task = calls[0].task
    assert task is not None
    assert task.done()
    assert not task.cancelled()


# End of the server


async def test_draining_waits_for_calls_and_refuses_new_ones(open_world: Open) -> None:
    gate = asyncio.Event()

    async def wait(call: ServerCall) -> None:
        await gate.wait()
        await call.write(b"done")

    world = open_world(wait)
    busy, idle = await world.client(), await world.client()
    busy.request(b"work")
    await turn()
    world.server.drain()
    assert world.network.listeners[0].is_closed
    assert [code for _, code, _ in busy.take_frames().goaways()] == [ErrorCode.NO_ERROR]
    await turn()
    assert idle.socket.is_closed
    assert not busy.socket.is_closed
    busy.request(b"late", stream_id=3)
    assert busy.take_frames().resets() == [(3, ErrorCode.REFUSED_STREAM)]
    gate.set()
    for _ in range(3):
        await turn()
    frames = busy.take_frames()
    assert frames.payload(1) == prefixed(b"done")
    expect_status(frames, StatusCode.OK)
    assert busy.socket.is_closed


async def test_closing_ends_everything_and_waits_for_it(open_world: Open) -> None:
    method = Cancelled(wait_for_ever)
    world = open_world(method)
    clients = [await world.client() for _ in range(3)]
    for client in clients:
        client.request()
    await turn()
    assert len(world.server.connections) == world.server.accepted == 3
    await world.server.close()
    assert method.count == 3
    assert all(client.socket.is_closed for client in clients)
    assert not world.server.connections
    await world.server.close()


async def test_close_does_not_wait_for_a_connection_that_was_never_made(open_world: Open) -> None:
    """After a failed TLS handshake the protocol is never called."""
    world = open_world(echo)
    await world.client()
    cast("Pump", world.network.listeners[0].accept())
    assert world.server.accepted == 2
    assert len(world.server.connections) == 1


async def test_listen_returns_the_address(open_world: Open) -> None:
    world = open_world(echo)
    assert await world.server.listen(ADDRESS, network=world.network) == ADDRESS
