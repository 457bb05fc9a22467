"""Unit tests of proxyless.wire.stream."""

from itertools import chain

import pytest

from proxyless.base import Status, StatusCode
from proxyless.wire import ENCODINGS, ErrorCode, Limits, UsageError, compress
from proxyless.wire import frames as kinds
from proxyless.wire.stream_states import TRANSITIONS, HalfState
from tests.unit.wire import stream_histories as histories
from tests.worlds.wire import (
    HEAD,
    OK_TRAILERS,
    CallRecorder,
    RawServer,
    answer,
    data,
    goaway,
    headers,
    prefixed,
    rst_stream,
)

KB = 1024


def answered(fields: list[tuple[str, str]] = HEAD, limits: Limits | None = None) -> RawServer:
    """A call whose response head is received."""
    server = RawServer(limits)
    server.opened()
    server.send(headers(1, fields))
    return server


def call_of(server: RawServer) -> CallRecorder:
    return server.calls[0]


# Sending


def test_a_small_message_is_one_frame() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(b"abc")
    call.stream.send_message(b"", end_stream=True)
    frames = server.read_output().of(kinds.DATA, 1)
    assert [(frame.flags, frame.payload) for frame in frames] == [
        (0, prefixed(b"abc")),
        (kinds.FLAG_END_STREAM, prefixed(b"")),
    ]


def test_a_compressed_message_has_its_flag() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(b"abc", is_compressed=True)
    call.stream.send_message(bytes(20_000), is_compressed=True)
    assert server.read_output().payload(1) == prefixed(b"abc", compressed=1) + prefixed(
        bytes(20_000), compressed=1
    )


def test_sending_after_the_last_message_raises() -> None:
    server = RawServer()
    call = server.call(b"only")
    server.read_output()
    with pytest.raises(UsageError, match="after the sending side was closed"):
        call.stream.send_message(b"one more")
    server.expect_no_output()
    call.expect_open()


def test_sending_after_the_end_raises() -> None:
    server = RawServer()
    call = server.call()
    call.stream.cancel()
    with pytest.raises(UsageError):
        call.stream.send_message(b"late")


# Receiving


@pytest.mark.parametrize("cut", range(13))
def test_a_message_may_be_split_into_frames_anywhere(cut: int) -> None:
    server = answered()
    whole = prefixed(b"abc") + prefixed(b"")
    server.send(data(1, whole[:cut]), data(1, whole[cut:]))
    call_of(server).expect_messages(b"abc", b"")


def test_one_frame_may_carry_many_messages() -> None:
    server = answered()
    server.send(data(1, prefixed(b"a") + prefixed(b"bc") + prefixed(b"d")[:5]), data(1, b"d"))
    call_of(server).expect_messages(b"a", b"bc", b"d")


def test_messages_before_a_bad_one_are_delivered() -> None:
    server = answered()
    server.send(data(1, prefixed(b"good") + prefixed(b"bad", compressed=7)))
    call_of(server).expect_messages(b"good")
    call_of(server).expect_end(StatusCode.INTERNAL, "compressed flag 7")
    server.expect_reset(1, ErrorCode.CANCEL)


def test_a_response_is_delivered_as_head_messages_end() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(answer(1, b"a", b"b"))
    assert [kind for kind, _ in call.events] == ["head", "message", "message", "end"]
    call.expect_end()
    server.expect_no_output()


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_compressed_messages_are_unpacked(encoding: str) -> None:
    server = answered([*HEAD, ("grpc-encoding", encoding)])
    packed = prefixed(compress(encoding, b"abc" * 1000), compressed=1)
    server.send(data(1, packed), data(1, prefixed(b"plain")), data(1, packed + packed))
    call_of(server).expect_messages(b"abc" * 1000, b"plain", b"abc" * 1000, b"abc" * 1000)


def test_a_compressed_message_without_an_encoding_ends_the_call() -> None:
    server = answered()
    server.send(data(1, prefixed(b"abc", compressed=1)))
    call_of(server).expect_end(StatusCode.INTERNAL, "grpc-encoding is 'identity'")
    server.expect_reset(1, ErrorCode.CANCEL)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_message_over_the_limit_ends_the_call(compressed: bool) -> None:
    server = answered([*HEAD, ("grpc-encoding", "gzip")], Limits(message_bytes_max=100))

    def sent(size: int) -> bytes:
        plain = bytes(size)
        if compressed:
            return data(1, prefixed(compress("gzip", plain), compressed=1))
        return data(1, prefixed(plain))

    server.send(sent(100))
    call_of(server).expect_messages(bytes(100))
    server.send(sent(101))
    call_of(server).expect_end(
        StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (101 vs. 100)"
    )
    server.expect_reset(1, ErrorCode.CANCEL)


def test_a_message_over_the_limit_ends_the_call_at_its_prefix() -> None:
    server = answered(limits=Limits(message_bytes_max=100))
    server.send(data(1, prefixed(bytes(101))[:5]))
    call_of(server).expect_end(StatusCode.RESOURCE_EXHAUSTED)


def test_a_listener_that_cancels_gets_no_further_message() -> None:
    server = answered()
    call = call_of(server)
    call.hooks["message"] = lambda _: call.stream.cancel()
    server.send(data(1, prefixed(b"a") + prefixed(b"b")), data(1, prefixed(b"c")))
    call.expect_messages(b"a")
    call.expect_end(StatusCode.CANCELLED)
    server.expect_reset(1, ErrorCode.CANCEL)


def test_the_end_of_the_stream_within_a_message_is_an_internal_error() -> None:
    server = answered()
    server.send(data(1, prefixed(b"abc")[:-1]), headers(1, OK_TRAILERS, end=True))
    call_of(server).expect_end(StatusCode.INTERNAL, "in the middle of a message")


def test_a_status_that_is_not_ok_is_kept_after_an_incomplete_message() -> None:
    server = answered()
    trailers = [("grpc-status", "10"), ("grpc-message", "why")]
    server.send(data(1, prefixed(b"abc")[:-1]), headers(1, trailers, end=True))
    call_of(server).expect_end(StatusCode.ABORTED, "why")


# Receive windows

WINDOWS = Limits(
    stream_window_bytes=64 * KB, stream_window_bytes_max=64 * KB, connection_window_bytes=1024 * KB
)


def test_padding_counts_against_the_window() -> None:
    server = answered(limits=WINDOWS)
    before = call_of(server).stream.recv_window
    server.send(data(1, prefixed(b"abc"), padding=100))
    call_of(server).expect_messages(b"abc")
    assert before - call_of(server).stream.recv_window == 1 + 8 + 100


def test_a_held_stream_gives_no_window_until_it_is_released() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    stream.hold()
    server.send(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4)
    assert server.read_output().updates() == []
    assert stream.recv_window == 0
    stream.release()
    assert server.read_output().updates() == [(1, 64 * KB)]
    assert len(call_of(server).messages) == 4
    server.send(*[data(1, prefixed(bytes(16 * KB - 5)))] * 3)
    assert server.read_output().updates() == [(1, 48 * KB)]


def test_releasing_a_stream_with_window_left_sends_nothing() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    server.read_output()
    stream.hold()
    server.send(data(1, prefixed(b"abc")))
    stream.release()
    server.expect_no_output()


def test_a_held_stream_does_not_block_the_connection_window() -> None:
    server = answered(limits=Limits(connection_window_bytes=65_535, stream_window_bytes=60_000))
    call_of(server).stream.hold()
    server.send(*[data(1, prefixed(bytes(10_000)))] * 4)
    assert {stream_id for stream_id, _ in server.read_output().updates()} == {0}


def test_releasing_an_ended_stream_sends_nothing() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    stream.hold()
    server.send(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4, headers(1, OK_TRAILERS, end=True))
    server.read_output()
    stream.release()
    server.expect_no_output()


def test_more_than_the_window_ends_the_stream() -> None:
    server = answered(limits=WINDOWS)
    call = call_of(server)
    call.stream.hold()
    server.send(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4)
    server.read_output()
    server.send(data(1, b"x"))
    call.expect_end(StatusCode.INTERNAL, "more than the stream's window allows")
    server.expect_reset(1, ErrorCode.FLOW_CONTROL_ERROR)


# Compressed messages of a held stream

GZIPPED_HEAD = [*HEAD, ("grpc-encoding", "gzip")]
PAGE = bytes(64 * KB)


def packed(*messages: bytes) -> bytes:
    """Messages in one frame, compressed."""
    return data(1, b"".join(prefixed(compress("gzip", each), compressed=1) for each in messages))


def held_after_each_message(limits: Limits | None = None) -> RawServer:
    """A call whose listener holds the stream after each message."""
    server = answered(GZIPPED_HEAD, limits)
    call = call_of(server)
    call.hooks["message"] = lambda _: call.stream.hold()
    server.read_output()
    return server


def test_a_held_stream_unpacks_nothing_until_it_is_released() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"), packed(b"3"), data(1, prefixed(b"4")))
    call.expect_messages(b"1")
    for count in (2, 3, 4):
        call.stream.release()
        call.expect_messages(*[b"1", b"2", b"3", b"4"][:count])
    call.stream.release()
    server.send(packed(b"5"))
    call.expect_messages(b"1", b"2", b"3", b"4", b"5")
    server.send(headers(1, OK_TRAILERS, end=True))
    call.expect_end()


def test_held_messages_are_unpacked_one_by_one() -> None:
    server = held_after_each_message(WINDOWS)
    call = call_of(server)
    each = prefixed(compress("gzip", PAGE), compressed=1)
    count = 64 * KB // len(each)
    server.send(*[data(1, each)] * count)
    assert len(call.messages) == 1
    for taken in range(2, count + 1):
        # The window is given back when the last message is unpacked.
        assert server.read_output().updates() == []
        call.stream.release()
        assert len(call.messages) == taken
    call.stream.release()
    assert [stream_id for stream_id, _ in server.read_output().updates()] == [1]
    assert call.messages == [PAGE] * count


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_held_stream_keeps_half_a_message(cut: int) -> None:
    server = held_after_each_message()
    call = call_of(server)
    whole = b"".join(prefixed(compress("gzip", each), compressed=1) for each in (b"1", b"2", b"3"))
    server.send(data(1, whole[:cut]), data(1, whole[cut:-1]))
    for _ in range(3):
        call.stream.release()
    call.expect_messages(b"1", b"2")
    call.stream.release()
    server.send(data(1, whole[-1:]))
    call.expect_messages(b"1", b"2", b"3")


def test_the_end_is_delivered_after_held_messages() -> None:
    server = held_after_each_message()
    call = call_of(server)
    trailers = [("grpc-status", "5"), ("k", "v")]
    server.send(packed(b"1", b"2"), headers(1, trailers, end=True))
    # The stream no longer counts for the limit of concurrent streams.
    assert not server.core.streams
    assert call.stream.is_ended
    call.expect_messages(b"1")
    call.expect_open()
    call.stream.release()
    call.expect_messages(b"1", b"2")
    call.expect_open()
    call.stream.release()
    assert call.expect_end(StatusCode.NOT_FOUND).trailers == (("k", "v"),)
    call.stream.release()
    call.stream.cancel()
    server.expect_no_output()


def test_a_call_with_held_messages_may_be_cancelled_when_its_connection_is_drained() -> None:
    server = RawServer()
    call = server.call()
    call.hooks["message"] = lambda _: call.stream.hold()
    server.send(headers(1, GZIPPED_HEAD), goaway(1), packed(b"1", b"2"))
    server.owner.hooks["drained"] = lambda _: call.stream.cancel()
    server.send(headers(1, OK_TRAILERS, end=True))
    assert server.owner.count("drained") == 1
    call.expect_messages(b"1")
    call.expect_end(StatusCode.CANCELLED)


def test_held_messages_of_an_ended_stream_outlive_the_connection() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"), headers(1, OK_TRAILERS, end=True))
    server.core.lose(Status(StatusCode.UNAVAILABLE))
    call.stream.release()
    call.stream.release()
    call.expect_messages(b"1", b"2")
    call.expect_end()


def test_held_messages_of_an_open_stream_are_lost_with_the_connection() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"))
    server.core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    call.expect_end(StatusCode.UNAVAILABLE, "gone")
    call.stream.release()
    call.expect_messages(b"1")


def test_a_reset_by_the_peer_drops_held_messages() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"), rst_stream(1, ErrorCode.INTERNAL_ERROR))
    call.expect_end(StatusCode.INTERNAL, "reset by peer")
    call.stream.release()
    call.expect_messages(b"1")
    server.expect_no_output()


def test_a_reset_after_the_end_keeps_held_messages() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"), headers(1, OK_TRAILERS, end=True))
    server.send(rst_stream(1, ErrorCode.NO_ERROR))
    call.stream.release()
    call.stream.release()
    call.expect_messages(b"1", b"2")
    call.expect_end()


@pytest.mark.parametrize("is_complete", [False, True])
def test_cancelling_drops_held_messages(is_complete: bool) -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"))
    if is_complete:
        server.send(headers(1, OK_TRAILERS, end=True))
    call.stream.cancel()
    call.expect_end(StatusCode.CANCELLED)
    call.stream.release()
    call.stream.cancel()
    call.expect_messages(b"1")
    assert server.read_output().resets() == ([] if is_complete else [(1, ErrorCode.CANCEL)])


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_listener_may_cancel_when_a_held_message_is_delivered(is_complete: bool) -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2", b"3"))
    if is_complete:
        server.send(headers(1, OK_TRAILERS, end=True))
    call.hooks["message"] = lambda _: call.stream.cancel()
    call.stream.release()
    call.expect_messages(b"1", b"2")
    call.expect_end(StatusCode.CANCELLED)


def test_a_listener_may_release_when_a_held_message_is_delivered() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(*[b"1"] * 2000), headers(1, OK_TRAILERS, end=True))

    def hold_and_release(_: object) -> None:
        call.stream.hold()
        call.stream.release()

    call.hooks["message"] = hold_and_release
    call.stream.release()
    assert len(call.messages) == 2000
    call.expect_end()


def test_an_invalid_held_message_ends_the_call_when_it_is_delivered() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1"), data(1, prefixed(b"junk", compressed=1)), packed(b"3"))
    call.expect_open()
    call.stream.release()
    call.expect_end(StatusCode.INTERNAL, "not valid gzip")
    call.expect_messages(b"1")
    server.expect_reset(1, ErrorCode.CANCEL)


def test_an_invalid_held_message_replaces_the_end_behind_it() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1"), data(1, prefixed(b"junk", compressed=1)))
    server.send(headers(1, OK_TRAILERS, end=True))
    call.stream.release()
    call.expect_end(StatusCode.INTERNAL, "not valid gzip")
    server.expect_no_output()


def test_an_end_within_a_held_message_is_an_internal_error() -> None:
    server = held_after_each_message()
    call = call_of(server)
    server.send(packed(b"1", b"2"), data(1, prefixed(b"cut")[:-1]))
    server.send(headers(1, OK_TRAILERS, end=True))
    call.stream.release()
    call.stream.release()
    call.expect_messages(b"1", b"2")
    call.expect_end(StatusCode.INTERNAL, "in the middle of a message")


def test_held_messages_do_not_exceed_the_window() -> None:
    server = held_after_each_message(WINDOWS)
    call = call_of(server)
    server.send(packed(b"1"), *[data(1, prefixed(bytes(16 * KB - 5)))] * 3)
    server.read_output()
    server.send(data(1, bytes(20 * KB)))
    call.expect_end(StatusCode.INTERNAL, "more than the stream's window allows")
    server.expect_reset(1, ErrorCode.FLOW_CONTROL_ERROR)


# Ending


def test_resetting_an_ended_stream_does_nothing() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(answer(1))
    call.stream.reset(ErrorCode.CANCEL, Status(StatusCode.ABORTED))
    call.stream.cancel()
    call.stream.refuse(Status(StatusCode.ABORTED))
    server.expect_no_output()
    call.expect_end()


def test_an_ended_stream_does_not_hold_its_listener() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(answer(1))
    assert call.stream.listener is not call


# States

EVENTS = sorted({event for row in TRANSITIONS.values() for event in row})


@pytest.mark.parametrize("state", HalfState)
@pytest.mark.parametrize("event", EVENTS)
def test_state_has_the_next_state_of_the_table_for_each_event(state: HalfState, event: str) -> None:
    if event in TRANSITIONS[state]:
        assert getattr(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(AttributeError):
            getattr(state, event)


def test_table_has_exactly_the_transitions_of_both_directions() -> None:
    edges = {(state, after) for state, row in TRANSITIONS.items() for after in row.values()}
    assert edges == histories.SENDING | histories.RECEIVING


def test_table_leads_from_every_state_to_closed_and_never_back() -> None:
    order = list(HalfState)
    for state, row in TRANSITIONS.items():
        assert bool(row) is (state is not HalfState.CLOSED)
        for event, after in row.items():
            is_kept = (state, event) == (HalfState.UNDELIVERED, "after_close")
            assert is_kept or order.index(after) > order.index(state)


def test_streams_take_exactly_the_transitions_of_the_table_in_all_histories(
    state_changes: set[tuple[str, HalfState, HalfState]],
) -> None:
    assert histories.walk(histories.waiting_client, histories.CLIENT_STEPS) == set(
        chain(*histories.CLIENT_PAIRS.values())
    )
    assert histories.walk(histories.requested_server, histories.SERVER_STEPS) == set(
        chain(*histories.SERVER_PAIRS.values())
    )
    # `open_unary` sends HEADERS and the only message in one step.
    assert RawServer().opened()[0].stream.sending is HalfState.HALF_CLOSED
    assert state_changes == {
        *(("sending", *edge) for edge in histories.SENDING),
        *(("receiving", *edge) for edge in histories.RECEIVING),
    }
