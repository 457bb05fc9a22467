"""SocketTransport: asyncio transport of a client's TCP connection, on selector-based loops.

A connection needs no task and no future: `start_connect` calls back. It makes fewer calls and
objects than the loop's `create_connection`, and reads as it does. Its callbacks are registered with
`add_reader` and `add_writer`.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar, cast

from proxyless.runtime.forks import UnsharedSocket

P = TypeVar("P", bound=asyncio.BaseProtocol)

# Both are asyncio's values.
_WRITE_BUFFER_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 256 * 1024

# Linux creates a socket that does not block with one system call instead of two.
_SOCKET_TYPE: Final = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)

# Results of `try_connect` while the socket connects.
CONNECTING: Final = frozenset({errno.EINPROGRESS, errno.EALREADY})


def create_socket(host: str) -> socket.socket:
    """A TCP socket for this address, which does not block."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol: asyncio sets TCP_NODELAY only if it is TCP.
    sock = UnsharedSocket(family, _SOCKET_TYPE, socket.IPPROTO_TCP)
    if sock.getblocking():
        sock.setblocking(False)
    return sock


def try_connect(sock: socket.socket, address: Any) -> int:  # noqa: ANN401 - a socket address
    """Start to connect. Returns 0 if the socket is connected, one of CONNECTING, or the error."""
    error = sock.connect_ex(address)
    if error == errno.EINPROGRESS:
        # Linux has connected to this machine by now: then there is nothing to wait for.
        error = sock.connect_ex(address)
    return 0 if error == errno.EISCONN else error


class SocketTransport(asyncio.Transport):
    """Transport of one socket, which it owns: first connecting, then open, closing, and closed."""

    __slots__ = (
        "_high_bytes",
        "_is_closing",
        "_is_lost",
        "_is_reading",
        "_is_writing_paused",
        "_loop",
        "_low_bytes",
        "_on_failed",
        "_protocol",
        "_socket",
        "_unsent",
    )

    # The loop's `start_tls` reads it.
    _start_tls_compatible = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        on_failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._loop: Final = loop
        self._socket: Final = sock
        # It may be a BufferedProtocol: see `_on_readable`.
        self._protocol: Any = protocol
        # None when the attempt to connect is over.
        self._on_failed = on_failed
        self._is_reading = False
        self._is_closing = False
        # `connection_lost` of the protocol is scheduled, or was called.
        self._is_lost = False
        # Bytes that the kernel has not taken yet, with their limits. While there are some, the loop
        # has a writer.
        self._unsent: bytes | bytearray = b""
        self._high_bytes = _WRITE_BUFFER_BYTES
        self._low_bytes = _WRITE_BUFFER_BYTES // 4
        self._is_writing_paused = False

    @classmethod
    def start_connect(
        cls,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        on_failed: Callable[[OSError], None],
    ) -> Self:
        """Start to connect. `abort` cancels the attempt, and then no callback is called.

        `connection_made` may be called inside this call; `on_failed` never is. Raises OSError if
        there is no socket.
        """
        sock = create_socket(host)
        try:
            made = cls(loop, sock, protocol, on_failed)
            made._connect((host, port))
        except BaseException:
            sock.close()
            raise
        return made

    @classmethod
    def open(
        cls,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol_factory: Callable[[], P],
    ) -> tuple[Self, P]:
        """The transport of a connected socket, which does not block."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = protocol_factory()
            made = cls(loop, sock, protocol)
            made._on_connected()
        except BaseException:
            sock.close()
            raise
        return made, protocol

    def _connect(self, address: tuple[str, int]) -> None:
        sock = self._socket
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = try_connect(sock, address)
        if not error:
            self._on_connected()
        elif error in CONNECTING:
            self._loop.add_writer(sock.fileno(), self._on_connect_over)
        else:
            self._loop.call_soon(self._fail_to_connect, error)

    def _on_connect_over(self) -> None:
        if self._is_lost:
            return  # Another callback of this turn has aborted it.
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._fail_to_connect(error)
        else:
            self._loop.remove_writer(self._socket.fileno())
            self._on_connected()

    def _on_connected(self) -> None:
        self._on_failed = None
        try:
            self._protocol.connection_made(self)
            self.resume_reading()
        except Exception as error:
            self._on_bug(error)

    def _fail_to_connect(self, error: int) -> None:
        on_failed = self._on_failed
        if on_failed is not None:  # The attempt has not been aborted.
            self._cancel_connect()
            on_failed(OSError(error, os.strerror(error)))

    def _cancel_connect(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._on_failed = None
        self._is_closing = self._is_lost = True
        self._socket.close()

    # Protocol and description

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in asyncio
        match name:
            case "socket":
                return self._socket
            case "sockname":
                read = self._socket.getsockname
            case "peername":
                read = self._socket.getpeername
            case _:
                return default
        try:
            return read()
        except OSError:  # The socket is closed, or lost.
            return default

    # Reading

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume_reading(self) -> None:
        if not (self._is_reading or self._is_closing):
            self._is_reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        if not self._is_reading:
            return  # Another callback of this turn has paused or closed it.
        protocol = self._protocol
        is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        try:
            received = (
                self._socket.recv_into(protocol.get_buffer(-1))
                if is_buffered
                else self._socket.recv(_READ_BYTES)
            )
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            self._fail(error)
            return
        try:
            if not received:
                self._on_eof()
            elif is_buffered:
                protocol.buffer_updated(received)
            else:
                protocol.data_received(received)
        except Exception as error:
            self._on_bug(error)

    def _on_eof(self) -> None:
        if self._protocol.eof_received():
            # The protocol may continue to write.
            self.pause_reading()
        else:
            self.close()

    def _fail(self, error: Exception) -> None:
        """End the connection: reading or writing raised. As in asyncio, OSError is not a bug."""
        if isinstance(error, OSError):
            self._lose(error)
        else:
            self._on_bug(error)

    def _on_bug(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {
                "message": "a connection's protocol, socket or event loop raised",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._lose(error)

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _WRITE_BUFFER_BYTES if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low
        if self._unsent:
            self._pause_writing_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        if not self._unsent:
            try:
                sent = self._send(data)
                if sent == len(data):
                    return
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            except Exception as error:
                self._fail(error)
                return
            self._unsent = bytearray(memoryview(data)[sent:])
        else:
            self._unsent += data
        self._pause_writing_if_full()

    def can_write_eof(self) -> bool:
        return False

    def _on_writable(self) -> None:
        if not self._unsent:
            return  # Another callback of this turn has aborted it.
        try:
            sent = self._send(self._unsent)
        except Exception as error:
            self._fail(error)
            return
        del cast("bytearray", self._unsent)[:sent]
        if not self._unsent:
            # This is first, because `resume_writing` may write or close.
            self._loop.remove_writer(self._socket.fileno())
            if self._is_closing:
                self._lose(None)
                return
        if self._is_writing_paused and len(self._unsent) <= self._low_bytes:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many bytes the kernel has taken."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def _pause_writing_if_full(self) -> None:
        if not self._is_writing_paused and len(self._unsent) > self._high_bytes:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    # Ends

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Stop reading, send what is left, and close. Idempotent."""
        self.pause_reading()
        self._is_closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        """Close, without sending what is left. Idempotent."""
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        if self._on_failed is not None:
            self._cancel_connect()
            return
        self.pause_reading()
        if self._unsent:
            self._unsent = b""
            self._loop.remove_writer(self._socket.fileno())
        self._is_closing = self._is_lost = True
        self._loop.call_soon(self._end, error)

    # asyncio's TLS calls it after an error.
    _force_close = _lose

    def _end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()

    def __del__(self) -> None:
        # The loop was closed before the connection. The application did not open the socket, and
        # gets a warning about a channel that it left open.
        self._socket.close()
