"""Unit tests of proxyless.runtime.shared_tls: real sockets on the loopback interface."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.runtime.shared_tls import BUFFER_BYTES, SharedBufferTls, connect_tls
from tests.certificates import CertificateAuthority
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
