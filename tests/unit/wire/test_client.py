"""Unit tests of proxyless.wire.client, against raw peers and our own server role."""

import weakref
from collections.abc import Callable

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.wire import (
    ENCODINGS,
    ErrorCode,
    Limits,
    RemoteProtocolError,
    RequestEncoder,
    compress,
)
from proxyless.wire import frames as kinds
from proxyless.wire.limits import (
    FRAMES_PER_TURN_MAX,
    INFORMATIONAL_BYTES_MAX,
    INFORMATIONAL_BYTES_MIN,
)
from tests.worlds.wire import (
    ENCODER,
    END_STREAM,
    HEAD,
    OK_TRAILERS,
    CallRecorder,
    HandlerRecorder,
    ManualTurns,
    RawServer,
    WireWorld,
    answer,
    data,
    decode_block,
    goaway,
    headers,
    prefixed,
    rst_stream,
    settings,
    window_update,
)

STREAMS_MAX = kinds.MAX_CONCURRENT_STREAMS
LAST_ID = 2**31 - 1


# The four kinds of calls, core to core


def finish_on_half_close(handler: HandlerRecorder, *replies: bytes, status: Status = OK) -> None:
    def reply(_: object) -> None:
        for each in replies:
            handler.stream.send_message(each)
        handler.stream.send_status(status)

    handler.hooks["half_close"] = reply


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("replies", [(b"",), (b"reply",), (b"a", b"b" * 70_000, b"")])
@pytest.mark.parametrize("requests", [(b"",), (b"request",), (b"a", b"b" * 70_000, b"")])
def test_messages_pass_both_ways(
    requests: tuple[bytes, ...], replies: tuple[bytes, ...], piece_bytes: int
) -> None:
    world = WireWorld()
    world.serve_with(lambda handler: finish_on_half_close(handler, *replies))
    if len(requests) == 1:
        call = world.call(requests[0])
    else:
        call = world.call()
        for request in requests:
            call.stream.send_message(request)
        call.stream.close_sending()
    world.run(piece_bytes if len(b"".join(requests + replies)) < 1000 else 1 << 20)
    world.handler.expect_messages(*requests)
    world.handler.expect_end()
    call.expect_messages(*replies)
    call.expect_end()
    assert world.core.calls == len(world.server.streams) == 0


def test_messages_alternate_on_a_bidirectional_stream() -> None:
    world = WireWorld()

    def echo(handler: HandlerRecorder) -> None:
        handler.hooks["message"] = lambda message: handler.stream.send_message(message + b"!")
        handler.hooks["half_close"] = lambda _: handler.stream.send_status()

    world.serve_with(echo)
    call = world.call()
    for n in range(5):
        call.stream.send_message(b"%d" % n)
        world.run()
        assert call.messages[-1] == b"%d!" % n
    call.stream.close_sending()
    world.run()
    call.expect_end()


def test_many_calls_share_a_connection() -> None:
    world = WireWorld()
    world.serve_with(lambda handler: finish_on_half_close(handler, b"%d" % handler.stream.id))
    calls = [world.call(b"x") for _ in range(300)]
    world.run()
    for n, call in enumerate(calls):
        call.expect_messages(b"%d" % (2 * n + 1))
        call.expect_end()


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_both_sides_may_compress(encoding: str) -> None:
    world = WireWorld()

    def reply(handler: HandlerRecorder) -> None:
        def send(message: bytes) -> None:
            handler.stream.send_head(encoding=encoding)
            handler.stream.send_message(compress(encoding, message * 2), is_compressed=True)
            handler.stream.send_status()

        handler.hooks["message"] = send

    world.serve_with(reply)
    call = world.call(request=ENCODER.block(encoding=encoding))
    call.stream.send_message(compress(encoding, b"abc" * 99), is_compressed=True, end_stream=True)
    world.run()
    world.handler.expect_messages(b"abc" * 99)
    call.expect_messages(b"abc" * 198)
    call.expect_end()


METADATA: Metadata = (("x-text", "value, with comma"), ("x-data-bin", bytes(range(256))))


def test_metadata_timeout_and_details_reach_the_other_side() -> None:
    world = WireWorld()

    def reply(handler: HandlerRecorder) -> None:
        handler.stream.send_head(METADATA)
        handler.stream.send_status(Status(StatusCode.ABORTED, "100% é\n"), METADATA[::-1])

    world.serve_with(reply)
    call = world.call(b"x", request=ENCODER.block(2.5, METADATA))
    world.run()
    assert set(METADATA) <= set(world.handler.request.metadata)
    assert world.handler.request.timeout_s == 2.5
    assert call.head.metadata == METADATA
    end = call.expect_end(StatusCode.ABORTED, "100% é\n")
    assert end.trailers == METADATA[::-1]


# Frames of a request


def test_a_unary_request_is_headers_and_one_last_data() -> None:
    server = RawServer()
    server.call(b"message")
    first, second = server.read_output().frames
    assert (first.kind, first.flags, first.stream_id) == (
        kinds.HEADERS,
        kinds.FLAG_END_HEADERS,
        1,
    )
    assert (":path", "/test.Service/Method") in decode_block(first.payload)
    assert (second.kind, second.flags) == (kinds.DATA, END_STREAM)
    assert second.payload == prefixed(b"message")


@pytest.mark.parametrize("size", [0, 16_379, 16_380, 65_530, 65_531, 200_000])
def test_open_unary_sends_the_same_as_open_and_send_message(size: int) -> None:
    def sent(server: RawServer) -> list[tuple[int, int, bytes]]:
        server.send(window_update(0, 1 << 20), window_update(1, 1 << 20))
        return [(each.kind, each.flags, each.payload) for each in server.read_output().frames]

    one, other = RawServer(), RawServer()
    one.call(bytes(size))
    other.call().stream.send_message(bytes(size), end_stream=True)
    assert sent(one) == sent(other)


def test_half_close_is_an_empty_last_data_and_sent_once() -> None:
    server = RawServer()
    call = server.call()
    server.read_output()
    call.stream.close_sending()
    call.stream.close_sending()
    (last,) = server.read_output().frames
    assert (last.kind, last.flags, last.payload) == (kinds.DATA, END_STREAM, b"")


def test_half_close_follows_queued_messages() -> None:
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 0),))
    call = server.call()
    call.stream.send_message(b"abc")
    call.stream.close_sending()
    assert server.read_output().of(kinds.DATA) == []
    server.send(window_update(1, 100))
    (last,) = server.read_output().frames
    assert (last.flags, last.payload) == (END_STREAM, prefixed(b"abc"))


def test_streams_have_odd_ids_in_order() -> None:
    server = RawServer()
    assert [call.stream.id for call in server.opened(4)] == [1, 3, 5, 7]


# Responses


def test_trailers_only_have_no_head() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, [*HEAD, ("grpc-status", "5"), ("k", "v")], end=True))
    assert call.count("head") == 0
    assert call.expect_end(StatusCode.NOT_FOUND).trailers == (("k", "v"),)


def test_informational_responses_are_skipped() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, [(":status", "100")]), headers(1, [(":status", "103")]), answer(1, b"a"))
    assert [kind for kind, _ in call.events] == ["head", "message", "end"]


def test_informational_responses_within_the_limit_are_skipped() -> None:
    server = RawServer()
    (call,) = server.opened()
    count = INFORMATIONAL_BYTES_MAX // INFORMATIONAL_BYTES_MIN
    server.send(*[headers(1, [(":status", "103")])] * count, answer(1, b"a"))
    assert [kind for kind, _ in call.events] == ["head", "message", "end"]


Refused = list[tuple[str, str]]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("head", "code", "text"),
    [
        ([(":status", "404")], StatusCode.UNIMPLEMENTED, "HTTP status 404"),
        ([(":status", "503")], StatusCode.UNAVAILABLE, "HTTP status 503"),
        (
            [(":status", "200"), ("content-type", "text/html")],
            StatusCode.UNKNOWN,
            "content-type 'text/html'",
        ),
        ([(":status", "200")], StatusCode.UNKNOWN, "content-type ''"),
    ],
)
def test_a_response_that_is_not_grpc_ends_the_call(
    head: Refused, code: StatusCode, text: str, is_last: bool
) -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, head, end=is_last))
    assert call.count("head") == 0
    call.expect_end(code, text)
    if is_last:
        server.expect_no_output()
    else:
        server.expect_reset(1, ErrorCode.CANCEL)


@pytest.mark.parametrize(
    ("frames", "code", "text"),
    [
        (
            headers(1, HEAD) + headers(1, HEAD),
            ErrorCode.PROTOCOL_ERROR,
            "second response head",
        ),
        (
            headers(1, HEAD) + headers(1, [(":status", "103")]),
            ErrorCode.PROTOCOL_ERROR,
            "second response head",
        ),
        (data(1, prefixed(b"a")), ErrorCode.CANCEL, "message before the response head"),
        (
            headers(1, [("content-type", "application/grpc")]),
            ErrorCode.CANCEL,
            "head without :status",
        ),
    ],
)
def test_a_response_out_of_order_resets_the_stream(
    frames: bytes, code: ErrorCode, text: str
) -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(frames)
    call.expect_end(StatusCode.INTERNAL, text)
    server.expect_reset(1, code)


@pytest.mark.parametrize(
    ("frames", "code", "text"),
    [
        (headers(1, HEAD) + data(1, b"", end=True), StatusCode.INTERNAL, "without trailers"),
        (
            headers(1, HEAD) + data(1, prefixed(b"a"), end=True),
            StatusCode.INTERNAL,
            "without trailers",
        ),
        (
            headers(1, HEAD) + data(1, prefixed(b"a")[:-1], end=True),
            StatusCode.INTERNAL,
            "in the middle of a message",
        ),
        (data(1, b"", end=True), StatusCode.INTERNAL, "without trailers"),
        (headers(1, HEAD, end=True), StatusCode.UNKNOWN, "without grpc-status"),
        (
            headers(1, HEAD) + headers(1, [("k", "v")], end=True),
            StatusCode.UNKNOWN,
            "without grpc-status",
        ),
        (headers(1, OK_TRAILERS, end=True), StatusCode.INTERNAL, "head without :status"),
    ],
)
def test_a_response_that_ends_too_early_is_an_error(
    frames: bytes, code: StatusCode, text: str
) -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(frames)
    call.expect_end(code, text)
    server.expect_no_output()


def test_a_response_before_our_half_close_resets_the_stream() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(bytes(100_000))
    server.read_output()
    server.send(answer(1, b"enough"))
    call.expect_end()
    server.expect_reset(1, ErrorCode.NO_ERROR)
    server.send(window_update(0, 1 << 20))
    server.expect_no_output()


def test_a_response_before_our_last_queued_byte_resets_the_stream() -> None:
    server = RawServer()
    call = server.call(bytes(100_000))
    server.read_output()
    server.send(answer(1, b"enough"))
    call.expect_end()
    server.expect_reset(1, ErrorCode.NO_ERROR)


def test_metadata_over_the_limit_ends_the_call_only() -> None:
    server = RawServer(Limits(header_list_bytes_max=200))
    one, other = server.opened(2)
    server.send(headers(1, [*HEAD, ("k", "v" * 200)]), answer(3, b"a"))
    one.expect_end(StatusCode.RESOURCE_EXHAUSTED, "received metadata larger than max (200 bytes)")
    other.expect_end()
    server.expect_reset(1, ErrorCode.CANCEL)


@pytest.mark.parametrize("code", ErrorCode)
def test_a_reset_ends_the_call(code: ErrorCode) -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, HEAD), rst_stream(1, code))
    assert call.end is not None
    assert call.end.status.details == f"stream reset by peer: {code.name}"
    assert call.end.is_unprocessed is (code is ErrorCode.REFUSED_STREAM)
    server.expect_no_output()


# A response that is received in one piece: its frames are handled together

_HEAD, _TRAILERS = headers(3, HEAD), headers(3, OK_TRAILERS, end=True)
_LARGEST = kinds.FRAME_BYTES_DEFAULT - 5


@pytest.mark.parametrize(
    "response",
    [
        pytest.param([_HEAD, data(3, prefixed(b"x")), _TRAILERS], id="one message"),
        pytest.param([_HEAD, data(3, prefixed(b"")), _TRAILERS], id="empty message"),
        pytest.param([_HEAD, data(3, prefixed(b"x" * _LARGEST)), _TRAILERS], id="large message"),
        pytest.param([_HEAD, data(3, prefixed(b"x" * (_LARGEST + 1))), _TRAILERS], id="too large"),
        pytest.param([_HEAD, *[data(3, prefixed(b"x"))] * 2, _TRAILERS], id="two messages"),
        pytest.param([_HEAD, data(3, prefixed(b"x") * 2), _TRAILERS], id="two in one frame"),
        pytest.param([_HEAD, data(3, prefixed(b"xy")[:-1]), _TRAILERS], id="partial message"),
        pytest.param([_HEAD, data(3, prefixed(b"x"), padding=3), _TRAILERS], id="padded"),
        pytest.param([_HEAD, data(3, prefixed(b"x", compressed=1)), _TRAILERS], id="compressed"),
        pytest.param([_HEAD, data(3, prefixed(b"x"), end=True)], id="no trailers"),
        pytest.param([_HEAD, data(3, prefixed(b"x"))], id="no trailers yet"),
        pytest.param([_HEAD, _TRAILERS], id="no message"),
        pytest.param([_HEAD, _HEAD, data(3, prefixed(b"x"))], id="two heads"),
        pytest.param([_HEAD, data(5, prefixed(b"x")), _TRAILERS], id="data of another stream"),
        pytest.param(
            [_HEAD, data(3, prefixed(b"x")), headers(5, HEAD), _TRAILERS], id="two calls at once"
        ),
        pytest.param(
            [_HEAD, data(3, prefixed(b"x")), headers(3, [("grpc-status", "7")], end=True)],
            id="a new block",
        ),
        pytest.param([headers(1 << 31 | 3, HEAD), data(3, prefixed(b"x")), _TRAILERS], id="bit"),
        pytest.param([headers(9, HEAD), data(3, prefixed(b"x")), _TRAILERS], id="unknown stream"),
    ],
)
@pytest.mark.parametrize("hook", ["", "cancel at head", "cancel at message", "hold at head"])
@pytest.mark.parametrize("is_half_closed", [True, False])
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(), id="default limits"),
        pytest.param(Limits(frame_bytes_max=kinds.FRAME_BYTES_DEFAULT), id="small frames"),
        pytest.param(Limits(message_bytes_max=4), id="small messages"),
        pytest.param(Limits(stream_window_bytes=4), id="small window"),
        pytest.param(Limits(stream_window_bytes=7), id="small window for one message"),
    ],
)
def test_a_response_in_one_piece_has_the_effect_of_its_frames(
    response: list[bytes], hook: str, is_half_closed: bool, limits: Limits
) -> None:
    def receive(pieces: list[bytes]) -> tuple[object, ...]:
        server = RawServer(limits)
        # Blocks are cached at their second use.
        warm, call, other = server.call(b"0"), server.call(*[b"1"][:is_half_closed]), server.call()
        server.send(answer(1))
        warm.expect_end()
        server.read_output()
        action, _, kind = hook.partition(" at ")
        if action == "cancel":
            call.hooks[kind] = lambda _: call.stream.cancel()
        elif action == "hold":
            call.hooks[kind] = lambda _: call.stream.hold()
        error = None
        for piece in pieces:
            try:
                server.send(piece)
            except RemoteProtocolError as raised:
                error = str(raised)
        return call.events, other.events, server.read_output(), error, list(server.core.streams)

    assert receive([b"".join(response)]) == receive(response)


def test_responses_in_one_piece_use_up_the_window_of_the_connection() -> None:
    server = RawServer(Limits(connection_window_bytes=kinds.WINDOW_DEFAULT))
    warm, *calls = server.opened(5)
    server.send(answer(1, b"x"))
    warm.expect_end()
    for call in calls:
        server.send(answer(call.stream.id, b"x" * 20_000))
        call.expect_end()
    # One for the connection when more than half is used up, none for streams.
    assert [stream_id for stream_id, _ in server.read_output().updates()] == [0, 0]


def test_each_frame_of_a_response_in_one_piece_counts_for_the_turn() -> None:
    turns = ManualTurns()
    server = RawServer(turns=turns)
    in_one_turn = FRAMES_PER_TURN_MAX // 3 + 1
    warm, *calls = [server.call(b"x") for _ in range(in_one_turn + 2)]
    server.send(answer(1, b"x"))
    warm.expect_end()
    server.send(b"".join(answer(call.stream.id, b"x") for call in calls))
    assert server.core.is_behind
    assert [call.end is not None for call in calls].index(False) == in_one_turn


# Cancelling


def test_cancelling_resets_the_stream_and_ignores_its_response() -> None:
    server = RawServer()
    (call,) = server.opened()
    call.stream.cancel()
    call.expect_end(StatusCode.CANCELLED, "cancelled by the client")
    server.expect_reset(1, ErrorCode.CANCEL)
    server.send(answer(1, b"late"))
    server.expect_no_output()


def test_a_deadline_is_a_cancellation_with_another_status() -> None:
    server = RawServer()
    (call,) = server.opened()
    call.stream.cancel(Status(StatusCode.DEADLINE_EXCEEDED, "too late"))
    call.expect_end(StatusCode.DEADLINE_EXCEEDED, "too late")
    server.expect_reset(1, ErrorCode.CANCEL)


# More calls than the peer allows


def limited(streams_max: int, calls: int) -> tuple[RawServer, list[CallRecorder]]:
    server = RawServer(announce=((STREAMS_MAX, streams_max),))
    return server, [server.call(b"%d" % n) for n in range(calls)]


def opened_streams(server: RawServer) -> list[int]:
    return [frame.stream_id for frame in server.read_output().of(kinds.HEADERS)]


def test_calls_over_the_limit_are_opened_in_order() -> None:
    server, calls = limited(2, 5)
    assert opened_streams(server) == [1, 3]
    assert server.core.calls == 5
    server.send(answer(3))
    sent = server.read_output()
    assert [frame.stream_id for frame in sent.of(kinds.HEADERS)] == [5]
    assert sent.payload(5) == prefixed(b"2")
    server.send(rst_stream(1, 8), answer(5))
    assert opened_streams(server) == [7, 9]
    server.send(answer(7), answer(9))
    assert [call.end is not None for call in calls] == [True] * 5
    assert server.core.calls == 0


def test_a_new_call_is_opened_after_waiting_calls() -> None:
    server, _ = limited(1, 2)
    server.read_output()
    late = server.call(b"late")
    server.send(settings((STREAMS_MAX, 2)))
    assert opened_streams(server) == [3]
    assert late.stream.id == 0


@pytest.mark.parametrize(("streams_max", "opened"), [(0, []), (2, []), (3, [5]), (9, [5, 7, 9])])
def test_the_limit_may_change(streams_max: int, opened: list[int]) -> None:
    server, _ = limited(2, 5)
    server.read_output()
    server.send(settings((STREAMS_MAX, streams_max)))
    assert opened_streams(server) == opened


def test_a_lower_limit_waits_for_calls_under_way() -> None:
    server, _ = limited(3, 4)
    server.read_output()
    server.send(settings((STREAMS_MAX, 1)), answer(1), answer(3))
    assert opened_streams(server) == []
    server.send(answer(5))
    assert opened_streams(server) == [7]


def test_messages_of_a_waiting_call_are_sent_when_it_is_opened() -> None:
    server, _ = limited(0, 0)
    call = server.call()
    call.stream.send_message(b"a")
    call.stream.send_message(b"b", is_compressed=True)
    call.expect_writable(False)
    call.stream.close_sending()
    server.expect_no_output()
    server.send(settings((STREAMS_MAX, 1)))
    sent = server.read_output()
    assert sent.payload(1) == prefixed(b"a") + prefixed(b"b", compressed=1)
    assert sent.frames[-1].flags == END_STREAM
    assert call.count("writable") == 1
    call.expect_writable(True)


def test_a_waiting_call_without_messages_is_opened() -> None:
    server, _ = limited(0, 0)
    call = server.call()
    server.send(settings((STREAMS_MAX, 1)))
    assert opened_streams(server) == [1]
    call.stream.send_message(b"now")
    assert server.read_output().payload(1) == prefixed(b"now")


def test_cancelling_a_waiting_call_sends_nothing() -> None:
    server, (_, second, third) = limited(1, 3)
    server.read_output()
    second.stream.cancel()
    second.expect_end(StatusCode.CANCELLED)
    server.expect_no_output()
    server.send(answer(1))
    assert opened_streams(server) == [3]
    assert third.stream.id == 3


def test_a_waiting_call_is_opened_when_an_open_one_is_cancelled() -> None:
    server, (first, _) = limited(1, 2)
    server.read_output()
    first.stream.cancel()
    assert [(each.kind, each.stream_id) for each in server.read_output().frames] == [
        (kinds.RST_STREAM, 1),
        (kinds.HEADERS, 3),
        (kinds.DATA, 3),
    ]


def test_waiting_calls_of_a_lost_connection_end_unprocessed() -> None:
    server, (first, second) = limited(1, 2)
    server.read_output()
    server.core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    first.expect_end(StatusCode.UNAVAILABLE, "gone")
    second.expect_end(StatusCode.UNAVAILABLE, "gone", unprocessed=True)


def test_unsent_calls_of_a_lost_connection_end_unprocessed() -> None:
    server = RawServer()
    [sent] = server.opened(1)
    server.read_output()
    unsent, streaming = server.call(b"hello"), server.call()
    server.core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    sent.expect_end(StatusCode.UNAVAILABLE, "gone")
    for call in (unsent, streaming):
        assert call.expect_end(StatusCode.UNAVAILABLE, "gone", unprocessed=True).is_retry_free


# A peer that refuses streams within the limit it announced


def refused_beside(others: int) -> tuple[RawServer, CallRecorder]:
    """A call that waits to be opened after a refusal while there were others."""
    server = RawServer(announce=((STREAMS_MAX, 10),))
    refused = server.opened(others + 1)[-1]
    server.send(rst_stream(2 * others + 1, ErrorCode.REFUSED_STREAM))
    assert refused.end is not None
    assert refused.end.is_unprocessed
    assert refused.end.is_retry_free is (others > 0)
    return server, server.call(b"again")


def test_a_call_that_is_refused_beside_others_waits_until_one_has_ended() -> None:
    server, _ = refused_beside(2)
    server.expect_no_output()
    server.send(answer(1))
    assert opened_streams(server) == [7]


def test_a_call_that_is_refused_alone_does_not_wait() -> None:
    server, _ = refused_beside(0)
    assert opened_streams(server) == [3]


def test_restoring_the_stream_limit_opens_waiting_calls() -> None:
    server, _ = refused_beside(2)
    server.call(b"another")
    server.core.restore_stream_limit()
    assert opened_streams(server) == [7, 9]


def test_a_new_limit_of_the_peer_is_applied_at_once_after_a_refusal() -> None:
    server, _ = refused_beside(2)
    server.send(settings((STREAMS_MAX, 3)))
    assert opened_streams(server) == [7]
    server.call(b"over the limit")
    server.core.restore_stream_limit()
    server.expect_no_output()


def test_on_refused_is_called_for_each_refusal() -> None:
    server = RawServer()
    server.opened(3)
    refusals: list[str] = []
    server.core.on_refused = lambda: refusals.append("refused")
    server.send(rst_stream(5, ErrorCode.REFUSED_STREAM), rst_stream(3, ErrorCode.CANCEL))
    assert refusals == ["refused"]


def test_calls_that_were_never_sent_are_retry_free() -> None:
    server, (sent, waiting) = limited(1, 2)
    server.send(goaway(0))
    unopened = server.call(b"late")
    assert [
        call.end is not None and call.end.is_retry_free for call in (sent, waiting, unopened)
    ] == [
        False,
        True,
        True,
    ]


# GOAWAY


def test_goaway_ends_the_calls_that_the_peer_did_not_process() -> None:
    server, calls = limited(3, 4)
    server.send(goaway(3, 0, b"max_age"))
    assert server.owner.values("goaway") == [(0, "max_age")]
    for call in calls[:2]:
        call.expect_open()
    for call in calls[2:]:
        text = "peer is going away: NO_ERROR: max_age"
        call.expect_end(StatusCode.UNAVAILABLE, text, unprocessed=True)
    assert server.owner.count("drained") == 0
    server.send(answer(1), answer(3))
    for call in calls[:2]:
        call.expect_end()
    assert server.owner.count("drained") == 1


def test_debug_data_of_goaway_is_one_line() -> None:
    server, (call,) = limited(1, 1)
    server.send(goaway(0, 0, b"bye\nCRITICAL forged \x1b[31m"))
    text = r"peer is going away: NO_ERROR: bye CRITICAL forged \x1b[31m"
    call.expect_end(StatusCode.UNAVAILABLE, text, unprocessed=True)


def test_on_goaway_is_called_before_the_calls_end() -> None:
    server, (call,) = limited(1, 1)
    seen: list[bool] = []
    server.owner.hooks["goaway"] = lambda _: seen.append(call.end is None)
    server.send(goaway(0))
    assert seen == [True]
    call.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)


def test_a_second_goaway_ends_more_calls() -> None:
    server, calls = limited(9, 3)
    server.send(goaway(LAST_ID))
    for call in calls:
        call.expect_open()
    assert not server.core.is_usable
    server.send(goaway(1))
    calls[0].expect_open()
    calls[1].expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    calls[2].expect_end(StatusCode.UNAVAILABLE, unprocessed=True)


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_connection_is_drained_once(calls: int) -> None:
    server, _ = limited(9, calls)
    server.send(goaway(0), goaway(0))
    server.core.drain()
    assert server.owner.count("drained") == 1


def test_after_goaway_calls_end_at_once_unprocessed() -> None:
    server, _ = limited(9, 1)
    server.send(goaway(LAST_ID))
    server.read_output()
    for message in (None, b"unary"):
        server.call(message).expect_end(
            StatusCode.UNAVAILABLE, "connection takes no new calls", unprocessed=True
        )
    server.expect_no_output()
    assert server.core.calls == 1


def test_goaway_with_an_unknown_code_is_named_by_its_number() -> None:
    server, (call,) = limited(9, 1)
    server.send(goaway(0, 0xABC))
    call.expect_end(StatusCode.UNAVAILABLE, "error code 0xabc", unprocessed=True)


def test_draining_lets_calls_finish_and_opens_none() -> None:
    server, (first, second) = limited(1, 2)
    server.core.drain()
    second.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    first.expect_open()
    server.call(b"x").expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    server.send(answer(1))
    first.expect_end()
    assert server.owner.count("drained") == 1


def test_a_closed_connection_cannot_be_drained() -> None:
    server = RawServer()
    server.core.close()
    server.core.drain()
    assert server.owner.count("drained") == 0


# The last stream id


@pytest.mark.parametrize("message", [None, b"unary"])
def test_a_connection_without_free_ids_opens_no_calls(message: bytes | None) -> None:
    server = RawServer()
    server.core._next_stream_id = LAST_ID
    last = server.call(message)
    assert last.stream.id == LAST_ID
    assert not server.core.is_usable
    server.read_output()
    server.call(message).expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    # `on_goaway` is called once, as if the peer were going away.
    server.call(message).expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    assert server.owner.count("goaway") == 1
    server.expect_no_output()
    server.send(answer(LAST_ID, b"a"))
    last.expect_messages(b"a")
    last.expect_end()


def test_on_goaway_is_called_once_when_ids_are_used_up() -> None:
    server = RawServer()
    server.core._next_stream_id = LAST_ID
    server.call(b"last")
    assert server.owner.values("goaway") == []
    for _ in range(2):
        server.call(b"one too many")
    assert server.owner.values("goaway") == [(0, "stream ids are used up")]
    assert server.owner.count("drained") == 0
    server.send(answer(LAST_ID))
    assert server.owner.count("drained") == 1


def test_waiting_calls_end_when_ids_are_used_up() -> None:
    server = RawServer(announce=((STREAMS_MAX, 1),))
    server.core._next_stream_id = LAST_ID
    _, second, third = (server.call(b"x") for _ in range(3))
    server.send(answer(LAST_ID))
    second.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    third.expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    assert server.core.calls == 0


# Listeners that call the connection


def test_a_refused_call_may_be_opened_again_in_on_end() -> None:
    server = RawServer()
    (call,) = server.opened()
    again: list[CallRecorder] = []
    call.hooks["end"] = lambda _: again.append(server.call(b"again"))
    server.send(rst_stream(1, ErrorCode.REFUSED_STREAM), answer(3, b"a"))
    again[0].expect_messages(b"a")
    again[0].expect_end()


Ends = Callable[[RawServer], None]


@pytest.mark.parametrize(
    "end",
    [
        lambda server: server.send(goaway(0)),
        lambda server: server.core.close(),
        lambda server: server.core.lose(OK),
        lambda server: server.core.drain(),
        lambda server: server.calls[0].stream.cancel(),
        lambda server: server.calls[-1].stream.cancel(),
    ],
)
def test_ending_calls_may_cancel_each_other(end: Ends) -> None:
    server, calls = limited(3, 8)

    def cancel_all(_: object) -> None:
        for call in reversed(calls):
            call.stream.cancel()

    for call in calls:
        call.hooks["end"] = cancel_all
    end(server)
    assert [call.count("end") for call in calls] == [1] * 8
    assert server.core.calls == 0


def test_calls_that_goaway_ends_may_cancel_each_other() -> None:
    server, calls = limited(9, 4)
    calls[1].hooks["end"] = lambda _: calls[2].stream.cancel()
    server.send(goaway(1))
    calls[0].expect_open()
    calls[1].expect_end(StatusCode.UNAVAILABLE, unprocessed=True)
    calls[2].expect_end(StatusCode.CANCELLED)
    calls[3].expect_end(StatusCode.UNAVAILABLE, unprocessed=True)


def test_a_connection_closed_while_settings_open_a_call_reports_no_settings() -> None:
    server, (call,) = limited(0, 1)
    call.hooks["writable"] = lambda _: server.core.close()
    before = server.owner.count("settings")
    server.send(settings((STREAMS_MAX, 1)))
    assert server.owner.count("settings") == before
    call.expect_end(StatusCode.UNAVAILABLE)


def test_closing_the_connection_in_on_end_sends_goaway_once() -> None:
    server, calls = limited(1, 3)
    for call in calls:
        call.hooks["end"] = lambda _: server.core.close()
    server.read_output()
    server.core.close()
    assert len(server.read_output().goaways()) == 1


def test_a_header_block_starts_with_table_size_update_to_0() -> None:
    """A peer that reduces its table size expects the update (RFC 9113 4.3.1)."""
    assert RequestEncoder(path="/s/m", authority="a").block().startswith(b"\x20")


# The end of a connection


def test_detached_connection_refers_to_its_owner_no_more() -> None:
    peer = RawServer()
    core, owner = peer.core, weakref.ref(peer.owner)
    (call,) = peer.opened()
    core.on_refused = core.on_waiting = peer.owner.on_drained
    core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    call.expect_end(StatusCode.UNAVAILABLE)
    core.detach()
    events = list(peer.owner.events)
    core.outbound.emit(b"late")
    assert peer.owner.events == events
    del peer
    assert owner() is None
