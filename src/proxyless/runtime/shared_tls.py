"""TLS of clients on asyncio's own loops, with one read buffer per thread.

asyncio gives each connection a buffer of 256 KiB and fills it with zeros: that is most of the
memory of a connection with TLS, and a third of the time to make one. The buffer is used within one
callback only, so all connections of a thread share one.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from threading import local
from typing import Final, TypeVar, cast

P = TypeVar("P", bound=asyncio.BaseProtocol)

BUFFER_BYTES: Final = 256 * 1024


class _Buffers(local):
    """The buffer of each thread."""

    def __init__(self) -> None:
        self.bytes = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.bytes)


_buffers: Final = _Buffers()


class SharedBufferTls(SSLProtocol):
    """asyncio's TLS, without a buffer of its own."""

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
        await loop.create_connection(lambda: made, sock=sock)
        await handshake
    except BaseException:
        handshake.cancel()
        secured.close()
        raise
    return secured, protocol
