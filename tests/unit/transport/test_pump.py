"""Unit tests of proxyless.transport.pump, in the role of a client."""

import asyncio

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import Status, StatusCode
from proxyless.transport.pump import READ_BUFFER_BYTES, WRITE_BUFFER_BYTES
from proxyless.wire import ErrorCode
from proxyless.wire import frames as kinds
from proxyless.wire.limits import FRAMES_PER_TURN_MAX
from tests.worlds.fake_sockets import BLOCK, ClientTransportWorld, turn
from tests.worlds.wire import (
    HEAD,
    PREFACE,
    CallRecorder,
    answer,
    data,
    headers,
    ping,
    prefixed,
    settings,
    settings_ack,
)

LOST = Status(StatusCode.UNAVAILABLE, "the test drops it")


def kinds_of(world: ClientTransportWorld) -> list[list[int]]:
    """The types of frames in each write since the last call."""
    return [[frame.kind for frame in write.frames] for write in world.take_writes()]


def open_call(world: ClientTransportWorld, message: bytes = b"message") -> CallRecorder:
    recorder = CallRecorder()
    recorder.stream = world.transport.open_unary(BLOCK, recorder, message)
    return recorder


# Writing


async def test_preface_is_sent_when_there_is_a_socket() -> None:
    world = ClientTransportWorld(send_settings=False)
    await turn()
    assert world.socket.writes == []
    world.transport.connection_made(world.socket)
    assert world.socket.writes[0].startswith(PREFACE)
    assert kinds_of(world) == [[kinds.SETTINGS, kinds.WINDOW_UPDATE]]


async def test_single_call_is_sent_at_once_in_one_write() -> None:
    world = ClientTransportWorld()
    open_call(world)
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA]]


async def test_calls_of_one_turn_are_sent_in_one_write() -> None:
    world = ClientTransportWorld()
    open_call(world)
    world.take_frames()
    for _ in range(3):
        open_call(world)
    assert kinds_of(world) == []
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA] * 3]
    await turn()
    assert kinds_of(world) == []


async def test_calls_after_calls_that_ended_together_are_sent_in_one_write() -> None:
    world = ClientTransportWorld()
    open_call(world)
    open_call(world)
    world.peer_sends(answer(1, b"reply"), answer(3, b"reply"))
    await turn()
    world.take_frames()
    open_call(world)
    assert kinds_of(world) == []
    open_call(world)
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA] * 2]


async def test_call_after_a_single_call_is_sent_at_once() -> None:
    world = ClientTransportWorld()
    open_call(world)
    open_call(world)
    world.peer_sends(answer(1, b"reply"))
    world.peer_sends(answer(3, b"reply"))
    await turn()
    world.take_frames()
    open_call(world)
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA]]


async def test_output_caused_by_a_read_is_sent_in_one_write() -> None:
    world = ClientTransportWorld()
    world.peer_sends(ping(b"11111111"), settings(), ping(b"22222222"))
    assert kinds_of(world) == [[kinds.PING, kinds.SETTINGS, kinds.PING]]


async def test_output_caused_by_a_read_is_sent_with_a_scheduled_write() -> None:
    world = ClientTransportWorld()
    open_call(world)
    world.take_frames()
    open_call(world)
    world.peer_sends(ping())
    assert kinds_of(world) == []
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.PING]]
    world.peer_sends(ping())
    assert kinds_of(world) == [[kinds.PING]]


async def test_goaway_is_sent_when_the_peer_breaks_the_protocol_before_a_scheduled_write() -> None:
    world = ClientTransportWorld()
    open_call(world)
    world.take_frames()
    open_call(world)
    world.peer_sends(data(0, b"x"))
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.GOAWAY]]
    assert world.socket.is_closed


async def test_call_opened_during_a_read_is_sent_with_its_output() -> None:
    world = ClientTransportWorld()
    opened: list[CallRecorder] = []
    open_call(world).hooks["end"] = lambda _: opened.append(open_call(world))
    world.take_frames()
    world.peer_sends(answer(1, b"reply"), ping())
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.PING]]


async def test_frames_of_a_large_read_are_handled_in_turns() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"")) * 3 * FRAMES_PER_TURN_MAX)
    assert call.count("message") == FRAMES_PER_TURN_MAX - 1
    paused = [world.socket.is_reading_paused]
    world.clock.advance(0)
    paused.append(world.socket.is_reading_paused)
    assert call.count("message") == 3 * FRAMES_PER_TURN_MAX
    assert paused == [True, False]


async def test_frames_that_wait_for_their_turn_are_dropped_with_the_connection() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"")) * 2 * FRAMES_PER_TURN_MAX)
    world.transport.abort(LOST)
    call.expect_end(StatusCode.UNAVAILABLE)
    handled = call.count("message")
    world.clock.advance(0)
    assert call.count("message") == handled


async def test_flood_that_waits_for_its_turn_ends_the_connection() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.peer_sends(headers(1, HEAD), data(1, prefixed(b"")) * 2500, ping() * 1100)
    call.expect_open()
    world.clock.advance(0)
    assert world.socket.is_closed
    call.expect_end(StatusCode.UNAVAILABLE, "flood of PING")


async def test_only_data_waits_while_the_socket_is_full() -> None:
    world = ClientTransportWorld()
    assert world.socket.write_buffer_high == WRITE_BUFFER_BYTES
    world.transport.pause_writing()
    call = open_call(world)
    world.peer_sends(ping())
    assert kinds_of(world) == [[kinds.HEADERS], [kinds.PING]]
    world.transport.resume_writing()
    assert kinds_of(world) == [[kinds.DATA]]
    world.peer_sends(answer(1, b"reply"))
    call.expect_messages(b"reply")


async def test_after_the_loss_nothing_is_written() -> None:
    world = ClientTransportWorld()
    open_call(world)
    open_call(world)
    world.socket.lose()
    await turn()
    world.take_frames()
    open_call(world)
    await turn()
    assert kinds_of(world) == []


async def test_calls_that_the_kernel_did_not_take_are_unprocessed() -> None:
    world = ClientTransportWorld()
    sent = open_call(world)
    world.socket.is_broken = True
    unsent = open_call(world)
    await turn()
    late = open_call(world)
    await turn()
    sent.expect_end(StatusCode.UNAVAILABLE, "broken pipe")
    for call in (unsent, late):
        assert call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True).is_retry_free


async def test_calls_on_a_closing_socket_are_unprocessed() -> None:
    world = ClientTransportWorld()
    # As in asyncio after an EOF: it still sends its buffer.
    world.socket.is_stuck = True
    world.socket.close()
    world.take_frames()
    call = open_call(world)
    await turn()
    assert kinds_of(world) == []
    world.socket.lose()
    await turn()
    assert call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True).is_retry_free


# Reading


@pytest.mark.parametrize("piece_bytes", [1, 7, 100])
async def test_bytes_may_come_in_any_pieces(piece_bytes: int) -> None:
    world = ClientTransportWorld(send_settings=False)
    world.transport.connection_made(world.socket)
    stream = settings() + settings_ack()
    for at in range(0, len(stream), piece_bytes):
        world.peer_sends(stream[at : at + piece_bytes])
    call = open_call(world)
    reply = answer(1, b"reply" * 100)
    for at in range(0, len(reply), piece_bytes):
        world.peer_sends(reply[at : at + piece_bytes])
    call.expect_messages(b"reply" * 100)
    call.expect_end()


async def test_connections_share_a_buffer_and_keep_what_they_read() -> None:
    first, second = ClientTransportWorld(), ClientTransportWorld()
    assert first.transport.get_buffer(-1) is second.transport.get_buffer(-1)
    assert len(first.transport.get_buffer(-1)) == READ_BUFFER_BYTES
    calls = open_call(first), open_call(second)
    replies = answer(1, b"to the first"), answer(1, b"to the other")
    first.peer_sends(replies[0][:50])
    second.peer_sends(replies[1][:50])
    first.peer_sends(replies[0][50:])
    second.peer_sends(replies[1][50:])
    calls[0].expect_messages(b"to the first")
    calls[1].expect_messages(b"to the other")


async def test_goaway_is_sent_when_the_peer_breaks_the_protocol() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.take_frames()
    world.peer_sends(data(3, b"not opened"))
    ((_, code, text),) = world.take_frames().goaways()
    assert code == ErrorCode.PROTOCOL_ERROR
    assert b"DATA on stream 3, which was never opened" in text
    assert world.socket.is_closed
    call.expect_end(StatusCode.UNAVAILABLE, "never opened")
    world.expect_unusable("peer broke HTTP/2: DATA on stream 3, which was never opened")
    world.peer_sends(answer(1, b"too late"))
    await turn()


# Ends


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "closed by peer"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError(), "TimeoutError"),
    ],
    ids=["none", "with a text", "without a text"],
)
async def test_a_loss_ends_calls_with_its_reason(error: Exception | None, text: str) -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.socket.lose(error)
    await turn()
    end = call.expect_end(StatusCode.UNAVAILABLE, "connection lost: ")
    assert end.status.details.endswith(text)
    assert [status.details for status in world.unusable] == [end.status.details]


async def test_connection_is_aborted_when_the_peer_closes_its_side() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.transport.pause_writing()
    # A true value would keep the transport half open.
    assert not world.transport.eof_received()  # type: ignore[func-returns-value]
    assert world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "connection lost: closed by peer")
    assert [status.details for status in world.unusable] == ["connection lost: closed by peer"]


async def test_nothing_is_sent_while_a_connection_is_aborted() -> None:
    world = ClientTransportWorld()
    open_call(world)
    world.take_frames()
    call = open_call(world)
    call.hooks["end"] = lambda _: world.transport.close()
    world.transport.abort(LOST)
    assert kinds_of(world) == []
    call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)


async def test_close_sends_goaway_and_ends_calls() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.take_frames()
    world.transport.close()
    world.transport.close()
    assert kinds_of(world) == [[kinds.GOAWAY]]
    assert world.socket.is_closed
    assert not world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "connection closed")
    await world.transport.wait_closed()


async def test_abort_sends_nothing_and_ends_calls() -> None:
    world = ClientTransportWorld()
    call = open_call(world)
    world.take_frames()
    world.transport.abort(LOST)
    world.transport.abort(LOST)
    assert kinds_of(world) == []
    assert world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "the test drops it")
    await world.transport.wait_closed()
    assert call.count("end") == 1


async def test_socket_is_aborted_when_it_cannot_send_its_last_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxyless.transport.pump.LINGER_S", 0.0)
    world = ClientTransportWorld()
    world.socket.is_stuck = True
    world.transport.close()
    assert world.socket.is_closed
    assert not world.socket.is_aborted
    await world.transport.wait_closed()
    assert world.socket.is_aborted


async def test_socket_is_not_aborted_when_it_closes_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxyless.transport.pump.LINGER_S", 0.0)
    world = ClientTransportWorld()
    world.transport.close()
    await world.transport.wait_closed()
    for _ in range(3):
        await turn()
    assert not world.socket.is_aborted


async def test_cancelled_wait_closed_does_not_affect_other_waiters() -> None:
    world = ClientTransportWorld()
    impatient = asyncio.ensure_future(world.transport.wait_closed())
    patient = asyncio.ensure_future(world.transport.wait_closed())
    await turn()
    impatient.cancel()
    world.transport.close()
    await patient
    assert impatient.cancelled()
    await world.transport.wait_closed()


async def test_awaiting_a_call_on_a_closed_connection_does_not_hang() -> None:
    world = ClientTransportWorld()
    world.transport.close()
    end = await UnaryCall(world.transport, BLOCK, b"message")
    assert end.is_unprocessed
