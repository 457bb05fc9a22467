"""How does a connection come to lead through an HTTP proxy?

Specs: A1, A86.

The shell around `http_connect`: it connects to the proxy, asks, and reads no further than the
verdict. Then the socket changes hands: TLS with the peer behind the proxy starts on it, if there is
any, and a pump takes over, with everything that came meanwhile. From then on nothing of this is
left on the way of the bytes.
"""

import asyncio
import ssl
from typing import Self, cast

from proxyless.base import OK, HttpProxy, IpAddress, Status, StatusCode
from proxyless.runtime import Network
from proxyless.transport.http_connect import Accepted, ConnectAnswer, Refused, encode_connect
from proxyless.transport.pump import Pump


class _Asker(asyncio.Protocol):
    """Asks a proxy, and keeps what comes behind its answer. Driven by the loop."""

    # Set by the loop, first of all.
    socket: asyncio.Transport

    def __init__(self, request: bytes) -> None:
        # Fixed at construction.
        self._request = request
        self.verdict: asyncio.Future[Accepted | Refused]
        self.verdict = asyncio.get_running_loop().create_future()
        # Changed by the loop.
        self._answer = ConnectAnswer()
        self.held = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.socket = cast("asyncio.Transport", transport)
        self.socket.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.verdict.done():
            # From inside TLS, whose handshake is over: somebody is about to take over.
            self.held += data
            return
        verdict = self._answer.receive(data)
        if verdict is not None:
            # What comes next is not for us.
            self.socket.pause_reading()
            self.verdict.set_result(verdict)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if not self.verdict.done():
            self.verdict.set_result(self._answer.on_end())


class Tunnel:
    """A way through a proxy that nobody uses yet. Driven by the connector, which ends it."""

    def __init__(self, asker: _Asker, target: str, rest: bytes) -> None:
        # Fixed at construction.
        self._asker = asker
        self._target = target
        # What came through it already, from outside of TLS.
        self._rest = rest
        # Replaced by `start_tls`.
        self.socket = asker.socket

    @classmethod
    async def open(cls, network: Network, address: IpAddress, proxy: HttpProxy) -> Self | Status:
        """Ask the proxy. Its answer is a Status if there is no tunnel; OSError if it is not there.

        The address is the peer's, or the proxy's own: see `HttpProxy`.
        """
        proxy_address, target = find_way(address, proxy)
        request = encode_connect(target, proxy.authorization)
        socket, asker = await network.connect(proxy_address, lambda: _Asker(request))
        try:
            verdict = await asker.verdict
        except BaseException:
            socket.abort()
            raise
        if isinstance(verdict, Accepted):
            return cls(asker, target, verdict.rest)
        socket.abort()
        return _blame_proxy(verdict.why)

    async def start_tls(
        self, network: Network, tls: ssl.SSLContext, server_hostname: str | None
    ) -> Status:
        """Shake hands with the peer behind the proxy. OSError or ValueError as when connecting."""
        if self._rest:
            # Nobody speaks before the client in TLS, so this is not of the peer.
            return _blame_proxy(f"sent {len(self._rest)} bytes behind its answer, before any TLS")
        if server_hostname is None:
            server_hostname = self._target.rpartition(":")[0].strip("[]")
        self.socket = await network.start_tls(
            self.socket, self._asker, tls=tls, server_hostname=server_hostname
        )
        return OK

    def hand_over(self, pump: Pump) -> Status:
        """Let the pump have the socket, and all that it should have read by now."""
        socket, asker = self.socket, self._asker
        if asker.is_lost or socket.is_closing():
            return _blame_proxy("closed the connection")
        socket.set_protocol(pump)
        pump.connection_made(socket)
        unread = memoryview(self._rest + asker.held)
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
        """Drop the socket, whoever has it."""
        self.socket.abort()


def find_way(address: IpAddress, proxy: HttpProxy) -> tuple[IpAddress, str]:
    """Where the proxy is, and what it is asked to connect to."""
    return proxy.address or address, proxy.target or str(address)


def _blame_proxy(why: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, f"proxy {why}")
