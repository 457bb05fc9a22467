"""Unit tests of proxyless.runtime.socket_transport, with real sockets of this machine."""

import asyncio
import errno
import socket
import struct
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxyless.runtime.socket_transport import SocketTransport
from tests.worlds.transports import PATIENCE_S

RESET = struct.pack("ii", 1, 0)
# More than the kernel's buffers of both ends.
LARGE = bytes(16 * 1024 * 1024)


class Recorder(asyncio.Protocol):
    """Records every call of the transport."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.lost = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        # What the next callback with this name does.
        self.hooks: dict[str, Callable[[], Any]] = {}

    def _record(self, name: str) -> Any:  # noqa: ANN401 - the result of the hook
        self.calls.append(name)
        self.changed.set()
        return self.hooks.pop(name, lambda: None)()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._record("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._record("data")

    def eof_received(self) -> bool | None:
        return bool(self._record("eof"))

    def pause_writing(self) -> None:
        self._record("pause")

    def resume_writing(self) -> None:
        self._record("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._record("lost")
        self.lost.set_result(None)

    async def wait_for(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while name not in self.calls:
                self.changed.clear()
                await self.changed.wait()


class BufferlessRecorder(Recorder, asyncio.BufferedProtocol):
    """Has no memory for what is received."""

    def get_buffer(self, sizehint: int) -> bytearray:
        raise MemoryError


class TransportWorld:
    """A connected transport, its protocol, and the peer's socket, which blocks."""

    def __init__(self, transport: SocketTransport, protocol: Recorder, peer: socket.socket) -> None:
        self.transport = transport
        self.protocol = protocol
        self.peer = peer

    async def peer_reads(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        got = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < size:
                got += await loop.sock_recv(self.peer, size)
        return bytes(got)

    def peer_resets(self) -> None:
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.peer.close()


def unexpected(error: OSError) -> None:
    raise AssertionError(f"connecting failed: {error}")


@asynccontextmanager
async def connected(
    make_protocol: Callable[[], Recorder] = Recorder,
) -> AsyncIterator[TransportWorld]:
    protocol = make_protocol()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        loop = asyncio.get_running_loop()
        transport = SocketTransport.start_connect(loop, host, port, protocol, unexpected)
        peer, _ = listener.accept()
    await protocol.wait_for("made")
    with peer:
        peer.setblocking(False)
        yield TransportWorld(transport, protocol, peer)
        transport.abort()
        await protocol.lost


# Connecting


@asynccontextmanager
async def connecting() -> AsyncIterator[tuple[SocketTransport, Recorder, list[OSError]]]:
    """An attempt that never ends: the listener's queue is full."""
    loop, protocol, errors = asyncio.get_running_loop(), Recorder(), list[OSError]()
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex((host, port))
        yield (
            SocketTransport.start_connect(loop, host, port, protocol, errors.append),
            protocol,
            errors,
        )


async def test_cancelled_attempt_closes_its_socket_and_calls_nothing() -> None:
    async with connecting() as (transport, protocol, errors):
        descriptor = transport.get_extra_info("socket").fileno()
        assert not transport.is_closing()
        transport.abort()
        transport.abort()
        assert transport.is_closing()
        assert transport.get_extra_info("socket").fileno() == -1
        assert not asyncio.get_running_loop().remove_writer(descriptor)
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        assert (protocol.calls, errors) == ([], [])


async def test_refused_attempt_calls_back_in_a_later_turn() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    loop, protocol = asyncio.get_running_loop(), Recorder()
    failed: asyncio.Future[OSError] = loop.create_future()
    transport = SocketTransport.start_connect(loop, host, port, protocol, failed.set_result)
    assert not failed.done()
    error = await failed
    assert (type(error), error.errno) == (ConnectionRefusedError, errno.ECONNREFUSED)
    assert protocol.calls == []
    assert transport.get_extra_info("socket").fileno() == -1


async def test_attempt_that_failed_at_once_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    errors: list[OSError] = []
    loop = asyncio.get_running_loop()
    transport = SocketTransport.start_connect(loop, host, port, Recorder(), errors.append)
    transport.abort()
    for _ in range(3):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    assert errors == []


async def test_attempt_that_raises_closes_its_socket() -> None:
    with socket.socket() as probe:
        lowest_free = probe.fileno()
    loop = asyncio.get_running_loop()
    with pytest.raises(OverflowError) as raised:
        SocketTransport.start_connect(loop, "127.0.0.1", 1 << 16, Recorder(), unexpected)
    # The traceback of the exception still has the socket.
    assert raised.tb is not None
    with socket.socket() as probe:
        assert probe.fileno() == lowest_free


async def test_exception_when_connected_ends_the_connection_and_is_reported() -> None:
    loop, protocol, reported = asyncio.get_running_loop(), Recorder(), list[Any]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    protocol.hooks["made"] = lambda: 1 / 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        SocketTransport.start_connect(loop, host, port, protocol, unexpected)
        async with asyncio.timeout(PATIENCE_S):
            await protocol.lost
    assert protocol.calls == ["made", "lost"]
    assert isinstance(protocol.error, ZeroDivisionError)
    assert reported == [protocol.error]


# Reading


async def test_paused_transport_reads_nothing() -> None:
    async with connected() as world:
        world.transport.pause_reading()
        world.transport.pause_reading()
        assert not world.transport.is_reading()
        world.peer.send(b"data")
        await asyncio.sleep(0.01)  # noqa: TID251 - nothing to wait for
        assert world.protocol.calls == ["made"]
        world.transport.resume_reading()
        await world.protocol.wait_for("data")
        assert world.protocol.received == b"data"


async def test_transport_is_closed_after_an_eof() -> None:
    async with connected() as world:
        world.peer.shutdown(socket.SHUT_WR)
        await world.protocol.lost
        assert world.protocol.calls == ["made", "eof", "lost"]
        assert world.protocol.error is None


async def test_half_open_transport_writes_after_an_eof() -> None:
    async with connected() as world:
        world.protocol.hooks["eof"] = lambda: True
        world.peer.shutdown(socket.SHUT_WR)
        await world.protocol.wait_for("eof")
        assert not world.transport.is_closing()
        world.transport.write(b"last")
        assert await world.peer_reads(4) == b"last"


async def test_reset_is_the_reason_of_the_loss() -> None:
    async with connected() as world:
        world.peer_resets()
        await world.protocol.lost
        assert isinstance(world.protocol.error, ConnectionResetError)


async def test_exception_in_a_protocol_ends_the_connection_and_is_reported() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    async with connected() as world:
        world.protocol.hooks["data"] = lambda: 1 / 0
        world.peer.send(b"data")
        await world.protocol.lost
        assert isinstance(world.protocol.error, ZeroDivisionError)
    assert reported == [world.protocol.error]


async def test_connection_is_lost_when_there_is_no_memory_to_read() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    async with connected(BufferlessRecorder) as world:
        world.peer.send(b"data")
        await world.protocol.wait_for("lost")
        assert isinstance(world.protocol.error, MemoryError)
    assert reported == [world.protocol.error]


# Writing


async def test_bytes_that_the_kernel_does_not_take_are_sent_later() -> None:
    async with connected() as world:
        world.transport.set_write_buffer_limits(high=1024)
        assert world.transport.get_write_buffer_limits() == (256, 1024)
        world.transport.write(LARGE)
        world.transport.write(b"end")
        assert world.transport.get_write_buffer_size() > 1024
        assert world.protocol.calls == ["made", "pause"]
        assert await world.peer_reads(len(LARGE) + 3) == LARGE + b"end"
        await world.protocol.wait_for("resume")
        assert world.transport.get_write_buffer_size() == 0


async def test_protocol_may_write_when_writing_is_resumed() -> None:
    async with connected() as world:
        world.transport.write(LARGE)
        world.protocol.hooks["resume"] = lambda: world.transport.write(b"more")
        assert await world.peer_reads(len(LARGE) + 4) == LARGE + b"more"


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_protocol_may_end_the_connection_when_writing_is_resumed(end: str) -> None:
    async with connected() as world:
        descriptor = world.transport.get_extra_info("socket").fileno()
        # Writing is resumed when the last byte is sent.
        world.transport.set_write_buffer_limits(high=0)
        world.protocol.hooks["resume"] = getattr(world.transport, end)
        world.transport.write(LARGE)
        assert await world.peer_reads(len(LARGE)) == LARGE
        await world.protocol.lost
        # The next socket may have the same descriptor.
        assert not asyncio.get_running_loop().remove_writer(descriptor)


async def test_loop_has_no_writer_when_resumed_protocol_raised() -> None:
    loop, reported = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with connected() as world:
        world.transport.set_write_buffer_limits(high=0)
        world.protocol.hooks["resume"] = lambda: 1 / 0
        world.transport.write(LARGE)
        assert await world.peer_reads(len(LARGE)) == LARGE
        await world.protocol.wait_for("resume")
        assert not loop.remove_writer(world.transport.get_extra_info("socket").fileno())
        world.transport.write(b"more")
        assert await world.peer_reads(4) == b"more"
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_connection_is_lost_when_the_loop_takes_no_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")

    def add_writer(*_: object) -> None:
        raise error

    async with connected() as world:
        monkeypatch.setattr(asyncio.get_running_loop(), "add_writer", add_writer)
        world.transport.write(LARGE)
        await world.protocol.lost
        assert world.protocol.error is error


async def test_closed_transport_sends_its_buffer_first() -> None:
    async with connected() as world:
        world.transport.write(LARGE)
        world.transport.close()
        world.transport.close()
        world.transport.write(b"too late")
        assert world.transport.is_closing()
        assert not world.protocol.lost.done()
        assert await world.peer_reads(len(LARGE)) == LARGE
        await world.protocol.lost
        assert world.protocol.error is None
        assert world.peer.recv(1) == b""


async def test_aborted_transport_drops_its_buffer() -> None:
    async with connected() as world:
        world.transport.write(LARGE)
        world.transport.abort()
        assert world.transport.get_write_buffer_size() == 0
        await world.protocol.lost
        assert world.protocol.calls == ["made", "pause", "lost"]


@pytest.mark.parametrize("is_buffered", [False, True])
async def test_write_error_ends_the_connection(is_buffered: bool) -> None:
    async with connected() as world:
        world.transport.pause_reading()
        if is_buffered:
            world.transport.write(LARGE)
        world.peer_resets()
        while not world.transport.is_closing():
            world.transport.write(b"data")
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        await world.protocol.lost
        assert isinstance(world.protocol.error, BrokenPipeError | ConnectionResetError)


@pytest.mark.parametrize("is_buffered", [False, True])
async def test_exception_of_a_write_ends_the_connection_and_is_reported(
    is_buffered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: object) -> int:
        raise MemoryError

    loop, reported = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with connected() as world:
        if is_buffered:
            world.transport.write(LARGE)
        monkeypatch.setattr(socket.socket, "send", send)
        world.transport.write(b"data")
        # The peer reads, so that the socket becomes writable.
        while is_buffered and "lost" not in world.protocol.calls:
            await loop.sock_recv(world.peer, len(LARGE))
        await world.protocol.wait_for("lost")
        assert isinstance(world.protocol.error, MemoryError)
    assert reported == [world.protocol.error]


def test_socket_is_closed_without_a_warning_when_its_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        transport = SocketTransport.start_connect(loop, host, port, asyncio.Protocol(), unexpected)
        peer, _ = listener.accept()
    loop.close()
    with peer, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del transport
        assert peer.recv(1) == b""
    assert caught == []


# Description


async def test_names_are_those_of_the_socket_until_it_is_closed() -> None:
    async with connected() as world:
        names = world.peer.getsockname(), world.peer.getpeername()
        info = world.transport.get_extra_info
        assert (info("peername"), info("sockname")) == names
        assert info("ssl_object") is None
        assert info("other", "default") == "default"
    assert (info("peername"), info("sockname")) == (None, None)
