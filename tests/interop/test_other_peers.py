"""Our client and peers that are not gRPC servers, or that stop being servers."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from h2.settings import SettingCodes

from bench.transport_calls import UnaryCall
from proxyless.base import IpAddress, StatusCode, UnixAddress
from proxyless.transport import ClientTls, KeepaliveConfig, TransportOptions
from tests.certificates import CertificateAuthority
from tests.interop.h2_server import H2Server, answer_with
from tests.worlds.transports import (
    AUTHORITY,
    PATIENCE_S,
    Behave,
    TransportClient,
    encode,
    expect_reply,
    expect_status,
    raw_server,
    stay_silent,
    until,
)
from tests.worlds.wire import HEAD, data, goaway, headers, prefixed, settings

ON_BOTH_LOOPS = True

HURRY = TransportOptions(connect_timeout_s=0.1)
WATCHFUL = TransportOptions(
    keepalive=KeepaliveConfig(time_s=0.05, timeout_s=0.05, permit_without_calls=True)
)


def say(*pieces: bytes) -> Behave:
    """Send this at once, and then read."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(pieces))
        await stay_silent(reader, writer)

    return behave


def say_and_close(*pieces: bytes) -> Behave:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(pieces))
        await writer.drain()
        writer.write_eof()
        await stay_silent(reader, writer)

    return behave


# Peers without HTTP/2


async def test_a_server_of_http_1_is_refused(client: TransportClient) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>what?</html>"
    async with raw_server(say_and_close(answer)) as address:
        reason = await client.refused(address)
    expected = "peer answered 'HTTP/1.1 400 Bad Request': it speaks HTTP/1, wanted HTTP/2"
    assert reason == f"peer broke HTTP/2: {expected}"


@contextmanager
def standard_http_server() -> Iterator[IpAddress]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield IpAddress(*server.server_address[:2])  # type: ignore[arg-type]
        server.shutdown()
        thread.join()


async def test_pythons_http_server_is_refused(client: TransportClient) -> None:
    with standard_http_server() as address:
        reason = await client.refused(address)
    # It answers without a status line, because our version is unknown to it.
    assert reason.startswith("peer broke HTTP/2: peer does not speak HTTP/2: its first bytes are")


async def test_a_server_of_another_protocol_is_refused(client: TransportClient) -> None:
    async with raw_server(say(b"SSH-2.0-OpenSSH_9.9\r\n")) as address:
        reason = await client.refused(address)
    expected = "peer does not speak HTTP/2: its first bytes are b'SSH-2.0-OpenSSH_9.9'"
    assert reason == f"peer broke HTTP/2: {expected}"


async def test_a_server_with_tls_is_refused_by_a_client_without(
    client: TransportClient, authority: CertificateAuthority
) -> None:
    async with raw_server(stay_silent, authority.server_context([AUTHORITY])) as address:
        reason = await client.refused(address)
    # OpenSSL closes without an alert, or with one, which is not HTTP/2.
    assert reason.startswith(("connection lost: ", "peer broke HTTP/2: peer does not speak"))


async def test_a_server_without_tls_is_refused_by_a_client_with(
    client: TransportClient, authority: CertificateAuthority
) -> None:
    tls = ClientTls(root_certificates=authority.certificate_pem)
    async with raw_server(say(settings())) as address:
        reason = await client.refused(address, TransportOptions(tls=tls), AUTHORITY)
    assert reason.startswith("TLS: handshake: ")


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)], ids=["none", "http/1.1"])
async def test_a_tls_server_without_http2_is_refused(
    client: TransportClient, authority: CertificateAuthority, alpn: tuple[str, ...]
) -> None:
    tls = ClientTls(root_certificates=authority.certificate_pem)
    context = authority.server_context([AUTHORITY], alpn=alpn)
    async with raw_server(stay_silent, context) as address:
        reason = await client.refused(address, TransportOptions(tls=tls), AUTHORITY)
    assert reason == "TLS: peer negotiated None by ALPN, wanted 'h2'"


# Peers that do not answer


async def test_attempt_times_out_when_the_server_sends_nothing(client: TransportClient) -> None:
    async with raw_server(stay_silent) as address:
        assert await client.refused(address, HURRY) == "no connection within 0.1 s"


async def test_attempt_times_out_when_the_server_does_not_finish_the_handshake(
    client: TransportClient, authority: CertificateAuthority
) -> None:
    tls = ClientTls(root_certificates=authority.certificate_pem)
    hurry = TransportOptions(tls=tls, connect_timeout_s=0.1)
    async with raw_server(stay_silent) as address:
        assert await client.refused(address, hurry, AUTHORITY) == "no connection within 0.1 s"


async def test_giving_up_closes_the_connection(client: TransportClient) -> None:
    gone = asyncio.Event()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await stay_silent(reader, writer)
        finally:
            gone.set()

    async with raw_server(behave) as address:
        await client.refused(address, HURRY)
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()


async def test_cancelling_closes_the_connection(client: TransportClient) -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        try:
            await stay_silent(reader, writer)
        finally:
            gone.set()

    async with raw_server(behave) as address, asyncio.timeout(PATIENCE_S):
        attempt = asyncio.ensure_future(client.connector.connect(address, TransportOptions()))
        await came.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await gone.wait()


async def test_connection_is_refused_when_there_is_no_server(
    client: TransportClient, tmp_path: Path
) -> None:
    with socket.socket() as bound:  # Bound but not listening, so the port is not reused.
        bound.bind(("127.0.0.1", 0))
        reason = await client.refused(IpAddress(*bound.getsockname()))
    assert reason == "connection refused"
    reason = await client.refused(UnixAddress(str(tmp_path / "nothing")))
    assert reason == "no such file or directory"


# Peers that close the connection


async def test_a_server_that_leaves_at_once_is_refused(client: TransportClient) -> None:
    async with raw_server(say_and_close()) as address:
        assert await client.refused(address) == "connection lost: closed by peer"


async def test_a_server_that_greets_and_leaves_in_one_breath_is_refused(
    client: TransportClient,
) -> None:
    farewell = goaway(0, 0, b"maintenance")
    async with raw_server(say(settings(), farewell)) as address:
        reason = await client.refused(address)
    assert reason == "peer is going away: NO_ERROR: maintenance"


def answer_half(rest: Behave) -> Behave:
    """Send SETTINGS, wait for the call, answer with half a message, and then run `rest`."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings())
        await reader.readuntil(b"request")
        half = data(1, prefixed(b"m" * 100))[:50]
        writer.write(headers(1, HEAD) + half)
        await writer.drain()
        await rest(reader, writer)

    return behave


async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close so that the client gets RST instead of FIN."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("rest", [close, reset], ids=lambda rest: str(rest.__name__))
async def test_a_server_that_leaves_in_the_middle_of_a_message_ends_the_call(
    client: TransportClient, rest: Behave
) -> None:
    async with raw_server(answer_half(rest)) as address:
        transport = await client.connect(address)
        call = UnaryCall(transport, encode("Echo"), b"request")
        end = await expect_status(call, StatusCode.UNAVAILABLE, "connection lost: ")
        assert call.head is not None
        assert call.message is None
        assert not end.is_unprocessed
        await until(lambda: client.unusable, "the connection to be unusable")


@pytest.mark.rerun("limits the time of each PING")
async def test_keepalive_ends_a_call_whose_server_went_silent(client: TransportClient) -> None:
    async with raw_server(answer_half(stay_silent)) as address:
        transport = await client.connect(address, WATCHFUL)
        call = UnaryCall(transport, encode("Echo"), b"request")
        text = "keepalive: peer silent for 0.05 s after a PING"
        await expect_status(call, StatusCode.UNAVAILABLE, text)
        assert [status.details for status in client.unusable] == [text]
        async with asyncio.timeout(PATIENCE_S):
            await transport.wait_closed()


@pytest.mark.rerun("limits the time of each PING")
async def test_keepalive_ends_an_idle_connection_whose_server_went_silent(
    client: TransportClient,
) -> None:
    async with raw_server(say(settings())) as address:
        transport = await client.connect(address, WATCHFUL)
        async with asyncio.timeout(PATIENCE_S):
            await transport.wait_closed()
    assert "keepalive: peer silent" in client.unusable[0].details


# Peers with HTTP/2, but without gRPC


@pytest.mark.parametrize(
    ("http_status", "code"),
    [
        (200, StatusCode.UNKNOWN),
        (302, StatusCode.UNKNOWN),
        (400, StatusCode.INTERNAL),
        (401, StatusCode.UNAUTHENTICATED),
        (403, StatusCode.PERMISSION_DENIED),
        (404, StatusCode.UNIMPLEMENTED),
        (429, StatusCode.UNAVAILABLE),
        (500, StatusCode.UNKNOWN),
        (502, StatusCode.UNAVAILABLE),
        (503, StatusCode.UNAVAILABLE),
        (504, StatusCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("body", [None, b"<html>sorry</html>"], ids=["no body", "body"])
async def test_an_answer_of_http_becomes_a_status(
    client: TransportClient, http_status: int, code: StatusCode, body: bytes | None
) -> None:
    head = ((":status", str(http_status)), ("content-type", "text/html"))
    server = H2Server(answer_with(*head, body=body))
    async with raw_server(server) as address:
        transport = await client.connect(address)
        text = f"peer answered HTTP status {http_status} with content-type 'text/html', not gRPC"
        end = await expect_status(UnaryCall(transport, encode("Echo"), b"request"), code, text)
        assert not end.is_unprocessed
        assert transport.is_usable


# A strict HTTP/2 server with gRPC

GRPC_HEAD = ((":status", "200"), ("content-type", "application/grpc"))
OK_TRAILERS = (("grpc-status", "0"),)


async def test_a_limit_of_streams_is_never_exceeded(client: TransportClient) -> None:
    """The library breaks off the connection of a client that opens one too many."""
    server = H2Server(
        answer_with(*GRPC_HEAD, body=prefixed(b"reply"), trailers=OK_TRAILERS),
        {SettingCodes.MAX_CONCURRENT_STREAMS: 10},
    )
    async with raw_server(server) as address:
        transport = await client.connect(address)
        calls = [UnaryCall(transport, encode("Echo"), b"%d" % number) for number in range(200)]
        for call in calls:
            assert await expect_reply(call) == b"reply"
        assert server.requests == 200
        assert 5 < server.open_max <= 10


async def test_small_windows_and_frames_are_respected(client: TransportClient) -> None:
    server = H2Server(
        answer_with(*GRPC_HEAD, body=prefixed(b"reply"), trailers=OK_TRAILERS),
        {SettingCodes.INITIAL_WINDOW_SIZE: 1000, SettingCodes.MAX_FRAME_SIZE: 16384},
    )
    async with raw_server(server) as address:
        transport = await client.connect(address)
        calls = [UnaryCall(transport, encode("Echo"), bytes(100_000)) for _ in range(5)]
        for call in calls:
            assert await expect_reply(call) == b"reply"
