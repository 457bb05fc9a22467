"""Connections that resume TLS sessions, on real sockets and both loops, with our own server."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import Address, HttpProxy, IpAddress
from proxyless.transport import ClientTls, Server, ServerCall, TlsSessions, TransportOptions
from tests.certificates import CertificateAuthority, server_context
from tests.connect_proxy import connect_proxy
from tests.worlds.transports import AUTHORITY, SERVICE, TransportClient, encode, expect_reply

ON_BOTH_LOOPS = True

CERTIFIED = CertificateAuthority()
ANY_PORT = IpAddress("127.0.0.1", 0)


async def echo(call: ServerCall) -> None:
    message = await call.read()
    assert message is not None
    await call.write(message)


@pytest.fixture
async def address() -> AsyncIterator[Address]:
    server = Server({f"{SERVICE}Echo": echo})
    yield await server.listen(ANY_PORT, tls=server_context(*CERTIFIED.issue([AUTHORITY])))
    await server.close()


@pytest.fixture
def options() -> TransportOptions:
    tls = ClientTls(root_certificates=CERTIFIED.certificate_pem, sessions=TlsSessions())
    return TransportOptions(tls=tls)


async def is_resumed(client: TransportClient, address: Address, options: TransportOptions) -> bool:
    """Whether a new connection resumes a session; it has to carry a call in any case."""
    transport = await client.connect(address, options, AUTHORITY)
    block = encode("Echo", scheme="https")
    assert await expect_reply(UnaryCall(transport, block, b"secret")) == b"secret"
    assert transport.refuse_authority(AUTHORITY) is None
    refusal = transport.refuse_authority("other.test")
    assert refusal is not None, "the certificate of a resumed session counts, too (A81)"
    socket = transport._socket  # noqa: SLF001
    assert socket is not None
    return bool(socket.get_extra_info("ssl_object").session_reused)


async def test_second_connection_resumes_the_session_of_the_first(
    client: TransportClient, address: Address, options: TransportOptions
) -> None:
    assert [await is_resumed(client, address, options) for _ in range(3)] == [False, True, True]
    assert "certificate refused" in await client.refused(address, options, "other.test")


async def test_connection_through_a_proxy_resumes_a_session(
    client: TransportClient, address: Address, options: TransportOptions
) -> None:
    async with connect_proxy() as proxy:
        through = replace(options, http_proxy=HttpProxy(proxy.address))
        assert [await is_resumed(client, address, through) for _ in range(2)] == [False, True]
        # Through a proxy the peer is the same.
        assert await is_resumed(client, address, options)


async def test_session_of_a_peer_that_was_refused_is_not_kept(
    client: TransportClient, address: Address, options: TransportOptions
) -> None:
    sessions = TlsSessions()
    assert options.tls is not None
    tls = replace(options.tls, sessions=sessions, check_peer=lambda _: "is not liked")
    assert await client.refused(address, replace(options, tls=tls), AUTHORITY) == (
        "TLS: is not liked"
    )
    assert len(sessions) == 0
