"""Tunnel: a connection through an HTTP proxy.

Specs: A1, A86.

It connects to the proxy, sends CONNECT, and reads the response (`http_connect`). Then the TLS
handshake with the peer behind the proxy takes place on the socket, if there is TLS, and a `Pump`
takes the socket over, with everything received meanwhile.
"""

import asyncio
import ssl
from typing import Self, cast

from proxyless.base import OK, HttpProxy, IpAddress, Status, StatusCode
from proxyless.runtime import Network
from proxyless.transport.http_connect import Accepted, ConnectResponse, Refused, encode_connect
from proxyless.transport.pump import Pump


class _ConnectProtocol(asyncio.Protocol):
    """Sends CONNECT, and keeps the data after the response."""

    # Set by `connection_made`.
    socket: asyncio.Transport

    def __init__(self, request: bytes) -> None:
        # Fixed at construction.
        self._request = request
        self.verdict: asyncio.Future[Accepted | Refused]
        self.verdict = asyncio.get_running_loop().create_future()
        # Changed by the loop.
        self._response = ConnectResponse()
        self.received = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.socket = cast("asyncio.Transport", transport)
        self.socket.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.verdict.done():
            # After the TLS handshake, and before the pump takes over.
            self.received += data
            return
        verdict = self._response.receive(data)
        if verdict is not None:
            # The next bytes are for TLS or the pump.
            self.socket.pause_reading()
            self.verdict.set_result(verdict)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if not self.verdict.done():
            self.verdict.set_result(self._response.on_end())


class Tunnel:
    """An open tunnel, before its pump takes over. The connector aborts or hands it over."""

    def __init__(self, protocol: _ConnectProtocol, target: str, rest: bytes) -> None:
        # Fixed at construction.
        self._protocol = protocol
        self._target = target
        # Data after the response, before TLS.
        self._rest = rest
        # Replaced by `start_tls`.
        self.socket = protocol.socket

    @classmethod
    async def open(cls, network: Network, address: IpAddress, proxy: HttpProxy) -> Self | Status:
        """Open a tunnel. A Status if the proxy refuses; raises OSError if it cannot be reached.

        The address is the peer's, or the proxy's own: see `HttpProxy`.
        """
        proxy_address, target = find_route(address, proxy)
        request = encode_connect(target, proxy.authorization)
        socket, protocol = await network.connect(proxy_address, lambda: _ConnectProtocol(request))
        try:
            verdict = await protocol.verdict
        except BaseException:
            socket.abort()
            raise
        if isinstance(verdict, Accepted):
            return cls(protocol, target, verdict.rest)
        socket.abort()
        return _proxy_error(verdict.why)

    async def start_tls(
        self, network: Network, tls: ssl.SSLContext, server_hostname: str | None
    ) -> Status:
        """TLS handshake with the peer behind the proxy. Raises like `Network.connect`."""
        if self._rest:
            # In TLS the client sends first, so these bytes are not the peer's.
            return _proxy_error(f"sent {len(self._rest)} bytes behind its answer, before any TLS")
        if server_hostname is None:
            server_hostname = self._target.rpartition(":")[0].strip("[]")
        self.socket = await network.start_tls(
            self.socket, self._protocol, tls=tls, server_hostname=server_hostname
        )
        return OK

    def hand_over(self, pump: Pump) -> Status:
        """Give the pump the socket, and the data received so far."""
        socket, protocol = self.socket, self._protocol
        if protocol.is_lost or socket.is_closing():
            return _proxy_error("closed the connection")
        socket.set_protocol(pump)
        pump.connection_made(socket)
        unread = memoryview(self._rest + protocol.received)
        while unread and not socket.is_closing():
            buffer = pump.get_buffer(len(unread))
            taken = min(len(buffer), len(unread))
            buffer[:taken] = unread[:taken]
            pump.buffer_updated(taken)
            unread = unread[taken:]
        if not socket.is_closing():
            socket.resume_reading()
        return OK

    def abort(self) -> None:
        self.socket.abort()


def find_route(address: IpAddress, proxy: HttpProxy) -> tuple[IpAddress, str]:
    """The address of the proxy, and the target of CONNECT."""
    return proxy.address or address, proxy.target or str(address)


def _proxy_error(why: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, f"proxy {why}")
