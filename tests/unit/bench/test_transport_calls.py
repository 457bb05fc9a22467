"""Unit tests of bench.transport_calls."""

import asyncio

import pytest

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import StatusCode
from proxyless.transport import TransportOptions
from proxyless.wire import ErrorCode, Limits, compress
from proxyless.wire import frames as kinds
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from tests.worlds.fake_sockets import BLOCK, ClientTransportWorld, is_over, turn
from tests.worlds.wire import (
    HEAD,
    OK_TRAILERS,
    answer,
    data,
    headers,
    prefixed,
    rst_stream,
    window_update,
)

INITIAL_WINDOW_SIZE = 0x4
NARROW = ((INITIAL_WINDOW_SIZE, 10),)
KIB = 1024


# Unary


async def test_unary_call_has_metadata_message_and_trailers_after_await() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")
    assert world.take_frames().payload(1) == prefixed(b"request")
    world.peer_sends(headers(1, [*HEAD, ("x-key", "value")]), data(1, prefixed(b"reply")))
    assert not is_over(call)
    world.peer_sends(headers(1, [*OK_TRAILERS, ("t-key", "last")], end=True))
    end = await call
    assert end is call.end
    assert end.status.is_ok
    assert call.message == b"reply"
    assert ("x-key", "value") in call.initial_metadata
    assert ("t-key", "last") in end.trailers
    assert await call is end


async def test_trailers_alone_have_no_initial_metadata() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")
    world.peer_sends(headers(1, [*HEAD, ("grpc-status", "5"), ("grpc-message", "gone")], end=True))
    end = await call
    assert (end.status.code, end.status.details) == (StatusCode.NOT_FOUND, "gone")
    assert call.initial_metadata == ()


async def test_ok_without_a_message_is_an_error() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")
    world.peer_sends(headers(1, HEAD), headers(1, OK_TRAILERS, end=True))
    end = await call
    assert end.status.code is StatusCode.UNIMPLEMENTED
    assert end.status.details == "peer ended the call with OK but without a message"


async def test_second_message_is_an_error_and_the_stream_is_reset() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")
    world.take_frames()
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"one")), data(1, prefixed(b"two")))
    end = await call
    assert end.status.code is StatusCode.UNIMPLEMENTED
    assert end.status.details == "peer sent a second message in a unary call"
    assert world.take_frames().resets() == [(1, ErrorCode.CANCEL)]


async def test_status_is_the_error_when_a_message_came_before() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"one")))
    world.peer_sends(headers(1, [("grpc-status", "13")], end=True))
    assert (await call).status.code is StatusCode.INTERNAL
    assert call.message == b"one"


async def test_cancelled_call_ends_at_once_and_resets_the_stream() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request", timeout_s=5.0)
    world.take_frames()
    call.cancel()
    call.cancel()
    assert (await call).status.code is StatusCode.CANCELLED
    assert world.take_frames().resets() == [(1, ErrorCode.CANCEL)]
    assert len(world.deadlines) == 0


async def test_a_call_ends_at_its_deadline() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request", timeout_s=5.0)
    world.take_frames()
    world.clock.advance(4.999)
    assert not is_over(call)
    world.clock.advance(0.001)
    end = await call
    assert (end.status.code, end.status.details) == (
        StatusCode.DEADLINE_EXCEEDED,
        "deadline exceeded",
    )
    assert world.take_frames().resets() == [(1, ErrorCode.CANCEL)]


async def test_ended_call_has_no_deadline() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request", timeout_s=5.0)
    assert len(world.deadlines) == 1
    world.peer_sends(answer(1, b"reply"))
    assert len(world.deadlines) == 0
    world.clock.advance(10)
    assert (await call).status.is_ok


async def test_a_call_that_never_began_has_no_deadline() -> None:
    world = ClientTransportWorld()
    world.transport.close()
    call = UnaryCall(world.transport, BLOCK, b"request", timeout_s=5.0)
    assert (await call).is_unprocessed
    assert len(world.deadlines) == 0
    assert (await StreamingCall(world.transport, BLOCK, 5.0).wait_end()).is_unprocessed
    assert len(world.deadlines) == 0


async def test_response_is_dropped_when_the_waiting_task_was_cancelled() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"request")

    async def wait() -> None:
        await call

    waiting = asyncio.ensure_future(wait())
    await turn()
    waiting.cancel()
    await turn()
    world.peer_sends(answer(1, b"reply"))
    assert call.end is not None
    assert call.message == b"reply"


# Reading a stream


async def test_messages_are_read_in_order_and_then_the_end() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"one") + prefixed(b"two")))
    assert await call.read() == b"one"
    world.peer_sends(data(1, prefixed(b"three")), headers(1, OK_TRAILERS, end=True))
    assert call.end is not None
    assert [message async for message in call] == [b"two", b"three"]
    assert await call.read() is None
    assert await call.read() is None
    assert call.head is not None


async def test_a_reader_waits_for_a_message_or_the_end() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    reading = asyncio.ensure_future(call.read())
    await turn()
    world.peer_sends(headers(1, HEAD))
    await turn()
    assert not reading.done()
    world.peer_sends(data(1, prefixed(b"one")))
    assert await reading == b"one"
    reading = asyncio.ensure_future(call.read())
    await turn()
    world.peer_sends(headers(1, OK_TRAILERS, end=True))
    assert await reading is None


async def test_no_message_is_lost_when_a_reader_is_cancelled() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    reading = asyncio.ensure_future(call.read())
    await turn()
    reading.cancel()
    await turn()
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"one")))
    assert await call.read() == b"one"
    call.cancel()


async def test_waiting_for_the_end_drops_what_was_not_read() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(answer(1, b"one", b"two"))
    assert (await call.wait_end()).status.is_ok
    assert await call.read() is None


def updated_streams(world: ClientTransportWorld) -> list[int]:
    """The streams with a WINDOW_UPDATE since the last call."""
    return [stream_id for stream_id, _ in world.take_frames().updates() if stream_id]


async def test_slow_reader_sends_no_window_update_until_it_reads() -> None:
    world = ClientTransportWorld()
    message = bytes(64 * KIB)
    messages = world.transport._wire.limits.stream_window_bytes // (len(message) + 5)
    held = BUFFERED_BYTES_MAX // 2 // (len(message) + MESSAGE_OVERHEAD_BYTES)
    assert held < messages // 2
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, HEAD))
    world.take_frames()
    for _ in range(messages):
        world.peer_sends(data(1, prefixed(message)))
    assert updated_streams(world) == []
    for _ in range(messages - held):
        await call.read()
    assert updated_streams(world) == [1]
    call.cancel()


async def test_compressed_messages_are_unpacked_as_they_are_read() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, [*HEAD, ("grpc-encoding", "gzip")]))
    message = bytes(BUFFERED_BYTES_MAX)
    world.peer_sends(data(1, prefixed(compress("gzip", message), compressed=1) * 3))
    world.peer_sends(headers(1, OK_TRAILERS, end=True))
    # The server has ended the stream, but there are messages to read before its end.
    assert call.end is None
    await call.write(b"too late")
    for left in (2, 1, 0):
        assert len(call._received) == 1
        assert (await call.read(), len(call._received)) == (message, min(left, 1))
    assert await call.read() is None
    assert is_ok(call)


def is_ok(call: StreamingCall) -> bool:
    return call.end is not None and call.end.status.is_ok


async def test_empty_messages_count() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, HEAD))
    held_at = BUFFERED_BYTES_MAX // MESSAGE_OVERHEAD_BYTES
    is_held = []
    for count in (held_at, 1):
        world.peer_sends(data(1, prefixed(b"") * count))
        is_held.append(call._stream.is_held)
    assert is_held == [False, True]
    call.cancel()


async def test_fast_reader_sends_window_updates() -> None:
    world = ClientTransportWorld(TransportOptions(limits=Limits(stream_window_bytes=256 * KIB)))
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, HEAD))
    world.take_frames()
    for _ in range(3):
        world.peer_sends(data(1, prefixed(bytes(64 * KIB))))
        await call.read()
    assert updated_streams(world) == [1]
    call.cancel()


# Writing a stream


async def test_messages_are_sent_in_the_order_of_writes() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    await call.write(b"one")
    await call.write(b"zipped", is_compressed=True)
    sent = world.take_frames()
    assert sent.payload(1) == prefixed(b"one") + prefixed(b"zipped", compressed=1)
    call.close_sending()
    call.close_sending()
    (last,) = world.take_frames().frames
    assert (last.kind, last.flags, last.payload) == (kinds.DATA, 1, b"")
    call.cancel()


async def test_the_last_message_may_close_the_sending_side() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    await call.write(b"only", end_stream=True)
    assert [frame.flags for frame in world.take_frames().of(kinds.DATA)] == [1]
    world.peer_sends(answer(1, b"reply"))
    assert (await call.wait_end()).status.is_ok
    assert world.take_frames().resets() == []


async def test_a_writer_waits_for_the_peers_window() -> None:
    world = ClientTransportWorld(announce=NARROW)
    call = StreamingCall(world.transport, BLOCK)
    writing = asyncio.ensure_future(call.write(b"0123456789"))
    await turn()
    assert world.take_frames().payload(1) == prefixed(b"0123456789")[:10]
    assert not writing.done()
    world.peer_sends(window_update(1, 4))
    await turn()
    assert not writing.done()
    world.peer_sends(window_update(1, 1))
    await writing
    assert world.take_frames().payload(1) == b"56789"
    call.cancel()


async def test_a_writer_waits_for_the_socket() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.transport.pause_writing()
    writing = asyncio.ensure_future(call.write(b"message"))
    await turn()
    assert not writing.done()
    world.transport.resume_writing()
    await writing
    assert world.take_frames().payload(1) == prefixed(b"message")
    call.cancel()


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "lost"])
async def test_the_end_of_the_call_ends_the_wait(reset: bool) -> None:
    world = ClientTransportWorld(announce=NARROW)
    call = StreamingCall(world.transport, BLOCK)
    writing = asyncio.ensure_future(call.write(bytes(100)))
    reading = asyncio.ensure_future(call.read())
    await turn()
    if reset:
        world.peer_sends(rst_stream(1, ErrorCode.REFUSED_STREAM))
    else:
        world.socket.lose()
    await writing
    assert await reading is None
    assert call.end is not None
    assert call.end.status.code is StatusCode.UNAVAILABLE
    assert call.end.is_unprocessed is reset


async def test_order_of_messages_is_kept_when_a_writer_is_cancelled() -> None:
    world = ClientTransportWorld(announce=NARROW)
    call = StreamingCall(world.transport, BLOCK)
    writing = asyncio.ensure_future(call.write(b"first message"))
    await turn()
    writing.cancel()
    await turn()
    writing = asyncio.ensure_future(call.write(b"second"))
    await turn()
    world.peer_sends(window_update(1, 1000))
    await writing
    assert world.take_frames().payload(1) == prefixed(b"first message") + prefixed(b"second")
    call.cancel()


async def test_after_the_end_writing_does_nothing() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK)
    world.peer_sends(headers(1, [*HEAD, ("grpc-status", "7")], end=True))
    world.take_frames()
    await call.write(b"too late")
    call.close_sending()
    call.cancel()
    assert world.take_frames().frames == []
    assert (await call.wait_end()).status.code is StatusCode.PERMISSION_DENIED


async def test_a_stream_ends_at_its_deadline() -> None:
    world = ClientTransportWorld()
    call = StreamingCall(world.transport, BLOCK, timeout_s=5.0)
    reading = asyncio.ensure_future(call.read())
    await turn()
    world.clock.advance(5)
    assert await reading is None
    assert call.end is not None
    assert call.end.status.code is StatusCode.DEADLINE_EXCEEDED
