"""TLS of clients on asyncio's own loops, with one read buffer per thread.

asyncio gives each connection a buffer of 256 KiB and fills it with zeros: that is most of the
memory of a connection with TLS, and a third of the time to make one. The buffer is used within one
callback only, so all connections of a thread share one.

asyncio reads until a read raises for lack of data, and takes more steps than an open connection
with nothing to wait for needs: that is a sixth of the CPU of an RPC that is alone.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLAgainErrors, SSLProtocol, SSLProtocolState
from collections.abc import Callable
from threading import local
from typing import Any, Final, TypeVar, cast

from proxyless.runtime.socket_transport import SocketTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)

BUFFER_BYTES: Final = 256 * 1024

# The state between the handshake and `close`.
_OPEN: Final = SSLProtocolState.WRAPPED


class _Buffers(local):
    """The buffer of each thread."""

    def __init__(self) -> None:
        self.bytes = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.bytes)


_buffers: Final = _Buffers()


class SharedBufferTls(SSLProtocol):
    """asyncio's TLS, without a buffer of its own, and with fewer steps per read and write.

    Overrides asyncio's private methods; whatever is not usual is left to them.
    """

    # asyncio's, which the stubs do not have.
    _state: SSLProtocolState
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _sslobj: Any
    _transport: asyncio.Transport
    _app_reading_paused: bool
    _ssl_reading_paused: bool
    _ssl_writing_paused: bool
    _app_protocol_get_buffer: Callable[[int], memoryview]
    _app_protocol_buffer_updated: Callable[[int], None]
    _do_read: Callable[[], None]
    _do_write: Callable[[], None]
    _control_ssl_reading: Callable[[], None]
    _call_eof_received: Callable[[], None]

    # The size of the buffer that asyncio makes, and then, in `__init__`, the size of a read.
    max_size: int = 0  # type: ignore[misc]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        waiter: "asyncio.Future[None]",
        server_hostname: str,
        shutdown_timeout_s: float,
    ) -> None:
        super().__init__(
            cast("asyncio.BaseEventLoop", loop),
            protocol,
            tls,
            waiter,
            server_hostname=server_hostname,
            ssl_shutdown_timeout=shutdown_timeout_s,
        )
        self.max_size = BUFFER_BYTES
        self._ssl_buffer = _buffers.bytes
        self._ssl_buffer_view = _buffers.view

    @property
    def secured(self) -> asyncio.Transport:
        """The transport of the data before encryption."""
        return cast("asyncio.Transport", self._app_transport)

    # Reading

    def buffer_updated(self, nbytes: int) -> None:
        is_usual = self._state is _OPEN and self._app_protocol_is_buffer
        if not is_usual or self._app_reading_paused:
            super().buffer_updated(nbytes)
            return
        self._incoming.write(self._ssl_buffer_view[:nbytes])
        try:
            self._do_read__buffered()
            # Answers of TLS itself, and writes that had to wait for what was read.
            if self._outgoing.pending or self._write_backlog:
                self._do_write()
            if self._incoming.pending or self._ssl_reading_paused:
                self._control_ssl_reading()
        except Exception as error:
            self._fatal_error(error)

    def _do_read__buffered(self) -> None:
        """Decrypt all records into the buffer of the protocol, or as many as it holds."""
        tls, incoming = self._sslobj, self._incoming
        buffer = self._app_protocol_get_buffer(-1)
        size, filled, count = len(buffer), 0, 1
        try:
            # A read returns at most one record. The last one raises only within a record.
            while count and filled < size and (not filled or incoming.pending or tls.pending()):
                count = tls.read(size - filled, buffer[filled:])
                filled += count
        except SSLAgainErrors:
            pass
        else:
            if count and filled == size:
                self._loop.call_soon(self._do_read)
        if filled:
            self._app_protocol_buffer_updated(filled)
        if not count:
            # The peer has sent close_notify.
            self._call_eof_received()
            self._start_shutdown()

    # Writing

    def _write_appdata(self, list_of_data: Any) -> None:  # noqa: ANN401 - differs by version
        must_wait = self._write_backlog or self._ssl_writing_paused
        if self._state is not _OPEN or must_wait or len(list_of_data) > 1:
            super()._write_appdata(list_of_data)
            return
        [data] = list_of_data
        try:
            written = self._sslobj.write(data)
            if written == len(data):
                self._transport.write(self._outgoing.read())
                return
        except SSLAgainErrors:
            written = 0
        except Exception as error:
            self._fatal_error(error)
            return
        super()._write_appdata([data[written:]])


async def connect_tls(
    sock: socket.socket,
    protocol_factory: Callable[[], P],
    tls: ssl.SSLContext,
    server_hostname: str,
    shutdown_timeout_s: float,
) -> tuple[asyncio.Transport, P]:
    """Like the loop's `create_connection` with a connected socket and TLS."""
    loop = asyncio.get_running_loop()
    handshake: asyncio.Future[None] = loop.create_future()
    try:
        protocol = protocol_factory()
        made = SharedBufferTls(loop, protocol, tls, handshake, server_hostname, shutdown_timeout_s)
    except BaseException:
        sock.close()
        raise
    # Read before the connection is lost: asyncio drops it then.
    secured = made.secured
    try:
        SocketTransport.open(loop, sock, lambda: made)
        await handshake
    except BaseException:
        handshake.cancel()
        secured.close()
        raise
    return secured, protocol
