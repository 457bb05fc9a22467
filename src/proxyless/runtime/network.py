"""How do bytes get from here to there?

The seam between the transport and the operating system's sockets. Trouble is an OSError, whatever
went wrong: refused, unreachable, a certificate, a name that does not exist. How long to try is
the caller's business: cancelling gives up and leaves no socket behind.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from proxyless.base import Address, IpAddress, UnixAddress

P = TypeVar("P", bound=asyncio.BaseProtocol)

# Many clients of a test or of a demo may come at once; the kernel makes them wait a second or
# more when the queue is full.
_BACKLOG: Final = 1024
# How long a client that closes waits for the peer's close_notify. grpcio's servers never send one
# (they wait for the end of the socket), and nobody waits for what they would still say.
_TLS_FAREWELL_S: Final = 0.02


class Listener(Protocol):
    """A bound address at which connections are accepted."""

    @property
    def address(self) -> Address:
        """Where to connect to; the port is the real one even if port 0 was asked for."""
        ...

    def close(self) -> None:
        """Accept no more. Connections that were accepted live on. Idempotent."""
        ...

    async def wait_closed(self) -> None:
        """Return when the address is free again, after `close`."""
        ...


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

        The hostname is what the peer's certificate is checked against and what it is told (SNI).
        An IP address stands in for itself if there is none. ValueError if the context checks
        hostnames and there is nothing to check.
        """
        ...

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        """The handshake on a connection that is there, for a peer behind a proxy.

        From here on the returned transport counts, and the protocol is told what comes through
        it, at times before this returns; that it was made it is not told. The hostname may be
        empty only if the context checks none. Giving up ends the connection.
        """
        ...

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Accept connections, each with a protocol of its own. Port 0 asks for any free one."""
        ...

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        """All addresses of a name, of both families, in the system's order of preference."""
        ...


class AsyncioNetwork:
    """Real sockets, on whatever asyncio loop is running."""

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
        farewell_s = None if tls is None else _TLS_FAREWELL_S
        match address:
            case IpAddress(host, port):
                # Both asyncio and uvloop set TCP_NODELAY; the contract tests hold them to it.
                return await loop.create_connection(
                    protocol_factory,
                    host,
                    port,
                    ssl=tls,
                    server_hostname=name,
                    ssl_shutdown_timeout=farewell_s,
                )
            case UnixAddress(path):
                sock = await _connect_unix(loop, path)
                return await loop.create_unix_connection(
                    protocol_factory,
                    sock=sock,
                    ssl=tls,
                    server_hostname=name,
                    ssl_shutdown_timeout=farewell_s,
                )

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
                ssl_shutdown_timeout=_TLS_FAREWELL_S,
            )
        except BaseException:
            transport.abort()
            raise
        if secured is None:  # As asyncio says it if the peer went away at the last moment.
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
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:  # From the IDNA codec, before any look-up.
            raise socket.gaierror(socket.EAI_NONAME, f"host {host!r} is not a valid name") from None
        addresses = (IpAddress(str(sockaddr[0]), port) for *_, sockaddr in found)
        return list(dict.fromkeys(addresses))


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
    """Path and inode of the file that stands for this address; None if there is none."""
    if isinstance(address, IpAddress) or address.is_abstract:
        return None
    try:
        return (address.path, os.stat(address.path).st_ino)
    except OSError:
        return None


def _name_to_check(address: Address, tls: ssl.SSLContext, server_hostname: str | None) -> str:
    """The name for the handshake, which may be empty only if the context checks none.

    asyncio would take an empty name for any context, and then check nothing.
    """
    if server_hostname is None and isinstance(address, IpAddress):
        return address.host
    _check_name(str(address), tls, server_hostname)
    return server_hostname or ""


def _check_name(peer: str, tls: ssl.SSLContext, server_hostname: str | None) -> None:
    if not server_hostname and tls.check_hostname:
        raise ValueError(f"tls to {peer} has no server_hostname, wanted one to check")


async def _connect_unix(loop: asyncio.AbstractEventLoop, path: str) -> socket.socket:
    """A connected socket: uvloop by itself knows no abstract names and cuts long paths."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock
