"""Network: connects, listens and resolves names; AsyncioNetwork does it on real sockets.

Every error is an OSError: refused, unreachable, a certificate, a name that does not exist. Timeouts
are the caller's: cancelling ends an attempt and leaves no socket behind.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.runtime.forks import UnsharedSocket
from proxyless.runtime.socket_transport import (
    CONNECTING,
    SocketTransport,
    create_socket,
    try_connect,
)

if TYPE_CHECKING:
    from proxyless.runtime.lookups import Answer

P = TypeVar("P", bound=asyncio.BaseProtocol)

# Many clients of a test may connect at once, and with a full queue each waits a second or more.
_BACKLOG: Final = 1024
# How long a client that closes waits for the peer's close_notify. grpcio's servers never send one.
_TLS_SHUTDOWN_TIMEOUT_S: Final = 0.02
_IS_POSIX: Final = os.name == "posix"


class Listener(Protocol):
    """A bound address at which connections are accepted."""

    @property
    def address(self) -> Address:
        """The bound address, with the real port if port 0 was requested."""

    def close(self) -> None:
        """Stop accepting. Accepted connections stay open. Idempotent."""

    async def wait_closed(self) -> None:
        """Return when the address is free again, after `close`."""


class Network(Protocol):
    """Connects, listens and resolves names."""

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect, with the TLS handshake if there is a context.

        The hostname is sent (SNI), and the peer's certificate is checked against it; for an IP
        address, its default is the address. Raises ValueError if the context checks hostnames and
        there is none.
        """

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> Callable[[], None] | None:
        """Start `connect` without TLS, and call back; None if this address needs `connect`.

        `connection_made` of the protocol may be called inside this call; `on_failed` is not. The
        result cancels the attempt, after which neither is called; it aborts a connection. Raises
        OSError.
        """

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        """TLS handshake on an existing connection, for a peer behind a proxy.

        The returned transport replaces the old one. The protocol may get data before this returns;
        its `connection_made` is not called again. The hostname may be empty only if the context
        checks none. Cancelling ends the connection.
        """

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Accept connections, each with a new protocol. Port 0 requests any free port."""

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        """All addresses of a name, of both families, in the system's order of preference."""


class AsyncioNetwork:
    """Network of the running asyncio loop, on real sockets."""

    __slots__ = ()

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        name = None if tls is None else _name_to_check(address, tls, server_hostname)
        shutdown_timeout_s = None if tls is None else _TLS_SHUTDOWN_TIMEOUT_S
        match address:
            case IpAddress(host, port):
                # Cheaper than the loop's own way from an address to a socket; and a socket of
                # uvloop's own would not be released after a fork.
                sock = await _connect_tcp(loop, host, port)
                if not _has_selector(loop):
                    # asyncio and uvloop set TCP_NODELAY, as the contract tests check.
                    return await loop.create_connection(
                        protocol_factory,
                        sock=sock,
                        ssl=tls,
                        server_hostname=name,
                        ssl_shutdown_timeout=shutdown_timeout_s,
                    )
                if tls is None or name is None:
                    return SocketTransport.open(loop, sock, protocol_factory)
                from proxyless.runtime.shared_tls import connect_tls  # noqa: PLC0415 - few have TLS

                timeout_s = _TLS_SHUTDOWN_TIMEOUT_S
                return await connect_tls(sock, protocol_factory, tls, name, timeout_s)
            case UnixAddress(path):
                sock = await _connect_unix(loop, path)
                return await loop.create_unix_connection(
                    protocol_factory,
                    sock=sock,
                    ssl=tls,
                    server_hostname=name,
                    ssl_shutdown_timeout=shutdown_timeout_s,
                )

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> Callable[[], None] | None:
        loop = asyncio.get_running_loop()
        if isinstance(address, UnixAddress) or "%" in address.host or not _has_selector(loop):
            return None
        arguments = (loop, address.host, address.port, protocol_factory(), on_failed)
        # The context of a request that needs a connection would stay alive with the connection.
        return Context().run(SocketTransport.start_connect, *arguments).abort

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        _check_name("a peer behind a proxy", tls, server_hostname)
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                protocol,
                tls,
                server_hostname=server_hostname,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_TIMEOUT_S,
            )
        except BaseException:
            transport.abort()
            raise
        if secured is None:  # asyncio returns None if the peer closed the connection.
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return secured

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        match address:
            case IpAddress(host, port):
                server = await loop.create_server(
                    protocol_factory, host, port, ssl=tls, backlog=_BACKLOG
                )
                bound_port: int = server.sockets[0].getsockname()[1]
                return _ServerListener(server, IpAddress(host, bound_port))
            case UnixAddress(path):
                server = await loop.create_unix_server(
                    protocol_factory, path, ssl=tls, backlog=_BACKLOG
                )
                return _ServerListener(server, address)

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        try:
            return [IpAddress(host, port)]
        except ValueError:
            pass  # Not a literal address.
        from proxyless.runtime.lookups import lookup_threads  # noqa: PLC0415 - not for literals

        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[IpAddress]] = loop.create_future()

        def on_answer(answer: "Answer") -> None:
            # In the thread of the look-up: addresses are checked, and there may be many.
            found: list[IpAddress] | OSError
            if isinstance(answer, OSError):
                found = answer
            else:
                found = [IpAddress(each, port) for each in answer]
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(_set_result, result, found)

        cancel = lookup_threads().look_up(host, on_answer)
        # Not `finally`: at exit a coroutine ends while threads may hold the lock for ever.
        result.add_done_callback(lambda _: cancel())
        return await result


def _set_result(
    result: "asyncio.Future[list[IpAddress]]", found: list[IpAddress] | OSError
) -> None:
    if result.done():
        return
    if isinstance(found, OSError):
        result.set_exception(copy(found))  # Other callers raise the same error.
    else:
        result.set_result(found)


class _ServerListener:
    """A listener on an asyncio server; removes the socket file that the server leaves behind."""

    __slots__ = ("_server", "_socket_file", "address")

    def __init__(self, server: asyncio.AbstractServer, address: Address) -> None:
        self.address: Final = address
        self._server = server
        self._socket_file = _find_socket_file(address)

    def close(self) -> None:
        self._server.close()
        file, self._socket_file = self._socket_file, None
        # Another server may have taken over the path by now.
        if file is not None and file == _find_socket_file(self.address):
            os.unlink(file[0])

    async def wait_closed(self) -> None:
        # Not the server's own wait_closed: from Python 3.12 on that waits for connections, too.
        await asyncio.sleep(0)


def _find_socket_file(address: Address) -> tuple[str, int] | None:
    """Path and inode of the socket file of this address; None if there is none."""
    if isinstance(address, IpAddress) or address.is_abstract:
        return None
    try:
        return (address.path, os.stat(address.path).st_ino)
    except OSError:
        return None


def _name_to_check(address: Address, tls: ssl.SSLContext, server_hostname: str | None) -> str:
    """The name for the handshake. With an empty one, asyncio would not check the certificate."""
    if server_hostname is None and isinstance(address, IpAddress):
        return address.host
    _check_name(str(address), tls, server_hostname)
    return server_hostname or ""


def _check_name(peer: str, tls: ssl.SSLContext, server_hostname: str | None) -> None:
    if not server_hostname and tls.check_hostname:
        raise ValueError(f"tls to {peer} has no server_hostname, wanted one to check")


def _has_selector(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a `SocketTransport` is made: it is cheaper than asyncio's, but not than uvloop's."""
    return _IS_POSIX and isinstance(loop, asyncio.SelectorEventLoop)


async def _connect_tcp(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A connected socket.

    Not by the loop's `sock_connect`: uvloop's starts threads that a child of a fork waits for.
    """
    sock = create_socket(host)
    try:
        address = _zoned_address(host, port) if "%" in host else (host, port)
        if not _IS_POSIX:
            await loop.sock_connect(sock, address)
            return sock
        error = try_connect(sock, address)
        if error in CONNECTING:
            await _wait_writable(loop, sock.fileno())
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        sock.close()
        raise
    return sock


def _zoned_address(host: str, port: int) -> Any:  # noqa: ANN401 - a socket address
    """A literal is parsed by the system, without a look-up."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    [(*_, address)] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return address


async def _wait_writable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    is_writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _set_done, is_writable)
    try:
        await is_writable
    finally:
        loop.remove_writer(fd)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _connect_unix(loop: asyncio.AbstractEventLoop, path: str) -> socket.socket:
    """A connected socket. uvloop itself supports no abstract names and truncates long paths."""
    sock = UnsharedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock
