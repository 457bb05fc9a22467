"""Unit tests of proxyless.transport.connector."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from proxyless.base import Address, IpAddress, Status, StatusCode, UnixAddress
from proxyless.runtime import Listener, VirtualClock
from proxyless.transport import (
    ClientTls,
    ClientTransport,
    Connector,
    PeerCertificate,
    TransportOptions,
)
from tests.certificates import CertificateAuthority
from tests.worlds.fake_sockets import ADDRESS, FakeSocket, FakeTls, feed, turn
from tests.worlds.wire import goaway, settings

P = TypeVar("P", bound=asyncio.BaseProtocol)
AUTHORITY = CertificateAuthority()
ROOTS = AUTHORITY.certificate_pem
TLS = ClientTls(root_certificates=ROOTS)


@dataclass
class FakeNetwork:
    """Connects at once by default, and passes on the peer's bytes."""

    error: Exception | None = None
    first_bytes: bytes = settings()
    alpn: str | None = "h2"
    never_connects: bool = False
    sockets: list[FakeSocket] = field(default_factory=list)
    connects: list[tuple[Address, bool, str | None]] = field(default_factory=list)

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        self.connects.append((address, tls is not None, server_hostname))
        if self.error is not None:
            raise self.error
        if self.never_connects:
            await asyncio.Event().wait()
        protocol = protocol_factory()
        assert isinstance(protocol, ClientTransport)
        made = FakeSocket(protocol, {"ssl_object": FakeTls(self.alpn)})
        self.sockets.append(made)
        protocol.connection_made(made)
        if self.first_bytes:
            feed(protocol, self.first_bytes)
        return made, protocol

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
        raise NotImplementedError

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


@dataclass
class ConnectorWorld:
    """A connector on a network, and the calls of `on_unusable`."""

    network: FakeNetwork
    unusable: list[Status] = field(default_factory=list)

    async def connect(
        self,
        options: TransportOptions | None = None,
        *,
        name: str | None = None,
        address: Address = ADDRESS,
    ) -> ClientTransport | Status:
        connector = Connector(network=self.network, clock=VirtualClock())
        return await connector.connect(
            address,
            options or TransportOptions(),
            server_name=name,
            on_unusable=self.unusable.append,
        )

    async def expect_refused(
        self, text: str, options: TransportOptions | None = None, address: Address = ADDRESS
    ) -> None:
        """Assert that connecting fails for this reason and leaves nothing open."""
        status = await self.connect(options, address=address)
        assert status == Status(StatusCode.UNAVAILABLE, f"{address}: {text}")
        await turn()
        assert all(made.is_closed for made in self.network.sockets)
        assert self.unusable == []


async def test_connection_is_returned_after_the_peers_settings() -> None:
    world = ConnectorWorld(FakeNetwork())
    transport = await world.connect()
    assert isinstance(transport, ClientTransport)
    assert transport.is_usable
    assert world.network.connects == [(ADDRESS, False, None)]
    transport.close()
    await transport.wait_closed()
    assert [status.details for status in world.unusable] == ["connection closed by us"]


async def test_connect_waits_for_the_peers_settings() -> None:
    world = ConnectorWorld(FakeNetwork(first_bytes=b""))
    attempt = asyncio.ensure_future(world.connect())
    await turn()
    await turn()
    assert not attempt.done()
    (made,) = world.network.sockets
    transport = made._protocol
    assert isinstance(transport, ClientTransport)
    feed(transport, settings())
    assert await attempt is transport
    transport.close()
    await transport.wait_closed()


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("[SSL: CERTIFICATE_VERIFY_FAILED] much more text")
    error.verify_message = "certificate has expired"
    return error


ERRORS: dict[str, tuple[Exception, str]] = {
    "refused": (ConnectionRefusedError(errno.ECONNREFUSED, "…"), "connection refused"),
    "the text of asyncio": (
        OSError(errno.EHOSTUNREACH, "Connect call failed ('192.0.2.1', 443)"),
        "no route to host",
    ),
    "the timeout of the system": (
        TimeoutError(errno.ETIMEDOUT, "Connect call failed ('192.0.2.1', 443)"),
        "connection timed out",
    ),
    "no number of the system": (
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "name or service not known",
    ),
    "no number": (OSError("Something Else"), "Something Else"),
    "no text": (ConnectionResetError(), "ConnectionResetError"),
    "bad value": (ValueError("check_hostname requires server_hostname"), "check_hostname requires"),
    "tls": (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version"), "TLS: handshake: "),
    "certificate": (certificate_error(), "TLS: certificate refused: certificate has expired"),
}


@pytest.mark.parametrize(("error", "text"), ERRORS.values(), ids=ERRORS)
async def test_error_becomes_a_status_with_address_and_cause(error: Exception, text: str) -> None:
    status = await ConnectorWorld(FakeNetwork(error=error)).connect()
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    assert status.details.startswith(f"{ADDRESS}: {text}")


async def test_other_exceptions_are_reported_to_the_loop() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    world = ConnectorWorld(FakeNetwork(error=ZeroDivisionError()))
    await world.expect_refused("connecting raised ZeroDivisionError()")
    assert [type(each) for each in reported] == [ZeroDivisionError]


async def test_connect_fails_after_the_timeout() -> None:
    hurry = TransportOptions(connect_timeout_s=0.0)
    await ConnectorWorld(FakeNetwork(never_connects=True)).expect_refused(
        "no connection within 0 s", hurry
    )
    await ConnectorWorld(FakeNetwork(first_bytes=b"")).expect_refused(
        "no connection within 0 s", hurry
    )


async def test_cancelling_aborts_the_connection() -> None:
    world = ConnectorWorld(FakeNetwork(first_bytes=b""))
    attempt = asyncio.ensure_future(world.connect())
    await turn()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert world.network.sockets[0].is_aborted
    await turn()


async def test_peer_without_http2_is_refused() -> None:
    text = "peer broke HTTP/2: peer answered 'HTTP/1.1 200 OK': it speaks HTTP/1, wanted HTTP/2"
    await ConnectorWorld(FakeNetwork(first_bytes=b"HTTP/1.1 200 OK\r\n\r\n")).expect_refused(text)


async def test_peer_that_sends_settings_and_closes_is_refused() -> None:
    first_bytes = settings() + goaway(0, 0, b"bye")
    await ConnectorWorld(FakeNetwork(first_bytes=first_bytes)).expect_refused(
        "peer is going away: NO_ERROR: bye"
    )


# TLS


@pytest.mark.parametrize(
    ("override", "name", "checked"),
    [
        (None, "target.test", "target.test"),
        ("override.test", "target.test", "override.test"),
        (None, None, None),
    ],
)
async def test_the_options_override_the_name_of_the_target(
    override: str | None, name: str | None, checked: str | None
) -> None:
    world = ConnectorWorld(FakeNetwork())
    tls = ClientTls(root_certificates=ROOTS, server_name=override)
    transport = await world.connect(TransportOptions(tls=tls), name=name)
    assert isinstance(transport, ClientTransport)
    assert world.network.connects == [(ADDRESS, True, checked)]
    transport.close()
    await turn()


async def test_a_peer_without_http2_in_its_tls_is_refused() -> None:
    network = FakeNetwork(alpn="http/1.1")
    text = "TLS: peer negotiated 'http/1.1' by ALPN, wanted 'h2'"
    await ConnectorWorld(network).expect_refused(text, TransportOptions(tls=TLS))


async def test_a_check_of_the_peer_may_refuse_it() -> None:
    def check_peer(peer: PeerCertificate) -> str | None:
        return f"not {peer.uris}"

    tls = ClientTls(root_certificates=ROOTS, check_peer=check_peer)
    await ConnectorWorld(FakeNetwork()).expect_refused(
        "TLS: not ('spiffe://a/b',)", TransportOptions(tls=tls)
    )


async def test_connect_fails_before_anything_is_sent_when_certificates_are_not_usable() -> None:
    world = ConnectorWorld(FakeNetwork())
    tls = ClientTls(root_certificates=b"")
    status = await world.connect(TransportOptions(tls=tls))
    assert isinstance(status, Status)
    assert "root certificates are not usable" in status.details
    assert world.network.connects == []


async def test_empty_server_name_overrides_the_name_of_the_target() -> None:
    world = ConnectorWorld(FakeNetwork())
    tls = ClientTls(root_certificates=ROOTS, server_name="", is_name_checked=False)
    transport = await world.connect(TransportOptions(tls=tls), name="target.test")
    assert isinstance(transport, ClientTransport)
    assert world.network.connects == [(ADDRESS, True, "")]
    transport.close()
    await turn()


@pytest.mark.parametrize(
    ("chain", "shown"), [(False, "no client certificate"), (True, "a client certificate")]
)
async def test_error_mentions_the_client_certificate_when_the_peer_closes_after_the_handshake(
    chain: bool, shown: str
) -> None:
    certificate, key = AUTHORITY.issue(["client"], client=True) if chain else (None, None)
    tls = ClientTls(root_certificates=ROOTS, certificate_chain=certificate, private_key=key)
    first_bytes = goaway(0, 0, b"bye")
    world = ConnectorWorld(FakeNetwork(first_bytes=first_bytes))
    status = await world.connect(TransportOptions(tls=tls))
    assert isinstance(status, Status)
    assert status.details.endswith(f", after a TLS handshake in which {shown} was sent")


@dataclass
class FixedSource:
    """Returns the test's value for each connection."""

    answers: list[ClientTls | Status | None]

    __hash__ = object.__hash__

    def current(self) -> ClientTls | Status | None:
        return self.answers.pop(0)


async def test_source_is_read_for_each_connection() -> None:
    world = ConnectorWorld(FakeNetwork())
    tls = ClientTls(root_certificates=ROOTS, server_name="first")
    source = FixedSource([tls, replace(tls, server_name="second"), None])
    for _ in range(3):
        transport = await world.connect(TransportOptions(tls_source=source))
        assert isinstance(transport, ClientTransport)
        transport.close()
    assert [(has_tls, name) for _, has_tls, name in world.network.connects] == [
        (True, "first"),
        (True, "second"),
        (False, None),
    ]
    await turn()


async def test_connect_fails_before_anything_is_sent_when_the_source_has_an_error() -> None:
    world = ConnectorWorld(FakeNetwork())
    source = FixedSource([Status(StatusCode.UNAVAILABLE, "no certificates yet")])
    status = await world.connect(TransportOptions(tls=TLS, tls_source=source))
    assert status == Status(StatusCode.UNAVAILABLE, f"{ADDRESS}: no certificates yet")
    assert world.network.connects == []


@pytest.mark.parametrize("has_answer", [True, False])
async def test_other_options_apply_only_when_the_source_returns_none(has_answer: bool) -> None:
    world = ConnectorWorld(FakeNetwork())
    source = FixedSource([TLS if has_answer else None])
    options = TransportOptions(is_local_only=True, tls_source=source)
    outcome = await world.connect(options, address=IpAddress("192.0.2.1", 1))
    assert isinstance(outcome, ClientTransport) is has_answer
    if isinstance(outcome, ClientTransport):
        outcome.close()
        await turn()


# Local only


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        (IpAddress("127.0.0.1", 1), True),
        (IpAddress("127.9.9.9", 1), True),
        (IpAddress("::1", 1), True),
        (UnixAddress("/run/x"), True),
        (IpAddress("192.0.2.1", 1), False),
        (IpAddress("2001:db8::1", 1), False),
        (IpAddress("0.0.0.0", 1), False),
    ],
    ids=str,
)
async def test_local_only_allows_addresses_of_this_machine(
    address: Address, is_local: bool
) -> None:
    world = ConnectorWorld(FakeNetwork())
    outcome = await world.connect(TransportOptions(is_local_only=True), address=address)
    if isinstance(outcome, ClientTransport):
        outcome.close()
        await turn()
    assert isinstance(outcome, ClientTransport) is is_local
    assert bool(world.network.connects) is is_local
