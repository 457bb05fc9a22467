"""Connections through HTTP proxies on real sockets, on both loops.

More cases in virtual time: tests/hostile/test_hostile_proxies.py.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import HttpProxy, IpAddress, Status
from proxyless.transport import ClientTls, Server, ServerCall, TransportOptions
from tests.certificates import CertificateAuthority, server_context
from tests.connect_proxy import connect_proxy
from tests.worlds.transports import (
    AUTHORITY,
    PATIENCE_S,
    SERVICE,
    Behave,
    TransportClient,
    encode,
    expect_reply,
    raw_server,
)
from tests.worlds.wire import settings

ON_BOTH_LOOPS = True

NOWHERE = IpAddress("192.0.2.5", 443)
ACCEPTED = b"HTTP/1.1 200 OK\r\n\r\n"
CERTIFIED = CertificateAuthority()
TLS = ClientTls(root_certificates=CERTIFIED.certificate_pem)


def saying(*pieces: bytes, is_closing: bool = False) -> Behave:
    """A proxy that sends this, and then closes or waits for the end."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        while not is_closing and await reader.read(65536):
            pass

    return behave


def through(proxy: IpAddress, tls: ClientTls | None = None) -> TransportOptions:
    return TransportOptions(http_proxy=HttpProxy(proxy), tls=tls)


async def refusal(client: TransportClient, behave: Behave, tls: ClientTls | None = None) -> str:
    """The error of a connection through this proxy."""
    async with raw_server(behave) as proxy, asyncio.timeout(PATIENCE_S):
        status = await client.connector.connect(NOWHERE, through(proxy, tls), server_name="a.test")
        assert isinstance(status, Status), status
        where = f"{NOWHERE} through proxy {proxy}: "
        assert status.details.startswith(where)
        return status.details.removeprefix(where)


@asynccontextmanager
async def echo_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[IpAddress]:
    async def echo(call: ServerCall) -> None:
        message = await call.read()
        assert message is not None
        call.send_head()
        await call.write(message)

    server = Server({f"{SERVICE}Echo": echo})
    address = await server.listen(IpAddress("127.0.0.1", 0), tls=tls)
    assert isinstance(address, IpAddress)
    try:
        yield address
    finally:
        await server.close()


@pytest.mark.parametrize("size", [0, 1000, 3 * 1024 * 1024])
@pytest.mark.parametrize("is_secure", [False, True])
async def test_calls_of_all_sizes_run_through_a_tunnel(
    client: TransportClient, size: int, is_secure: bool
) -> None:
    context = server_context(*CERTIFIED.issue([AUTHORITY])) if is_secure else None
    async with echo_server(context) as address, connect_proxy({str(NOWHERE): address}) as proxy:
        options = through(proxy.address, TLS if is_secure else None)
        transport = await client.connect(NOWHERE, options, AUTHORITY)
        block = encode("Echo", scheme="https" if is_secure else "http")
        message = bytes(size)
        assert await expect_reply(UnaryCall(transport, block, message)) == message
        assert proxy.targets == [str(NOWHERE)]


@pytest.mark.parametrize(
    "pieces",
    [(ACCEPTED + settings(),), (ACCEPTED, settings()), (ACCEPTED[:7], ACCEPTED[7:] + settings())],
)
async def test_first_bytes_of_the_server_are_not_lost(
    client: TransportClient, pieces: tuple[bytes, ...]
) -> None:
    async with raw_server(saying(*pieces)) as proxy:
        transport = await client.connect(NOWHERE, through(proxy))
        assert transport.is_usable


async def test_a_proxy_that_refuses_or_leaves_is_a_reason(client: TransportClient) -> None:
    assert await refusal(client, saying(b"HTTP/1.1 403 Forbidden\r\n\r\n")) == (
        "proxy answered CONNECT with HTTP status '403 Forbidden', wanted 200 to 299"
    )
    assert await refusal(client, saying(b"HTTP/1.1 20", is_closing=True)) in (
        "proxy closed the connection after 11 bytes of its answer",
        # The reset may arrive before the response.
        "proxy closed the connection without an answer to CONNECT",
    )
    assert await refusal(client, saying(b"\0" * 70_000)) == (
        "proxy answered CONNECT with '" + "\\x00" * 80 + "', which is not HTTP/1"
    )


async def test_bytes_before_tls_are_a_reason(client: TransportClient) -> None:
    assert await refusal(client, saying(ACCEPTED + b"x"), TLS) == (
        "proxy sent 1 bytes behind its answer, before any TLS"
    )


async def test_what_is_no_tls_behind_the_proxy_is_a_reason(client: TransportClient) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ACCEPTED)
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        while await reader.read(65536):
            pass

    assert (await refusal(client, behave, TLS)).startswith("TLS: handshake: ")
