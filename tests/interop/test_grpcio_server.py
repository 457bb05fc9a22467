"""Our client and grpcio's servers: every kind of call, and every way it can end."""

import asyncio
import os
from itertools import count
from pathlib import Path

import grpc
import pytest

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Address, IpAddress, Metadata, StatusCode, UnixAddress
from proxyless.transport import ClientTransport, KeepaliveConfig, TransportOptions
from proxyless.wire import Limits, compress
from tests.interop.backends import Backend, backend_process
from tests.interop.conftest import Serve
from tests.worlds.transports import (
    PATIENCE_S,
    TransportClient,
    encode,
    expect_reply,
    expect_status,
    finish,
    read_all,
    until,
)

ON_BOTH_LOOPS = True

MIB = 1024 * 1024
ANY_SIZE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
EVERY_BYTE = bytes(range(256))


async def connect(client: TransportClient, backend: Backend, **limits: int) -> ClientTransport:
    return await client.connect(backend.address, TransportOptions(limits=Limits(**limits)))


# The four kinds of calls


@pytest.mark.parametrize("message", [b"", b"hello", EVERY_BYTE * 100])
async def test_a_unary_call_is_answered(
    client: TransportClient, serve: Serve, message: bytes
) -> None:
    transport = await connect(client, await serve())
    call = UnaryCall(transport, encode("Echo"), message)
    assert await expect_reply(call) == message


async def test_unary_calls_follow_each_other_on_one_connection(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    for number in range(200):
        message = b"%d" % number
        assert await expect_reply(UnaryCall(transport, encode("Echo"), message)) == message


async def test_unary_calls_run_beside_each_other_on_one_connection(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    messages = [b"%d" % number for number in range(300)]
    calls = [UnaryCall(transport, encode("Echo"), message) for message in messages]
    assert [await expect_reply(call) for call in calls] == messages


async def test_a_client_streams_thousands_of_messages(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Collect"))
    for number in range(3000):
        await call.write(bytes(number % 100))
    call.close_sending()
    assert await read_all(call) == [b"3000 %d" % (30 * sum(range(100)))]


async def test_request_stream_may_be_empty(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Collect"))
    call.close_sending()
    assert await read_all(call) == [b"0 0"]


async def test_a_server_streams_thousands_of_messages_in_order(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Repeat"))
    await call.write(b"3000 50", end_stream=True)
    messages = await read_all(call)
    assert [int.from_bytes(each[:4], "big") for each in messages] == list(range(3000))
    assert {len(each) for each in messages} == {50}


async def test_response_stream_may_be_empty(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Repeat"))
    await call.write(b"0 0", end_stream=True)
    assert await read_all(call) == []


async def test_client_and_server_take_turns(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("PingPong"))
    async with asyncio.timeout(PATIENCE_S):
        for number in range(1000):
            await call.write(b"%d" % number)
            assert await call.read() == b"%d" % number
    call.close_sending()
    assert await read_all(call) == []


async def test_client_and_server_stream_at_the_same_time(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("PingPong"))
    messages = [(b"%d " % number) * 20 for number in range(3000)]

    async def write_all() -> None:
        for message in messages:
            await call.write(message)
        call.close_sending()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        received = await read_all(call)
    assert received == messages


# Metadata

PAIRS: Metadata = (
    ("plain", "some text: with, signs; and = more"),
    ("empty", ""),
    ("repeated", "first"),
    ("repeated", "second"),
    ("bytes-bin", EVERY_BYTE),
    ("bytes-bin", b"again"),
    ("short-bin", b"\0"),
    ("none-bin", b""),
)


def prefixed(prefix: str) -> Metadata:
    return tuple((prefix + key, value) for key, value in PAIRS)


def picked(metadata: Metadata, prefix: str) -> list[tuple[str, str | bytes]]:
    """In one order: grpcio keeps it only among equal keys."""
    return sorted((pair for pair in metadata if pair[0].startswith(prefix)), key=lambda p: p[0])


async def test_metadata_travels_both_ways_on_a_unary_call(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    sent = prefixed("x-") + prefixed("t-")
    call = UnaryCall(transport, encode("Echo", metadata=sent), b"")
    end = await finish(call)
    assert end.status.is_ok, end.status
    assert picked(backend.seen.metadata[0], "x-") == picked(sent, "x-")
    assert picked(call.initial_metadata, "x-") == picked(sent, "x-")
    assert picked(call.initial_metadata, "t-") == []
    assert picked(end.trailers, "t-") == picked(sent, "t-")
    assert picked(end.trailers, "x-") == []


async def test_metadata_travels_both_ways_on_a_stream(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    sent = prefixed("x-") + prefixed("t-")
    call = StreamingCall(transport, encode("PingPong", metadata=sent))
    await until(lambda: call.head, "the response head, before any message")
    call.close_sending()
    end = await finish(call)
    assert end.status.is_ok, end.status
    assert call.head is not None
    assert picked(call.head.metadata, "x-") == picked(sent, "x-")
    assert picked(end.trailers, "t-") == picked(sent, "t-")


async def test_a_failed_call_has_trailing_metadata(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    metadata: Metadata = (("code", "5"), ("t-why", "gone"), ("t-why-bin", EVERY_BYTE))
    end = await finish(UnaryCall(transport, encode("Fail", metadata=metadata), b""))
    assert end.status.code is StatusCode.NOT_FOUND
    assert picked(end.trailers, "t-") == [("t-why", "gone"), ("t-why-bin", EVERY_BYTE)]


async def test_server_gets_the_user_agent(client: TransportClient, serve: Serve) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    await expect_reply(UnaryCall(transport, encode("Echo"), b""))
    assert ("user-agent", "proxyless") in backend.seen.metadata[0]


async def test_metadata_of_many_kilobytes_arrives(client: TransportClient, serve: Serve) -> None:
    backend = await serve(options=[("grpc.max_metadata_size", 256 * 1024)])
    transport = await connect(client, backend, header_list_bytes_max=256 * 1024)
    sent: Metadata = (("x-large", "v" * 100_000), ("t-large-bin", EVERY_BYTE * 200))
    call = UnaryCall(transport, encode("Echo", metadata=sent), b"")
    end = await finish(call)
    assert end.status.is_ok, end.status
    assert picked(call.initial_metadata, "x-") == [sent[0]]
    assert picked(end.trailers, "t-") == [sent[1]]


async def test_metadata_over_the_limit_fails_the_call_but_not_the_connection(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve(options=[("grpc.max_metadata_size", 256 * 1024)])
    transport = await connect(client, backend, header_list_bytes_max=8 * 1024)
    block = encode("Echo", metadata=(("x-large", "v" * 12_000),))
    text = "received metadata larger than max (8192 bytes)"
    await expect_status(UnaryCall(transport, block, b""), StatusCode.RESOURCE_EXHAUSTED, text)
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"still here")) == b"still here"


# Time


async def test_server_gets_the_deadline(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    reply = await expect_reply(UnaryCall(transport, encode("TimeLeft", timeout_s=30.0), b""))
    assert 20.0 < float(reply) <= 30.0


async def test_server_has_no_deadline_without_a_timeout(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    reply = await expect_reply(UnaryCall(transport, encode("TimeLeft"), b""))
    # On threads it is the maximum time instead of None.
    assert reply == b"None" or float(reply) > 1e9


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_call_ends_at_client_and_server_at_the_deadline(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    # The deadline is not sent to the server, which is notified by RST_STREAM.
    timeout_s = 0.3
    while not backend.seen.started:  # On a busy machine the first call may be too late.
        call = UnaryCall(transport, encode("Hang"), b"", timeout_s=timeout_s)
        await expect_status(call, StatusCode.DEADLINE_EXCEEDED, "deadline exceeded")
        timeout_s *= 2
    await until(lambda: backend.seen.cancelled, "the server to see the end")
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"next")) == b"next"


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_stream_ends_at_the_deadline(client: TransportClient, serve: Serve) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = StreamingCall(transport, encode("PingPong", timeout_s=0.1), timeout_s=0.1)
    await expect_status(call, StatusCode.DEADLINE_EXCEEDED)
    assert transport.calls == 0


# Status

DETAILS = 'käse "日本語" 🚀 100% %41 a/b?c\ttab\nline'


async def test_every_status_arrives_with_its_details(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    for code in list(StatusCode)[1:]:
        block = encode("Fail", metadata=(("code", str(int(code))),))
        end = await finish(UnaryCall(transport, block, DETAILS.encode()))
        assert (end.status.code, end.status.details) == (code, DETAILS)
        assert not end.is_unprocessed


async def test_an_unknown_method_is_unimplemented(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve())
    await expect_status(UnaryCall(transport, encode("Nowhere"), b""), StatusCode.UNIMPLEMENTED)


async def test_server_may_end_a_call_before_the_client_is_done(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Refuse"))
    await expect_status(call, StatusCode.PERMISSION_DENIED, "not for you")
    await call.write(b"too late")  # No-op.


async def test_thousands_of_refused_streams_are_no_flood(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    for _ in range(15):
        calls = [StreamingCall(transport, encode("Refuse")) for _ in range(100)]
        for call in calls:
            await expect_status(call, StatusCode.PERMISSION_DENIED)
    assert transport.is_usable


# Compression


@pytest.mark.parametrize(
    ("compression", "encoding"),
    [
        (grpc.Compression.NoCompression, "identity"),
        (grpc.Compression.Gzip, "gzip"),
        (grpc.Compression.Deflate, "deflate"),
    ],
    ids=["identity", "gzip", "deflate"],
)
async def test_what_a_server_compressed_is_understood(
    client: TransportClient, serve: Serve, compression: grpc.Compression, encoding: str
) -> None:
    transport = await connect(client, await serve(compression=compression))
    call = UnaryCall(transport, encode("Grow"), b"100000")
    assert await expect_reply(call) == b"g" * 100_000
    assert call.head is not None
    assert call.head.encoding == encoding


async def test_a_compressed_stream_is_understood(client: TransportClient, serve: Serve) -> None:
    transport = await connect(client, await serve(compression=grpc.Compression.Gzip))
    call = StreamingCall(transport, encode("Repeat"))
    await call.write(b"100 5000", end_stream=True)
    messages = await read_all(call)
    assert [each[:4] for each in messages] == [bytes((0, 0, 0, number)) for number in range(100)]
    assert {len(each) for each in messages} == {5000}


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_server_decodes_compressed_requests(
    client: TransportClient, serve: Serve, encoding: str
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("Collect", encoding=encoding))
    for size in (0, 1, 1000, 100_000):
        await call.write(compress(encoding, b"c" * size), is_compressed=True)
    await call.write(b"not compressed", end_stream=True)
    assert await read_all(call) == [b"5 101015"]


# Sizes


async def test_a_message_of_the_limit_is_taken_and_one_byte_more_is_not(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve(options=ANY_SIZE))
    call = UnaryCall(transport, encode("Grow"), b"%d" % (4 * MIB))
    assert len(await expect_reply(call)) == 4 * MIB
    call = UnaryCall(transport, encode("Grow"), b"%d" % (4 * MIB + 1))
    text = "Received message larger than max (4194305 vs. 4194304)"
    await expect_status(call, StatusCode.RESOURCE_EXHAUSTED, text)
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"next")) == b"next"


async def test_small_message_that_decompresses_over_the_limit_is_rejected(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve(compression=grpc.Compression.Gzip, options=ANY_SIZE)
    transport = await connect(client, backend)
    call = UnaryCall(transport, encode("Grow"), b"%d" % (4 * MIB + 1))
    await expect_status(call, StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")


async def test_larger_message_is_accepted_when_the_limit_allows_it(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve(options=ANY_SIZE), message_bytes_max=9 * MIB)
    call = UnaryCall(transport, encode("Grow"), b"%d" % (9 * MIB))
    assert len(await expect_reply(call)) == 9 * MIB


async def test_server_rejects_a_message_over_its_limit(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = UnaryCall(transport, encode("Echo"), bytes(4 * MIB + 1))
    await expect_status(call, StatusCode.RESOURCE_EXHAUSTED, "larger than max")
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"next")) == b"next"


async def test_messages_of_many_mebibytes_travel_both_ways(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve(options=ANY_SIZE), message_bytes_max=16 * MIB)
    message = os.urandom(MIB) * 10
    assert await expect_reply(UnaryCall(transport, encode("Echo"), message)) == message


async def test_large_and_small_calls_share_a_connection(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve(options=ANY_SIZE))
    message = os.urandom(MIB) * 3
    large = [UnaryCall(transport, encode("Echo"), message) for _ in range(4)]
    small = [UnaryCall(transport, encode("Echo"), b"%d" % number) for number in range(50)]
    assert [await expect_reply(call) for call in small] == [b"%d" % n for n in range(50)]
    for call in large:
        assert await expect_reply(call) == message


async def test_many_mebibytes_stream_both_ways_at_the_same_time(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    call = StreamingCall(transport, encode("PingPong"))
    message = os.urandom(MIB) * 3

    async def write_all() -> None:
        for _ in range(6):
            await call.write(message)
        call.close_sending()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        received = await read_all(call)
    assert len(received) == 6
    assert set(received) == {message}


# More calls than the server takes at a time


async def reply_in_the_end(call: UnaryCall, transport: ClientTransport, message: bytes) -> bytes:
    """The reply, though grpcio may count a call for a moment after it has answered it.

    Then it refuses the next one. It refuses most calls of grpcio's own client, too.
    """
    while (end := await finish(call)).is_unprocessed:
        assert end.status.details == "stream reset by peer: REFUSED_STREAM"
        call = UnaryCall(transport, encode("Wait"), message)
    return await expect_reply(call)


async def test_calls_over_the_servers_limit_wait_for_their_turn(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve(options=[("grpc.max_concurrent_streams", 10)])
    transport = await connect(client, backend)
    messages = [b"%d" % number for number in range(200)]
    calls = [UnaryCall(transport, encode("Wait"), message) for message in messages]
    # Handlers have threads of their own: the last one may have started and not be waiting yet.
    await until(lambda: backend.seen.running_max == 10, "ten waiting handlers at the server")
    assert backend.seen.started == 10
    assert transport.calls == 200
    backend.open_gate()
    for call, message in zip(calls, messages, strict=True):
        assert await reply_in_the_end(call, transport, message) == message
    assert backend.seen.running_max == 10


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_a_waiting_call_can_be_cancelled_and_can_expire(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve(options=[("grpc.max_concurrent_streams", 1)])
    transport = await connect(client, backend)
    running, cancelled, late, last = (
        UnaryCall(transport, encode("Wait"), b"%d" % number, timeout_s)
        for number, timeout_s in enumerate([None, None, 0.05, None])
    )
    await until(lambda: backend.seen.started == 1, "the first call at the server")
    cancelled.cancel()
    await expect_status(cancelled, StatusCode.CANCELLED)
    await expect_status(late, StatusCode.DEADLINE_EXCEEDED)
    backend.open_gate()
    assert await expect_reply(running) == b"0"
    assert await reply_in_the_end(last, transport, b"3") == b"3"
    assert backend.seen.started == 2


# Cancelling


async def test_server_is_notified_when_a_unary_call_is_cancelled(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = UnaryCall(transport, encode("Hang"), b"")
    await until(lambda: backend.seen.started, "the call at the server")
    call.cancel()
    await expect_status(call, StatusCode.CANCELLED, "cancelled by the client")
    await until(lambda: backend.seen.cancelled, "the server to see the end")


async def test_server_is_notified_when_an_open_stream_is_cancelled(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = StreamingCall(transport, encode("Listen"))
    await call.write(b"a")
    assert await call.read() == b"a"
    call.cancel()
    await expect_status(call, StatusCode.CANCELLED)
    await until(lambda: backend.seen.cancelled, "the server to see the end")


async def test_sending_server_is_notified_when_the_call_is_cancelled(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = StreamingCall(transport, encode("Repeat"))
    await call.write(b"1000000000 1000", end_stream=True)
    for number in range(10):
        message = await call.read()
        assert message is not None
        assert int.from_bytes(message[:4], "big") == number
    call.cancel()
    await expect_status(call, StatusCode.CANCELLED)
    await until(lambda: backend.seen.cancelled, "the server to see the end")
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"next")) == b"next"


async def test_a_storm_of_cancelled_calls_leaves_the_connection_usable(
    client: TransportClient, serve: Serve
) -> None:
    transport = await connect(client, await serve())
    for wave in range(15):
        # Not all at once: grpcio refuses some of a thousand calls that it has not handled yet.
        for number in range(100):
            UnaryCall(transport, encode("Echo"), b"%d" % number).cancel()
        message = b"after wave %d" % wave
        assert await expect_reply(UnaryCall(transport, encode("Echo"), message)) == message
    assert transport.is_usable


# The end of a server


async def test_a_server_that_shuts_down_lets_running_calls_finish(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = UnaryCall(transport, encode("Wait"), b"work")
    await until(lambda: backend.seen.started, "the call at the server")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(backend.stop(grace_s=PATIENCE_S))
        await until(lambda: client.unusable, "GOAWAY")
        assert "peer is going away: NO_ERROR" in client.unusable[0].details
        assert not transport.is_usable
        late = await finish(UnaryCall(transport, encode("Echo"), b"late"))
        assert late.status.code is StatusCode.UNAVAILABLE
        assert late.is_unprocessed
        assert call.end is None
        backend.open_gate()
        assert await expect_reply(call) == b"work"
    async with asyncio.timeout(PATIENCE_S):
        await transport.wait_closed()
    assert len(client.unusable) == 1


async def test_an_idle_connection_closes_when_its_server_shuts_down(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    await expect_reply(UnaryCall(transport, encode("Echo"), b""))
    await backend.stop()
    async with asyncio.timeout(PATIENCE_S):
        await transport.wait_closed()
    assert len(client.unusable) == 1


async def test_a_server_that_stops_without_grace_ends_calls(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    transport = await connect(client, backend)
    call = UnaryCall(transport, encode("Hang"), b"")
    await until(lambda: backend.seen.started, "the call at the server")
    await backend.stop()
    await expect_status(call, StatusCode.UNAVAILABLE, "Cancelling all calls")
    async with asyncio.timeout(PATIENCE_S):
        await transport.wait_closed()
    assert len(client.unusable) == 1


async def test_a_server_that_is_killed_ends_calls_with_unavailable(client: TransportClient) -> None:
    with backend_process() as (process, address):
        transport = await client.connect(address)
        assert await expect_reply(UnaryCall(transport, encode("Echo"), b"alive")) == b"alive"
        hanging = UnaryCall(transport, encode("Hang"), b"")
        streaming = StreamingCall(transport, encode("PingPong"))
        # After the others on the wire: they have left when this one is answered.
        assert await expect_reply(UnaryCall(transport, encode("Echo"), b"behind")) == b"behind"
        process.kill()
        for call in (hanging, streaming):
            end = await expect_status(call, StatusCode.UNAVAILABLE, "connection lost: ")
            assert not end.is_unprocessed
        assert [status.code for status in client.unusable] == [StatusCode.UNAVAILABLE]
        process.wait()
        assert await client.refused(address) == "connection refused"


# Keepalive

TOLERANT = (
    ("grpc.http2.min_ping_interval_without_data_ms", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


@pytest.mark.rerun("limits the time of each PING")
async def test_connection_stays_open_when_keepalive_pings_are_answered(
    client: TransportClient, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await serve(options=TOLERANT)
    keepalive = KeepaliveConfig(
        time_s=0.02, timeout_s=5.0, permit_without_calls=True, pings_without_data_max=0
    )
    transport = await client.connect(backend.address, TransportOptions(keepalive=keepalive))
    answers: list[bytes] = []
    monkeypatch.setattr(
        type(transport), "on_ping_ack", lambda _transport, data: answers.append(data)
    )
    await until(lambda: len(answers) >= 5, "five answers")
    assert transport.is_usable
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"alive")) == b"alive"


@pytest.mark.rerun("grpcio's server counts PINGs by real time")
async def test_server_sends_goaway_when_it_is_pinged_too_often(
    client: TransportClient, serve: Serve
) -> None:
    backend = await serve()
    keepalive = KeepaliveConfig(
        time_s=0.01, timeout_s=5.0, permit_without_calls=True, pings_without_data_max=0
    )
    transport = await client.connect(backend.address, TransportOptions(keepalive=keepalive))
    await until(lambda: client.unusable, "GOAWAY")
    assert "ENHANCE_YOUR_CALM: too_many_pings" in client.unusable[0].details
    assert transport.has_pinged_too_often


# Addresses of servers

ABSTRACT = (f"\0proxyless-interop-{os.getpid()}-{number}" for number in count())


@pytest.fixture(params=["v4", "v6", "unix", "abstract"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    match request.param:
        case "v4":
            return IpAddress("127.0.0.1", 0)
        case "v6":
            return IpAddress("::1", 0)
        case "unix":
            return UnixAddress(str(tmp_path / "s"))
        case _:
            return UnixAddress(next(ABSTRACT))


async def test_server_is_reached_at_every_kind_of_address(
    client: TransportClient, serve: Serve, place: Address
) -> None:
    backend = await serve(place=place)
    transport = await client.connect(backend.address)
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"here")) == b"here"
