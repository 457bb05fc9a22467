"""Unit tests of proxyless.transport.pump, in the role of a client."""

import asyncio

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import Status, StatusCode
from proxyless.transport.pump import READ_BUFFER_BYTES, WRITE_BUFFER_BYTES
from proxyless.wire import ErrorCode
from proxyless.wire import frames as kinds
from tests.unit.transport.world import BLOCK, ClientWorld, turn
from tests.wire_world import PREFACE, CallRecorder, answer, data, ping, settings, settings_ack

LOST = Status(StatusCode.UNAVAILABLE, "the test drops it")


def kinds_of(world: ClientWorld) -> list[list[int]]:
    """The kinds of frames in each write since the last time."""
    return [[frame.kind for frame in write.frames] for write in world.hear_writes()]


def open_call(world: ClientWorld, message: bytes = b"message") -> CallRecorder:
    recorder = CallRecorder()
    recorder.stream = world.transport.open_unary(BLOCK, recorder, message)
    return recorder


# Writing


async def test_nothing_leaves_before_there_is_a_socket_and_then_the_preface_does() -> None:
    world = ClientWorld(greet=False)
    await turn()
    assert world.socket.writes == []
    world.transport.connection_made(world.socket)
    assert world.socket.writes[0].startswith(PREFACE)
    assert kinds_of(world) == [[kinds.SETTINGS, kinds.WINDOW_UPDATE]]


async def test_a_call_that_is_alone_leaves_at_once_in_one_write() -> None:
    world = ClientWorld()
    open_call(world)
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA]]


async def test_calls_of_one_turn_leave_in_one_write() -> None:
    world = ClientWorld()
    open_call(world)
    world.hear()
    for _ in range(3):
        open_call(world)
    assert kinds_of(world) == []
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA] * 3]
    await turn()
    assert kinds_of(world) == []


async def test_calls_that_follow_calls_answered_together_leave_in_one_write() -> None:
    world = ClientWorld()
    open_call(world)
    open_call(world)
    world.say(answer(1, b"reply"), answer(3, b"reply"))
    await turn()
    world.hear()
    open_call(world)
    assert kinds_of(world) == []
    open_call(world)
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA] * 2]


async def test_a_call_that_follows_one_answered_alone_leaves_at_once() -> None:
    world = ClientWorld()
    open_call(world)
    open_call(world)
    world.say(answer(1, b"reply"))
    world.say(answer(3, b"reply"))
    await turn()
    world.hear()
    open_call(world)
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA]]


async def test_answers_to_what_was_read_leave_in_one_write() -> None:
    world = ClientWorld()
    world.say(ping(b"11111111"), settings(), ping(b"22222222"))
    assert kinds_of(world) == [[kinds.PING, kinds.SETTINGS, kinds.PING]]


async def test_what_is_read_before_a_write_is_due_is_answered_with_that_write() -> None:
    world = ClientWorld()
    open_call(world)
    world.hear()
    open_call(world)
    world.say(ping())
    assert kinds_of(world) == []
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.PING]]
    world.say(ping())
    assert kinds_of(world) == [[kinds.PING]]


async def test_a_peer_that_breaks_the_protocol_before_a_write_is_due_is_told() -> None:
    world = ClientWorld()
    open_call(world)
    world.hear()
    open_call(world)
    world.say(data(0, b"nobody's"))
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.GOAWAY]]
    assert world.socket.is_closed


async def test_a_call_opened_while_reading_leaves_with_the_answers() -> None:
    world = ClientWorld()
    opened: list[CallRecorder] = []
    open_call(world).hooks["end"] = lambda _: opened.append(open_call(world))
    world.hear()
    world.say(answer(1, b"reply"), ping())
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA, kinds.PING]]


async def test_while_the_socket_is_full_data_waits_and_the_rest_does_not() -> None:
    world = ClientWorld()
    assert world.socket.write_buffer_high == WRITE_BUFFER_BYTES
    world.transport.pause_writing()
    call = open_call(world)
    world.say(ping())
    assert kinds_of(world) == [[kinds.HEADERS], [kinds.PING]]
    world.transport.resume_writing()
    assert kinds_of(world) == [[kinds.DATA]]
    world.say(answer(1, b"reply"))
    call.expect_messages(b"reply")


async def test_after_the_loss_nothing_is_written() -> None:
    world = ClientWorld()
    open_call(world)
    open_call(world)
    world.socket.lose()
    await turn()
    world.hear()
    open_call(world)
    await turn()
    assert kinds_of(world) == []


async def test_calls_that_the_kernel_did_not_take_were_not_processed() -> None:
    world = ClientWorld()
    sent = open_call(world)
    world.socket.is_broken = True
    unsent = open_call(world)
    await turn()
    late = open_call(world)
    await turn()
    sent.expect_end(StatusCode.UNAVAILABLE, "broken pipe")
    for call in (unsent, late):
        assert call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True).is_retry_free


async def test_on_a_socket_that_is_closing_nothing_leaves_so_nothing_was_processed() -> None:
    world = ClientWorld()
    # As asyncio does when the peer ends its side: what it has buffered is still sent.
    world.socket.is_stuck = True
    world.socket.close()
    world.hear()
    call = open_call(world)
    await turn()
    assert kinds_of(world) == []
    world.socket.lose()
    await turn()
    assert call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True).is_retry_free


# Reading


@pytest.mark.parametrize("piece_bytes", [1, 7, 100])
async def test_bytes_may_come_in_any_pieces(piece_bytes: int) -> None:
    world = ClientWorld(greet=False)
    world.transport.connection_made(world.socket)
    stream = settings() + settings_ack()
    for at in range(0, len(stream), piece_bytes):
        world.say(stream[at : at + piece_bytes])
    call = open_call(world)
    reply = answer(1, b"reply" * 100)
    for at in range(0, len(reply), piece_bytes):
        world.say(reply[at : at + piece_bytes])
    call.expect_messages(b"reply" * 100)
    call.expect_end()


async def test_connections_share_a_buffer_and_keep_what_they_read() -> None:
    first, second = ClientWorld(), ClientWorld()
    assert first.transport.get_buffer(-1) is second.transport.get_buffer(-1)
    assert len(first.transport.get_buffer(-1)) == READ_BUFFER_BYTES
    calls = open_call(first), open_call(second)
    replies = answer(1, b"to the first"), answer(1, b"to the other")
    first.say(replies[0][:50])
    second.say(replies[1][:50])
    first.say(replies[0][50:])
    second.say(replies[1][50:])
    calls[0].expect_messages(b"to the first")
    calls[1].expect_messages(b"to the other")


async def test_a_peer_that_breaks_the_protocol_is_told_and_left() -> None:
    world = ClientWorld()
    call = open_call(world)
    world.hear()
    world.say(data(3, b"nobody opened this"))
    ((_, code, text),) = world.hear().goaways()
    assert code == ErrorCode.PROTOCOL_ERROR
    assert b"DATA on stream 3, which was never opened" in text
    assert world.socket.is_closed
    call.expect_end(StatusCode.UNAVAILABLE, "never opened")
    world.expect_unusable("peer broke HTTP/2: DATA on stream 3, which was never opened")
    world.say(answer(1, b"too late"))
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
    world = ClientWorld()
    call = open_call(world)
    world.socket.lose(error)
    await turn()
    end = call.expect_end(StatusCode.UNAVAILABLE, "connection lost: ")
    assert end.status.details.endswith(text)
    assert [status.details for status in world.unusable] == [end.status.details]


async def test_a_peer_that_closes_its_side_is_left_even_if_it_does_not_read() -> None:
    world = ClientWorld()
    call = open_call(world)
    world.transport.pause_writing()
    # Anything true would keep the transport half open.
    assert not world.transport.eof_received()  # type: ignore[func-returns-value]
    assert world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "connection lost: closed by peer")
    assert [status.details for status in world.unusable] == ["connection lost: closed by peer"]


async def test_what_was_not_processed_does_not_leave_while_a_connection_is_aborted() -> None:
    world = ClientWorld()
    open_call(world)
    world.hear()
    call = open_call(world)
    call.hooks["end"] = lambda _: world.transport.close()
    world.transport.abort(LOST)
    assert kinds_of(world) == []
    call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)


async def test_closing_says_goaway_and_ends_calls() -> None:
    world = ClientWorld()
    call = open_call(world)
    world.hear()
    world.transport.close()
    world.transport.close()
    assert kinds_of(world) == [[kinds.GOAWAY]]
    assert world.socket.is_closed
    assert not world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "connection closed")
    await world.transport.wait_closed()


async def test_aborting_says_nothing_and_ends_calls() -> None:
    world = ClientWorld()
    call = open_call(world)
    world.hear()
    world.transport.abort(LOST)
    world.transport.abort(LOST)
    assert kinds_of(world) == []
    assert world.socket.is_aborted
    call.expect_end(StatusCode.UNAVAILABLE, "the test drops it")
    await world.transport.wait_closed()
    assert call.count("end") == 1


async def test_a_socket_that_cannot_send_its_last_bytes_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxyless.transport.pump.LINGER_S", 0.0)
    world = ClientWorld()
    world.socket.is_stuck = True
    world.transport.close()
    assert world.socket.is_closed
    assert not world.socket.is_aborted
    await world.transport.wait_closed()
    assert world.socket.is_aborted


async def test_a_socket_that_closes_in_time_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyless.transport.pump.LINGER_S", 0.0)
    world = ClientWorld()
    world.transport.close()
    await world.transport.wait_closed()
    for _ in range(3):
        await turn()
    assert not world.socket.is_aborted


async def test_giving_up_waiting_does_not_keep_others_from_waiting() -> None:
    world = ClientWorld()
    impatient = asyncio.ensure_future(world.transport.wait_closed())
    patient = asyncio.ensure_future(world.transport.wait_closed())
    await turn()
    impatient.cancel()
    world.transport.close()
    await patient
    assert impatient.cancelled()
    await world.transport.wait_closed()


async def test_awaiting_a_call_on_a_closed_connection_does_not_hang() -> None:
    world = ClientWorld()
    world.transport.close()
    end = await UnaryCall(world.transport, BLOCK, b"message")
    assert end.is_unprocessed
