"""Unit tests of proxyless.transport.tunnel, and of connections through one."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from proxyless.base import Address, HttpProxy, IpAddress, Status, StatusCode, UnixAddress
from proxyless.runtime import Listener, VirtualClock
from proxyless.transport import ClientTls, ClientTransport, Connector, TransportOptions
from proxyless.transport.pump import READ_BUFFER_BYTES
from proxyless.transport.tunnel import find_route
from tests.certificates import CertificateAuthority
from tests.worlds.fake_sockets import FakeSocket, FakeTls, feed, turn
from tests.worlds.wire import PREFACE, settings

P = TypeVar("P", bound=asyncio.BaseProtocol)

PROXY = IpAddress("192.0.2.9", 3128)
BACKEND = IpAddress("192.0.2.1", 443)
ACCEPTED = b"HTTP/1.1 200 OK\r\n\r\n"
TLS = ClientTls(root_certificates=CertificateAuthority().certificate_pem)


class Socket(FakeSocket):
    """A socket whose protocol changes."""

    def __init__(self, protocol: asyncio.BaseProtocol, extra: dict[str, object]) -> None:
        super().__init__(protocol, extra)
        # Set by the protocol.
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol


@dataclass
class ProxyNetwork:
    """A proxy that responds at once, with a peer whose TLS handshake succeeds."""

    answer: bytes = ACCEPTED
    alpn: str | None = "h2"
    # Bytes of the peer inside TLS before the hand-over.
    early: bytes = b""
    is_lost_early: bool = False
    tls_error: Exception | None = None
    connects: list[Address] = field(default_factory=list)
    sockets: list[Socket] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        assert tls is None, "the connection to a proxy has no TLS"
        self.connects.append(address)
        protocol = protocol_factory()
        assert isinstance(protocol, asyncio.Protocol)
        self.sockets.append(Socket(protocol, {}))
        protocol.connection_made(self.sockets[-1])
        if self.answer:
            protocol.data_received(self.answer)
        return self.sockets[-1], protocol

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        return

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        assert transport is self.sockets[-1]
        self.names.append(server_hostname)
        if self.tls_error is not None:
            transport.abort()
            raise self.tls_error
        secured = Socket(protocol, {"ssl_object": FakeTls(self.alpn)})
        self.sockets.append(secured)
        if self.early:
            protocol.data_received(self.early)
        if self.is_lost_early:
            protocol.connection_lost(None)
        return secured

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        raise NotImplementedError

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        raise NotImplementedError


async def connect(
    network: ProxyNetwork,
    proxy: HttpProxy | None = None,
    *,
    address: Address = BACKEND,
    name: str | None = None,
    tls: ClientTls | None = None,
    is_local_only: bool = False,
) -> ClientTransport | Status:
    options = TransportOptions(
        http_proxy=proxy or HttpProxy(PROXY), tls=tls, is_local_only=is_local_only
    )
    connector = Connector(network=network, clock=VirtualClock())
    return await connector.connect(address, options, server_name=name)


async def connect_and_send_settings(network: ProxyNetwork, **arguments: object) -> ClientTransport:
    """A connection to a server that sends SETTINGS after the hand-over."""
    attempt = asyncio.ensure_future(connect(network, **arguments))  # type: ignore[arg-type]
    while not attempt.done():
        await turn()
        taker = network.sockets[-1].get_protocol() if network.sockets else None
        if isinstance(taker, ClientTransport) and taker.settled is None:
            feed(taker, settings())
    made = attempt.result()
    assert isinstance(made, ClientTransport), made
    return made


async def expect_refused(text: str, network: ProxyNetwork, **arguments: object) -> None:
    """Assert that connecting fails for this reason and leaves nothing open."""
    status = await connect(network, **arguments)  # type: ignore[arg-type]
    assert status == Status(StatusCode.UNAVAILABLE, text)
    await turn()
    assert all(made.is_closed for made in network.sockets)


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        (HttpProxy(PROXY), (PROXY, "192.0.2.1:443")),
        (HttpProxy(target="name.example:80"), (BACKEND, "name.example:80")),
        (HttpProxy(PROXY, "name.example:80"), (PROXY, "name.example:80")),
    ],
)
def test_route_has_the_address_of_the_proxy_and_the_target(
    proxy: HttpProxy, expected: tuple[IpAddress, str]
) -> None:
    assert find_route(BACKEND, proxy) == expected


async def test_ipv6_target_is_in_brackets() -> None:
    address = IpAddress("2001:db8::1", 443)
    assert find_route(address, HttpProxy(PROXY)) == (PROXY, "[2001:db8::1]:443")


async def test_connect_is_sent_to_the_proxy_and_then_the_preface_to_the_peer() -> None:
    network = ProxyNetwork()
    proxy = HttpProxy(target="name.example:80", authorization="Basic eDp5")
    transport = await connect_and_send_settings(network, proxy=proxy)
    assert network.connects == [BACKEND]
    [socket] = network.sockets
    assert socket.writes[0] == (
        b"CONNECT name.example:80 HTTP/1.1\r\nHost: name.example:80\r\n"
        b"Proxy-Authorization: Basic eDp5\r\n\r\n"
    )
    assert socket.writes[1].startswith(PREFACE)
    # The pump has replaced the tunnel.
    assert socket.get_protocol() is transport
    assert not socket.is_paused
    transport.close()
    await transport.wait_closed()


async def test_bytes_behind_the_response_are_read_first() -> None:
    network = ProxyNetwork(ACCEPTED + settings())
    made = await connect(network)
    assert isinstance(made, ClientTransport), made
    made.close()
    await made.wait_closed()


async def test_more_than_fits_into_the_buffer_is_read_piece_by_piece() -> None:
    unknown = b"\0\x40\0\xfa\0\0\0\0\0" + bytes(0x4000)
    early = settings() + unknown * 20 + b"\0\0\x08\x06\0\0\0\0\0" + b"the ping"
    assert len(early) > READ_BUFFER_BYTES
    network = ProxyNetwork(ACCEPTED + early)
    made = await connect(network)
    assert isinstance(made, ClientTransport), made
    written = b"".join(network.sockets[0].writes)
    assert b"\0\0\x08\x06\x01\0\0\0\0" + b"the ping" in written
    made.close()
    await made.wait_closed()


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        ("target.example", None, "target.example"),
        ("target.example", "override.example", "override.example"),
        ("target.example", "", ""),
        (None, None, "192.0.2.1"),
    ],
)
async def test_tls_is_with_the_peer_and_never_with_the_proxy(
    name: str | None, own: str | None, expected: str
) -> None:
    network = ProxyNetwork(early=settings())
    tls = ClientTls(root_certificates=TLS.root_certificates, server_name=own)
    made = await connect(network, name=name, tls=tls)
    assert isinstance(made, ClientTransport), made
    assert network.names == [expected]
    plain, secured = network.sockets
    assert len(plain.writes) == 1
    assert secured.writes[0].startswith(PREFACE)
    assert secured.get_protocol() is made
    made.close()
    await made.wait_closed()
    plain.close()


async def test_bytes_before_tls_are_an_error_of_the_proxy() -> None:
    await expect_refused(
        f"{BACKEND} through proxy {PROXY}: proxy sent 5 bytes behind its answer, before any TLS",
        ProxyNetwork(ACCEPTED + b"hello"),
        tls=TLS,
    )


async def test_failed_handshake_is_reported() -> None:
    await expect_refused(
        f"{BACKEND} through proxy {PROXY}: TLS: handshake: WRONG",
        ProxyNetwork(tls_error=ssl.SSLError(1, "WRONG")),
        tls=TLS,
    )


async def test_peer_without_http2_is_refused_before_the_preface_is_sent() -> None:
    network = ProxyNetwork(alpn="http/1.1")
    status = await connect(network, tls=TLS)
    assert isinstance(status, Status)
    assert "peer negotiated 'http/1.1' by ALPN" in status.details
    assert network.sockets[-1].writes == []
    assert network.sockets[-1].is_closed
    network.sockets[0].close()


async def test_connection_lost_before_the_hand_over_is_an_error_of_the_proxy() -> None:
    network = ProxyNetwork(is_lost_early=True)
    status = await connect(network, tls=TLS)
    assert isinstance(status, Status)
    assert status.details.endswith("proxy closed the connection")
    network.sockets[0].close()


async def test_connect_fails_before_the_proxy_is_used_when_certificates_are_not_usable() -> None:
    network = ProxyNetwork()
    status = await connect(network, tls=ClientTls(root_certificates=b"no certificate"))
    assert isinstance(status, Status)
    assert "root certificates are not usable" in status.details
    assert network.connects == []


LOOPBACK = IpAddress("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("address", "proxy", "is_local"),
    [
        (LOOPBACK, HttpProxy(IpAddress("127.0.0.1", 2)), True),
        (BACKEND, HttpProxy(IpAddress("127.0.0.1", 2)), False),
        (LOOPBACK, HttpProxy(PROXY), False),
        # The address of a name that the proxy resolves is unknown.
        (LOOPBACK, HttpProxy(target="localhost:1"), False),
    ],
)
async def test_local_only_applies_to_proxy_and_target(
    address: IpAddress, proxy: HttpProxy, is_local: bool
) -> None:
    network = ProxyNetwork(ACCEPTED + settings())
    made = await connect(network, proxy, address=address, is_local_only=True)
    assert isinstance(made, ClientTransport) is is_local
    assert bool(network.connects) is is_local
    if isinstance(made, ClientTransport):
        made.close()
        await made.wait_closed()


async def test_a_unix_socket_has_no_proxy() -> None:
    await expect_refused(
        "unix:/x: a proxy does not connect to unix sockets",
        ProxyNetwork(),
        address=UnixAddress("/x"),
    )


async def test_authorization_is_in_no_text() -> None:
    network = ProxyNetwork(b"HTTP/1.1 407 no\r\n\r\n")
    proxy = HttpProxy(PROXY, authorization="Basic c2VjcmV0")
    status = await connect(network, proxy)
    options = TransportOptions(http_proxy=proxy)
    assert "c2VjcmV0" not in f"{status!r} {options!r}"
