"""Unit tests of proxyless.runtime.shared_tls: real sockets on the loopback interface."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from proxyless.base import IpAddress
from proxyless.runtime.network import AsyncioNetwork
from proxyless.runtime.shared_tls import BUFFER_BYTES, SharedBufferTls, connect_tls
from tests.certificates import CertificateAuthority
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import FrameType

NAME = "api.test"
SHUTDOWN_S = 0.02
HEADER_BYTES, APPLICATION_DATA, RECORD_BYTES = 5, 23, 16 * 1024
AUTHORITY = CertificateAuthority()


class Receiver(asyncio.Protocol):
    """Collects what it receives."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_complete = asyncio.Event()
        self.wanted = 0

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= self.wanted:
            self.is_complete.set()

    async def receive(self, count: int) -> bytes:
        self.wanted = count
        if len(self.received) < count:
            self.is_complete.clear()
            await self.is_complete.wait()
        return bytes(self.received)


class BufferedReceiver(asyncio.BufferedProtocol):
    """Collects what it receives in a buffer of this size."""

    def __init__(self, size: int) -> None:
        self._buffer = memoryview(bytearray(size))
        self.received = bytearray()
        self.reads: list[int] = []
        self.is_ended = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.reads.append(nbytes)
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> None:
        self.is_ended = True


class Peer:
    """TLS server whose bytes the test passes on to a client without a socket."""

    def __init__(self, buffer_bytes: int) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = AUTHORITY.server_context([NAME])
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake = asyncio.get_running_loop().create_future()
        self.receiver = BufferedReceiver(buffer_bytes)
        loop, client_context = asyncio.get_running_loop(), AUTHORITY.client_context()
        self.client = SharedBufferTls(
            loop, self.receiver, client_context, self._handshake, NAME, SHUTDOWN_S
        )
        self.socket = Mock()
        self.socket.write = self._incoming.write
        self.client.connection_made(self.socket)

    async def shake_hands(self) -> None:
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
            self.deliver(self._outgoing.read())
        await self._handshake

    def encrypt(self, *messages: bytes) -> bytes:
        """One record each."""
        for message in messages:
            self._tls.write(message)
        return self._outgoing.read()

    def end(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    def read(self) -> bytes:
        return self._tls.read(1 << 16)

    def read_or_nothing(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            return self.read()
        return b""

    def deliver(self, data: bytes) -> None:
        if data:
            self.client.get_buffer(-1)[: len(data)] = data
            self.client.buffer_updated(len(data))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    made = Peer(buffer_bytes=1 << 16)
    await made.shake_hands()
    yield made
    made.client.secured.abort()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


class RecordServer(asyncio.Protocol):
    """TLS server in memory, which counts the records that it receives."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw = bytearray()
        self._transport: asyncio.Transport
        self.read = bytearray()
        self.records: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._raw += data
        while len(self._raw) >= HEADER_BYTES:
            size = int.from_bytes(self._raw[3:HEADER_BYTES], "big")
            if len(self._raw) < HEADER_BYTES + size:
                break
            record = bytes(self._raw[: HEADER_BYTES + size])
            del self._raw[: HEADER_BYTES + size]
            self._incoming.write(record)
            if self._step() and record[0] == APPLICATION_DATA:
                self.records.append(size)
        self._transport.write(self._outgoing.read())

    def _step(self) -> bool:
        """Whether application data was read."""
        try:
            if self._tls.version() is None or self._tls.cipher() is None:
                self._tls.do_handshake()
            self.read += self._tls.read(1 << 16)
        except ssl.SSLWantReadError:
            return False
        return True


def connected_socket(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    context = AUTHORITY.server_context([NAME])
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int) -> tuple[asyncio.Transport, Receiver]:
    context = AUTHORITY.client_context()
    return await connect_tls(connected_socket(port), Receiver, context, NAME, SHUTDOWN_S)


async def test_connections_share_a_buffer_and_do_not_mix_their_data(echo_port: int) -> None:
    made = [await connect(echo_port) for _ in range(3)]
    sent = [bytes([number]) * (2 * BUFFER_BYTES) for number in range(3)]
    for (transport, _), data in zip(made, sent, strict=True):
        transport.write(data)
    for (transport, receiver), data in zip(made, sent, strict=True):
        assert await receiver.receive(len(data)) == data
        transport.close()


async def test_connection_has_no_buffer_of_its_own() -> None:
    """asyncio's attributes are private: this test fails if a new version has others."""
    loop = asyncio.get_running_loop()
    context = AUTHORITY.client_context()
    first, second = (
        SharedBufferTls(loop, Receiver(), context, loop.create_future(), NAME, SHUTDOWN_S)
        for _ in range(2)
    )
    assert first.get_buffer(-1) is second.get_buffer(-1)
    assert len(first.get_buffer(-1)) == BUFFER_BYTES
    owned = [value for value in vars(first).values() if isinstance(value, bytearray)]
    assert owned == [first.get_buffer(-1).obj]
    for connection in (first, second):
        connection.secured.close()


@pytest.mark.skipif(sys.platform != "linux", reason="others connect later, even to themselves")
async def test_connection_to_this_machine_registers_its_socket_once(
    echo_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    registered: list[str] = []
    for name, method in (("reader", loop.add_reader), ("writer", loop.add_writer)):

        def add(
            *args: Any,  # noqa: ANN401 - as the method
            name: str = name,
            method: Callable[..., None] = method,
        ) -> None:
            registered.append(name)
            method(*args)

        monkeypatch.setattr(loop, f"add_{name}", add)
    transport, _ = await AsyncioNetwork().connect(
        IpAddress("127.0.0.1", echo_port),
        Receiver,
        tls=AUTHORITY.client_context(),
        server_hostname=NAME,
    )
    transport.close()
    assert registered == ["reader"]


async def test_one_write_is_as_few_records_as_possible() -> None:
    made: list[RecordServer] = []

    def make() -> RecordServer:
        made.append(RecordServer(AUTHORITY.server_context([NAME])))
        return made[-1]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(make, "127.0.0.1", 0) as server:
        transport, _ = await connect(server.sockets[0].getsockname()[1])
        data = b"x" * (2 * RECORD_BYTES + 100)
        transport.write(data)
        await until(lambda: len(made[0].read) == len(data), "the server to read all")
        transport.abort()
    assert len(made[0].records) == 3
    assert made[0].records[0] > RECORD_BYTES


async def test_socket_is_closed_if_the_handshake_fails(echo_port: int) -> None:
    sock = connected_socket(echo_port)
    context = CertificateAuthority("stranger").client_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect_tls(sock, Receiver, context, NAME, SHUTDOWN_S)
    await until(lambda: sock.fileno() == -1, "the socket to be closed")


async def test_socket_is_closed_if_the_attempt_is_cancelled() -> None:
    """The peer never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sock = connected_socket(silent.getsockname()[1])
        context = AUTHORITY.client_context()
        attempt = asyncio.create_task(connect_tls(sock, Receiver, context, NAME, SHUTDOWN_S))
        accepted, _ = await asyncio.to_thread(silent.accept)
        with accepted:
            assert await asyncio.to_thread(accepted.recv, 1), "the handshake has begun"
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        await until(lambda: sock.fileno() == -1, "the socket to be closed")


class Raised:
    """Counts the C functions that raise while it is on."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Raised:
        self._before = sys.getprofile()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _on_event(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event == "c_exception"


async def test_read_of_whole_records_and_write_raise_nothing(peer: Peer) -> None:
    data = peer.encrypt(b"response")
    with Raised() as raised:
        peer.deliver(data)
        peer.client.secured.write(b"request")
    assert raised.count == 0
    assert peer.receiver.received == b"response"
    assert peer.read() == b"request"


async def test_records_that_are_received_together_are_delivered_together(peer: Peer) -> None:
    peer.deliver(peer.encrypt(b"one", b"two", b"three"))
    assert peer.receiver.received == b"onetwothree"
    assert len(peer.receiver.reads) == 1


async def test_record_in_two_reads_is_delivered_when_it_is_complete(peer: Peer) -> None:
    data = peer.encrypt(b"first", b"second")
    peer.deliver(data[:-5])
    assert peer.receiver.received == b"first"
    peer.deliver(data[-5:])
    assert peer.receiver.received == b"firstsecond"


@pytest.mark.parametrize("message_bytes", [40, 64, 96, 150])
async def test_records_larger_than_the_buffer_are_delivered_in_turns(message_bytes: int) -> None:
    peer = Peer(buffer_bytes=32)
    await peer.shake_hands()
    message = bytes(range(message_bytes))
    peer.deliver(peer.encrypt(message, message))
    await until(lambda: peer.receiver.received == message * 2, "all data")
    peer.client.secured.abort()


async def test_end_behind_data_is_delivered_in_the_same_read(peer: Peer) -> None:
    peer.deliver(peer.encrypt(b"last") + peer.end())
    assert peer.receiver.received == b"last"
    assert peer.receiver.is_ended


async def test_data_received_while_reading_is_paused_is_delivered_after_that(peer: Peer) -> None:
    peer.client.secured.pause_reading()
    peer.deliver(peer.encrypt(b"late"))
    assert not peer.receiver.received
    peer.client.secured.resume_reading()
    await until(lambda: peer.receiver.received == b"late", "the data")


class Delaying:
    """An object of `ssl` whose writes wait for data of the peer, and then take three bytes each."""

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls
        self._is_waiting = True

    def write(self, data: bytes) -> int:
        if self._is_waiting:
            raise ssl.SSLWantReadError
        return self._tls.write(data[:3])

    def read(self, size: int, buffer: bytearray) -> object:
        self._is_waiting = False
        return self._tls.read(size, buffer)

    def pending(self) -> int:
        return self._tls.pending()


async def test_write_that_waits_for_the_peer_is_continued_after_a_read(peer: Peer) -> None:
    peer.client._sslobj = Delaying(peer.client._sslobj)
    for data in (b"first ", b"second"):
        peer.client.secured.write(data)
    with pytest.raises(ssl.SSLWantReadError):
        peer.read()
    peer.deliver(peer.encrypt(b"answer"))
    peer.client.secured.write(b" third")
    assert b"".join(iter(peer.read_or_nothing, b"")) == b"first second third"


async def test_writes_wait_while_the_socket_takes_no_more(peer: Peer) -> None:
    peer.client.pause_writing()
    peer.client.secured.write(b"late")
    with pytest.raises(ssl.SSLWantReadError):
        peer.read()
    peer.client.resume_writing()
    assert peer.read() == b"late"


async def test_error_of_a_write_ends_the_connection(peer: Peer) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    peer.client._sslobj = Mock(write=Mock(side_effect=ssl.SSLError("broken")))
    peer.client.secured.write(b"data")
    assert peer.socket._force_close.called


async def test_invalid_record_ends_the_connection(peer: Peer) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    peer.deliver(b"\x17\x03\x03\x00\x10" + bytes(16))
    assert peer.socket._force_close.called
    assert not peer.receiver.received
