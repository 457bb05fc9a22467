"""Unit tests of proxyless.wire.stream."""

import pytest

from proxyless.base import Status, StatusCode
from proxyless.wire import ENCODINGS, ErrorCode, Limits, UsageError, compress
from proxyless.wire import frames as kinds
from tests.wire_world import (
    HEAD,
    OK_TRAILERS,
    CallRecorder,
    RawServer,
    answer,
    data,
    headers,
    prefixed,
)

KB = 1024


def answered(fields: list[tuple[str, str]] = HEAD, limits: Limits | None = None) -> RawServer:
    """A call whose response head is here."""
    server = RawServer(limits)
    server.opened()
    server.say(headers(1, fields))
    return server


def call_of(server: RawServer) -> CallRecorder:
    return server.calls[0]


# Sending


def test_a_small_message_is_one_frame() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(b"abc")
    call.stream.send_message(b"", end_stream=True)
    frames = server.hear().of(kinds.DATA, 1)
    assert [(frame.flags, frame.payload) for frame in frames] == [
        (0, prefixed(b"abc")),
        (kinds.FLAG_END_STREAM, prefixed(b"")),
    ]


def test_a_compressed_message_has_its_flag() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(b"abc", is_compressed=True)
    call.stream.send_message(bytes(20_000), is_compressed=True)
    assert server.hear().payload(1) == prefixed(b"abc", compressed=1) + prefixed(
        bytes(20_000), compressed=1
    )


def test_after_the_last_message_sending_is_misuse() -> None:
    server = RawServer()
    call = server.call(b"only")
    server.hear()
    with pytest.raises(UsageError, match="after the sending side was closed"):
        call.stream.send_message(b"one more")
    server.expect_silence()
    call.expect_open()


def test_after_the_end_sending_is_misuse() -> None:
    server = RawServer()
    call = server.call()
    call.stream.cancel()
    with pytest.raises(UsageError):
        call.stream.send_message(b"late")


# Receiving


@pytest.mark.parametrize("cut", range(13))
def test_a_message_may_be_cut_into_frames_anywhere(cut: int) -> None:
    server = answered()
    whole = prefixed(b"abc") + prefixed(b"")
    server.say(data(1, whole[:cut]), data(1, whole[cut:]))
    call_of(server).expect_messages(b"abc", b"")


def test_one_frame_may_carry_many_messages() -> None:
    server = answered()
    server.say(data(1, prefixed(b"a") + prefixed(b"bc") + prefixed(b"d")[:5]), data(1, b"d"))
    call_of(server).expect_messages(b"a", b"bc", b"d")


def test_messages_before_a_bad_one_are_delivered() -> None:
    server = answered()
    server.say(data(1, prefixed(b"good") + prefixed(b"bad", compressed=7)))
    call_of(server).expect_messages(b"good")
    call_of(server).expect_end(StatusCode.INTERNAL, "compressed flag 7")
    server.expect_reset(1, ErrorCode.CANCEL)


def test_a_whole_answer_is_head_messages_end() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.say(answer(1, b"a", b"b"))
    assert [kind for kind, _ in call.events] == ["head", "message", "message", "end"]
    call.expect_end()
    server.expect_silence()


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_compressed_messages_are_unpacked(encoding: str) -> None:
    server = answered([*HEAD, ("grpc-encoding", encoding)])
    packed = prefixed(compress(encoding, b"abc" * 1000), compressed=1)
    server.say(data(1, packed), data(1, prefixed(b"plain")), data(1, packed + packed))
    call_of(server).expect_messages(b"abc" * 1000, b"plain", b"abc" * 1000, b"abc" * 1000)


def test_a_compressed_message_without_an_encoding_ends_the_call() -> None:
    server = answered()
    server.say(data(1, prefixed(b"abc", compressed=1)))
    call_of(server).expect_end(StatusCode.INTERNAL, "grpc-encoding is 'identity'")
    server.expect_reset(1, ErrorCode.CANCEL)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_largest_message_is_taken_and_a_larger_one_ends_the_call(compressed: bool) -> None:
    server = answered([*HEAD, ("grpc-encoding", "gzip")], Limits(message_bytes_max=100))

    def sent(size: int) -> bytes:
        plain = bytes(size)
        if compressed:
            return data(1, prefixed(compress("gzip", plain), compressed=1))
        return data(1, prefixed(plain))

    server.say(sent(100))
    call_of(server).expect_messages(bytes(100))
    server.say(sent(101))
    call_of(server).expect_end(
        StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (101 vs. 100)"
    )
    server.expect_reset(1, ErrorCode.CANCEL)


def test_a_message_too_large_ends_the_call_at_its_prefix() -> None:
    server = answered(limits=Limits(message_bytes_max=100))
    server.say(data(1, prefixed(bytes(101))[:5]))
    call_of(server).expect_end(StatusCode.RESOURCE_EXHAUSTED)


def test_a_listener_that_cancels_gets_no_further_message() -> None:
    server = answered()
    call = call_of(server)
    call.hooks["message"] = lambda _: call.stream.cancel()
    server.say(data(1, prefixed(b"a") + prefixed(b"b")), data(1, prefixed(b"c")))
    call.expect_messages(b"a")
    call.expect_end(StatusCode.CANCELLED)
    server.expect_reset(1, ErrorCode.CANCEL)


def test_the_end_of_the_stream_within_a_message_is_an_internal_error() -> None:
    server = answered()
    server.say(data(1, prefixed(b"abc")[:-1]), headers(1, OK_TRAILERS, end=True))
    call_of(server).expect_end(StatusCode.INTERNAL, "in the middle of a message")


def test_a_status_that_is_not_ok_explains_a_cut_message() -> None:
    server = answered()
    trailers = [("grpc-status", "10"), ("grpc-message", "why")]
    server.say(data(1, prefixed(b"abc")[:-1]), headers(1, trailers, end=True))
    call_of(server).expect_end(StatusCode.ABORTED, "why")


# The window we give

WINDOWS = Limits(
    stream_window_bytes=64 * KB, stream_window_bytes_max=64 * KB, connection_window_bytes=1024 * KB
)


def test_padding_counts_against_the_window() -> None:
    server = answered(limits=WINDOWS)
    before = call_of(server).stream.recv_window
    server.say(data(1, prefixed(b"abc"), padding=100))
    call_of(server).expect_messages(b"abc")
    assert before - call_of(server).stream.recv_window == 1 + 8 + 100


def test_a_held_stream_gives_no_window_until_it_is_released() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    stream.hold()
    server.say(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4)
    assert server.hear().updates() == []
    assert stream.recv_window == 0
    stream.release()
    assert server.hear().updates() == [(1, 64 * KB)]
    assert len(call_of(server).messages) == 4
    server.say(*[data(1, prefixed(bytes(16 * KB - 5)))] * 3)
    assert server.hear().updates() == [(1, 48 * KB)]


def test_releasing_a_stream_that_has_window_left_says_nothing() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    server.hear()
    stream.hold()
    server.say(data(1, prefixed(b"abc")))
    stream.release()
    server.expect_silence()


def test_a_held_stream_does_not_hold_the_connection() -> None:
    server = answered(limits=Limits(connection_window_bytes=65_535, stream_window_bytes=60_000))
    call_of(server).stream.hold()
    server.say(*[data(1, prefixed(bytes(10_000)))] * 4)
    assert {stream_id for stream_id, _ in server.hear().updates()} == {0}


def test_releasing_a_stream_that_is_over_says_nothing() -> None:
    server = answered(limits=WINDOWS)
    stream = call_of(server).stream
    stream.hold()
    server.say(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4, headers(1, OK_TRAILERS, end=True))
    server.hear()
    stream.release()
    server.expect_silence()


def test_more_than_the_window_ends_the_stream() -> None:
    server = answered(limits=WINDOWS)
    call = call_of(server)
    call.stream.hold()
    server.say(*[data(1, prefixed(bytes(16 * KB - 5)))] * 4)
    server.hear()
    server.say(data(1, b"x"))
    call.expect_end(StatusCode.INTERNAL, "more than the stream's window allows")
    server.expect_reset(1, ErrorCode.FLOW_CONTROL_ERROR)


# Ending


def test_a_stream_that_is_over_cannot_be_reset() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.say(answer(1))
    call.stream.reset(ErrorCode.CANCEL, Status(StatusCode.ABORTED))
    call.stream.cancel()
    call.stream.refuse(Status(StatusCode.ABORTED))
    server.expect_silence()
    call.expect_end()


def test_a_stream_that_is_over_does_not_hold_its_listener() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.say(answer(1))
    assert call.stream.listener is not call
