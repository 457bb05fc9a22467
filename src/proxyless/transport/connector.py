"""Connector: connects to an address.

An error is a `Status` that names the address and the cause, not an exception. A connection is ready
when the peer's SETTINGS are received: only then the peer supports HTTP/2.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from proxyless.base import OK, Address, HttpProxy, Status, StatusCode, UnixAddress
from proxyless.runtime import AsyncioNetwork, Clock, DeadlineQueue, LoopClock, Network
from proxyless.transport.attempt import (
    CANCELLED,
    PlainAttempt,
    TaskAttempt,
    describe_error,
    describe_timeout,
)
from proxyless.transport.client import ClientTransport, LoopTools, TransportOptions
from proxyless.transport.pump import make_read_buffer, turns_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from proxyless.transport.attempt import Attempt, OnDone
    from proxyless.transport.tls import ClientTls
    from proxyless.transport.tunnel import Tunnel


class Connector:
    """Makes connections on one loop."""

    def __init__(self, *, network: Network | None = None, clock: Clock | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._network = network or AsyncioNetwork()
        self.clock = clock or LoopClock(loop)
        self.deadlines = DeadlineQueue(self.clock)
        self._tools = LoopTools(
            loop, self.clock, make_read_buffer(), self.deadlines, turns_of(self.clock)
        )

    def start(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_done: OnDone,
        on_unusable: Callable[[Status], None],
    ) -> Attempt:
        """Connect, do the TLS handshake, wait for SETTINGS; all within the options' timeout.

        `server_name` is the host of the target, which TLS checks unless the options override it.
        `on_done` is not called inside this call. `on_unusable` is called once, when a connection
        that `on_done` was called with takes no more calls.
        """
        if _is_plain(options):
            attempt = PlainAttempt(self._tools, address, options, on_done, on_unusable)
            if attempt.start(self._network):
                return attempt
        connect = partial(self._connect, address, options, server_name, on_unusable)
        return TaskAttempt(self._tools.loop, address, connect, on_done)

    async def connect(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_unusable: Callable[[Status], None] = lambda _: None,
    ) -> ClientTransport | Status:
        """`start`, and wait until the attempt is over."""
        done: asyncio.Future[ClientTransport | Status | None] = self._tools.loop.create_future()

        def on_done(result: ClientTransport | Status | None) -> None:
            if not done.done():
                done.set_result(result)
            elif isinstance(result, ClientTransport):
                result.abort(CANCELLED)

        attempt = self.start(
            address, options, server_name=server_name, on_done=on_done, on_unusable=on_unusable
        )
        try:
            result = await done
        except asyncio.CancelledError:
            attempt.cancel()
            if not done.cancelled() and isinstance(made := done.result(), ClientTransport):
                made.abort(CANCELLED)
            raise
        assert result is not None, "the attempt was not cancelled"
        return result

    async def _connect(
        self,
        address: Address,
        options: TransportOptions,
        server_name: str | None,
        on_unusable: Callable[[Status], None],
    ) -> ClientTransport | Status:
        where = _describe_route(address, options.http_proxy)
        secured = _secure(options)
        if isinstance(secured, Status):
            return Status(StatusCode.UNAVAILABLE, f"{where}: {secured.details}")
        options = secured
        if options.is_local_only and not _is_local(address, options.http_proxy):
            text = f"{where}: local credentials, but the address is not on this machine"
            return Status(StatusCode.UNAVAILABLE, text)
        made: list[ClientTransport] = []
        # The status of a connection that became unusable before it was returned.
        ended: list[Status] = []

        def make() -> ClientTransport:
            transport = ClientTransport(self._tools, options, ended.append)
            transport.address = address
            made.append(transport)
            return transport

        try:
            async with asyncio.timeout(options.connect_timeout_s):
                if options.http_proxy is None:
                    status = await self._handshake(address, options.tls, server_name, make)
                else:
                    status = await self._handshake_through_proxy(
                        address, options, server_name, make
                    )
        except TimeoutError as error:
            # A timeout of the operating system has a number.
            is_ours = error.errno is None
            text = describe_timeout(options) if is_ours else describe_error(error)
            status = Status(StatusCode.UNAVAILABLE, text)
        except (OSError, ValueError) as error:
            status = Status(StatusCode.UNAVAILABLE, describe_error(error))
        except BaseException:
            _abort_all(made, CANCELLED)
            raise
        if status.is_ok and made[-1].is_usable:
            made[-1].on_unusable = on_unusable
            return made[-1]
        if status.is_ok and ended:
            # The peer sent SETTINGS and closed the connection.
            status = ended[0]
        _abort_all(made, status)
        return Status(StatusCode.UNAVAILABLE, f"{where}: {status.details}")

    async def _handshake(
        self,
        address: Address,
        tls: ClientTls | None,
        server_name: str | None,
        make: Callable[[], ClientTransport],
    ) -> Status:
        if tls is None:
            _, transport = await self._network.connect(address, make)
            return await transport.wait_settled()
        if tls.server_name is not None:
            server_name = tls.server_name
        socket, transport = await self._network.connect(
            address, make, tls=_context_of(tls), server_hostname=server_name
        )
        status = _check_peer(socket, tls)
        return await _wait_for_settings(transport, socket, tls) if status.is_ok else status

    async def _handshake_through_proxy(
        self,
        address: Address,
        options: TransportOptions,
        server_name: str | None,
        make: Callable[[], ClientTransport],
    ) -> Status:
        from proxyless.transport.tunnel import Tunnel  # noqa: PLC0415 - only with a proxy

        tls, proxy = options.tls, options.http_proxy
        assert proxy is not None, "the options have a proxy"
        if isinstance(address, UnixAddress):
            return Status(StatusCode.UNAVAILABLE, "a proxy does not connect to unix sockets")
        if tls is not None:
            _context_of(tls)  # First, because it raises if the certificates are not usable.
        tunnel = await Tunnel.open(self._network, address, proxy)
        if isinstance(tunnel, Status):
            return tunnel
        transport = make()
        try:
            status = OK if tls is None else await self._secure_tunnel(tunnel, tls, server_name)
            if status.is_ok:
                status = tunnel.hand_over(transport)
        except BaseException:
            tunnel.abort()
            raise
        if not status.is_ok:
            tunnel.abort()
            return status
        return await _wait_for_settings(transport, tunnel.socket, tls)

    async def _secure_tunnel(
        self, tunnel: Tunnel, tls: ClientTls, server_name: str | None
    ) -> Status:
        if tls.server_name is not None:
            server_name = tls.server_name
        status = await tunnel.start_tls(self._network, _context_of(tls), server_name)
        return _check_peer(tunnel.socket, tls) if status.is_ok else status


def _secure(options: TransportOptions) -> TransportOptions | Status:
    """The options with the current TLS of their source."""
    if options.tls_source is None:
        return options
    current = options.tls_source.current()
    if isinstance(current, Status):
        return current
    if current is None:
        return options
    return replace(options, tls=current, is_local_only=False)


def _is_plain(options: TransportOptions) -> bool:
    return (
        options.tls is None
        and options.tls_source is None
        and options.http_proxy is None
        and not options.is_local_only
    )


async def _wait_for_settings(
    transport: ClientTransport, socket: asyncio.Transport, tls: ClientTls | None
) -> Status:
    """Wait for the SETTINGS of a verified peer."""
    status = await transport.wait_settled()
    if tls is None:
        return status
    if not status.is_ok:
        return _explain_refusal(status, tls)
    if tls.sessions is not None:
        tls.sessions.keep(socket.get_extra_info("ssl_object"))
    return status


def _explain_refusal(status: Status, tls: ClientTls) -> Status:
    # In TLS 1.3 a server checks the client's certificate after the client's handshake is over.
    shown = "no client certificate" if tls.certificate_chain is None else "a client certificate"
    return Status(status.code, f"{status.details}, after a TLS handshake in which {shown} was sent")


def _is_local(address: Address, proxy: HttpProxy | None) -> bool:
    if proxy is not None:
        # If the proxy resolves the name, the address of the peer is not known here.
        is_proxy_local = proxy.address is not None and _is_local(proxy.address, None)
        return is_proxy_local and proxy.target is None and _is_local(address, None)
    from ipaddress import ip_address  # noqa: PLC0415 - only with local credentials

    return isinstance(address, UnixAddress) or ip_address(address.host).is_loopback


def _describe_route(address: Address, proxy: HttpProxy | None) -> str:
    if proxy is None or isinstance(address, UnixAddress):
        return str(address)
    from proxyless.transport.tunnel import find_route  # noqa: PLC0415 - only with a proxy

    proxy_address, target = find_route(address, proxy)
    return f"{target} through proxy {proxy_address}"


def _context_of(tls: ClientTls) -> ssl.SSLContext:
    from proxyless.transport.tls import client_context  # noqa: PLC0415 - only with TLS

    return client_context(tls)


def _check_peer(socket: asyncio.Transport, tls: ClientTls) -> Status:
    from proxyless.transport.tls import refuse_peer  # noqa: PLC0415 - only with TLS

    refusal = refuse_peer(socket.get_extra_info("ssl_object"), tls.check_peer)
    return OK if refusal is None else Status(StatusCode.UNAVAILABLE, f"TLS: {refusal}")


def _abort_all(made: list[ClientTransport], status: Status) -> None:
    for transport in made:
        transport.abort(status)
