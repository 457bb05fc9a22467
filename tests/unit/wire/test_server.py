"""Unit tests of proxyless.wire.server."""

from collections.abc import Callable
from functools import partial

import pytest
from hpack import Encoder

from proxyless.base import OK, Status, StatusCode
from proxyless.wire import ErrorCode, Limits, UsageError, compress
from proxyless.wire import frames as kinds
from tests.wire_world import (
    END_STREAM,
    PREFACE,
    REQUEST,
    Fields,
    HandlerRecorder,
    RawClient,
    block,
    data,
    decode_block,
    frame,
    goaway,
    headers,
    ping,
    prefixed,
    rst_stream,
    settings,
    settings_ack,
    window_update,
)

ABORTED = Status(StatusCode.ABORTED, "why")


def replaced(name: str, value: str) -> Fields:
    return [(key, value if key == name else old) for key, old in REQUEST]


def heard_blocks(client: RawClient, stream_id: int = 1) -> list[tuple[Fields, bool]]:
    """Each header block the server sent, and whether it was the last."""
    found = client.hear().of(kinds.HEADERS, stream_id)
    return [(decode_block(each.payload), bool(each.flags & END_STREAM)) for each in found]


HEAD: Fields = [(":status", "200"), ("content-type", "application/grpc")]


# Taking calls


def test_a_call_reaches_the_owner_with_its_request() -> None:
    client = RawClient()
    client.say(headers(1, [*REQUEST, ("grpc-timeout", "5S"), ("k-bin", "AP8"), ("k", "v")]))
    (handler,) = client.owner.handlers
    assert handler.request.path == "/test.Service/Method"
    assert handler.request.authority == "test.example"
    assert handler.request.timeout_s == 5
    assert handler.request.metadata == (("k-bin", b"\x00\xff"), ("k", "v"))
    assert handler.events == []


def test_messages_and_half_close_reach_the_handler() -> None:
    client = RawClient()
    handler = client.request(1)
    client.say(data(1, prefixed(b"a")), data(1, prefixed(b"b"), end=True))
    assert handler.events == [("message", b"a"), ("message", b"b"), ("half_close", None)]


@pytest.mark.parametrize("last", [data(1, b"", end=True), headers(1, [("trailer", "x")], end=True)])
def test_half_close_may_be_empty_data_or_trailers(last: bytes) -> None:
    client = RawClient()
    handler = client.request(1)
    client.say(last)
    assert handler.events == [("half_close", None)]


def test_a_request_may_be_headers_only() -> None:
    client = RawClient()
    assert client.request(1, end=True).events == [("half_close", None)]


def test_a_client_that_stops_within_a_message_is_refused() -> None:
    client = RawClient()
    handler = client.request(1)
    client.say(data(1, prefixed(b"abc")[:-1], end=True))
    assert handler.count("half_close") == 0
    ((trailers, is_last),) = heard_blocks(client)
    assert ("grpc-status", "13") in trailers
    assert is_last
    handler.expect_end()


def test_ids_may_be_skipped() -> None:
    client = RawClient()
    client.request(1)
    client.request(7)
    assert sorted(client.core.streams) == [1, 7]


# Answering


def test_head_messages_and_status_are_headers_data_trailers() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_head((("k", "v"),))
    handler.stream.send_message(b"a")
    handler.stream.send_status(ABORTED, (("t-bin", b"\x00\xff"),))
    frames = client.hear().frames
    assert [(each.kind, each.flags & END_STREAM) for each in frames] == [
        (kinds.HEADERS, 0),
        (kinds.DATA, 0),
        (kinds.HEADERS, END_STREAM),
    ]
    assert decode_block(frames[0].payload) == [*HEAD, ("k", "v")]
    assert decode_block(frames[2].payload) == [
        ("grpc-status", "10"),
        ("grpc-message", "why"),
        ("t-bin", "AP8"),
    ]
    handler.expect_end()


def test_a_message_brings_its_head_along() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(b"a")
    handler.stream.send_message(b"b")
    assert [each.kind for each in client.hear().frames] == [kinds.HEADERS, kinds.DATA, kinds.DATA]


def test_an_answer_without_messages_is_one_block() -> None:
    client = RawClient()
    client.request(1, end=True).stream.send_status(ABORTED)
    assert heard_blocks(client) == [([*HEAD, ("grpc-status", "10"), ("grpc-message", "why")], True)]


def test_a_client_that_is_still_sending_is_told_to_stop() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_status()
    heard = client.hear()
    assert heard.resets() == [(1, ErrorCode.NO_ERROR)]
    assert heard.frames[-1].kind == kinds.RST_STREAM
    client.say(data(1, prefixed(b"late")), headers(1, [("t", "x")], end=True))
    client.expect_silence()
    handler.expect_messages()


def test_the_status_follows_what_waits_for_the_window() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    heard = client.hear()
    assert len(heard.payload(1)) == 65_535
    handler.expect_open()
    client.say(window_update(0, 100_000), window_update(1, 100_000))
    heard = client.hear()
    assert heard.frames[-1].flags & END_STREAM
    assert heard.frames[-1].kind == kinds.HEADERS
    handler.expect_end()
    assert handler.count("writable") == 0, "the end says it all"


def test_a_handler_is_told_when_it_may_write_again() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.say(window_update(0, 100_000), window_update(1, 100_000))
    assert handler.events == [("writable", None)]


def test_a_large_head_is_continued() -> None:
    client = RawClient()
    client.request(1).stream.send_head((("k", "v" * 40_000),))
    assert [each.kind for each in client.hear().frames] == [
        kinds.HEADERS,
        kinds.CONTINUATION,
        kinds.CONTINUATION,
    ]


Misuse = Callable[[HandlerRecorder], None]


@pytest.mark.parametrize(
    ("misuse", "text"),
    [
        (lambda handler: handler.stream.send_head(), "response head sent twice"),
        (lambda handler: handler.stream.send_status(), "status sent after"),
        (lambda handler: handler.stream.send_message(b""), "message sent after"),
    ],
)
def test_answering_twice_is_misuse(misuse: Misuse, text: str) -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    client.hear()
    with pytest.raises(UsageError, match=text):
        misuse(handler)
    client.expect_silence()


# Answering inside `on_call`


@pytest.mark.parametrize("end", [False, True])
def test_a_call_may_be_answered_before_it_has_a_handler(end: bool) -> None:
    client = RawClient()
    client.owner.hooks["call"] = lambda handler: handler.stream.send_status(ABORTED)
    handler = client.request(1, end=end)
    handler.expect_end()
    assert handler.count("half_close") == 0
    handler = client.request(3, end=end)
    handler.expect_end()
    assert not client.core.streams


def test_a_call_may_be_reset_before_it_has_a_handler() -> None:
    client = RawClient()
    client.owner.hooks["call"] = lambda handler: handler.stream.reset(ErrorCode.CANCEL, ABORTED)
    client.request(1).expect_end(StatusCode.ABORTED)
    client.expect_reset(1, ErrorCode.CANCEL)


def test_the_connection_may_be_closed_before_a_call_has_a_handler() -> None:
    client = RawClient()
    client.owner.hooks["call"] = lambda _: client.core.close()
    handler = client.request(1, end=True)
    handler.expect_end(StatusCode.UNAVAILABLE)
    client.expect_closed(ErrorCode.NO_ERROR)


def answer_ok(handler: HandlerRecorder, _: object) -> None:
    handler.stream.send_status()


def test_a_handler_may_answer_from_any_callback() -> None:
    client = RawClient()
    for stream_id, moment in ((1, "message"), (3, "half_close")):
        handler = client.request(stream_id)
        handler.hooks[moment] = partial(answer_ok, handler)
        client.say(data(stream_id, prefixed(b"a") + prefixed(b"b"), end=True))
        handler.expect_end()
    assert not client.core.streams


# What is not a call


@pytest.mark.parametrize(
    ("request_fields", "http_status"),
    [
        (replaced(":method", "GET"), "405"),
        (replaced("content-type", "application/json"), "415"),
        (replaced("content-type", "application/grpc-web"), "415"),
        ([*REQUEST, ("k", "v" * 500)], "431"),
    ],
)
def test_what_is_not_a_call_is_answered_by_http(request_fields: Fields, http_status: str) -> None:
    client = RawClient(Limits(header_list_bytes_max=500))
    client.say(headers(1, request_fields, end=True))
    assert heard_blocks(client) == [([(":status", http_status)], True)]
    assert client.owner.handlers == []
    assert client.request(3) is client.owner.handlers[0], "the connection goes on"


def test_trailers_that_are_too_large_end_their_call_only() -> None:
    client = RawClient(Limits(header_list_bytes_max=500))
    handler = client.request(1)
    client.say(headers(1, [("k", "v" * 500)], end=True))
    ((trailers, is_last),) = heard_blocks(client)
    assert ("grpc-status", "8") in trailers
    assert is_last
    handler.expect_end()
    client.request(3).expect_open()


def test_a_second_head_resets_the_stream() -> None:
    client = RawClient()
    handler = client.request(1)
    client.say(headers(1, REQUEST))
    handler.expect_end(StatusCode.INTERNAL, "second request head")
    client.expect_reset(1, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "more", [data(1, prefixed(b"a")), data(1, b"", end=True), headers(1, [("t", "x")], end=True)]
)
def test_anything_after_half_close_resets_the_stream(more: bytes) -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.say(more)
    handler.expect_end(StatusCode.INTERNAL, "after it had closed its side")
    client.expect_reset(1, ErrorCode.STREAM_CLOSED)


def test_a_message_that_is_too_large_is_answered() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    client.say(data(1, prefixed(bytes(11))))
    heard = client.hear()
    ((trailers),) = [decode_block(each.payload) for each in heard.of(kinds.HEADERS)]
    assert ("grpc-status", "8") in trailers
    assert heard.resets() == [(1, ErrorCode.NO_ERROR)]
    handler.expect_end()


def test_a_bad_message_resets_a_stream_whose_answer_is_stuck() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.hear()
    client.say(data(1, prefixed(bytes(11))))
    handler.expect_end(StatusCode.RESOURCE_EXHAUSTED)
    client.expect_reset(1, ErrorCode.CANCEL)


def test_a_bad_message_resets_a_stream_that_is_answered_already() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    client.hear()
    client.say(data(1, prefixed(bytes(11))))
    handler.expect_end(StatusCode.RESOURCE_EXHAUSTED)
    client.expect_reset(1, ErrorCode.CANCEL)


# Limits and ends


def test_more_streams_than_announced_are_refused() -> None:
    client = RawClient(Limits(concurrent_streams_max=2))
    client.request(1)
    client.request(3)
    client.say(headers(5, REQUEST), data(5, prefixed(b"x"), end=True))
    client.expect_reset(5, ErrorCode.REFUSED_STREAM)
    assert len(client.owner.handlers) == 2
    client.say(rst_stream(1, 8), headers(7, REQUEST))
    assert len(client.owner.handlers) == 3


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.CANCEL, StatusCode.CANCELLED), (ErrorCode.INTERNAL_ERROR, StatusCode.INTERNAL)],
)
def test_a_reset_by_the_client_ends_the_call(code: ErrorCode, status: StatusCode) -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.hear()
    client.say(rst_stream(1, code), window_update(0, 100_000))
    handler.expect_end(status)
    client.expect_silence()
    with pytest.raises(UsageError):
        handler.stream.send_status()
    client.expect_silence()


def test_a_head_for_a_call_that_is_over_is_not_sent() -> None:
    client = RawClient()
    handler = client.request(1)
    client.say(rst_stream(1, 8))
    handler.stream.send_head()
    client.expect_silence()


def test_draining_finishes_what_runs_and_refuses_what_comes() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.core.drain("bye")
    client.core.drain()
    assert client.hear().goaways() == [(1, ErrorCode.NO_ERROR, b"bye")]
    client.say(headers(3, REQUEST))
    client.expect_reset(3, ErrorCode.REFUSED_STREAM)
    assert client.owner.count("drained") == 0
    handler.stream.send_status()
    assert client.owner.count("drained") == 1


def test_an_idle_connection_is_drained_at_once() -> None:
    client = RawClient()
    client.core.drain()
    client.core.drain()
    assert client.owner.count("drained") == 1


def test_a_client_that_goes_away_lets_its_calls_finish() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.say(goaway(0, 0, b"bye"))
    assert client.owner.values("goaway") == [(0, "bye")]
    handler.expect_open()
    handler.stream.send_status()
    assert client.owner.count("drained") == 1


def test_losing_the_connection_ends_every_call() -> None:
    client = RawClient()
    handlers = [client.request(stream_id) for stream_id in (1, 3, 5)]
    client.core.lose(OK)
    for handler in handlers:
        handler.expect_end()
    client.say(ping())
    client.expect_silence()


# Header compression until our settings are known


def indexing_client() -> tuple[RawClient, Encoder]:
    """A client that has not read our SETTINGS, and so indexes what it sends."""
    client = RawClient(greet=False)
    client.say(PREFACE, settings())
    client.hear()
    return client, Encoder()


def test_a_client_may_index_until_it_acknowledges_our_settings() -> None:
    client, encoder = indexing_client()
    blocks = [encoder.encode(REQUEST) for _ in range(2)]
    assert len(blocks[1]) < len(blocks[0]), "the second one refers to the table"
    client.say(headers(1, blocks[0]), headers(3, blocks[1]))
    first, second = client.owner.handlers
    assert first.request == second.request
    encoder.header_table_size = 0
    client.say(settings_ack(), headers(5, encoder.encode(REQUEST)))
    assert client.owner.handlers[2].request == first.request


def test_refused_requests_count_for_the_table() -> None:
    client, encoder = indexing_client()
    client.say(headers(1, encoder.encode(replaced("content-type", "text/html")), end=True))
    client.say(headers(3, encoder.encode(REQUEST)))
    assert client.owner.handlers[0].request.path == "/test.Service/Method"


def test_after_the_acknowledgement_the_table_is_gone() -> None:
    client, encoder = indexing_client()
    client.say(headers(1, encoder.encode(REQUEST)), settings_ack())
    client.hear()
    client.break_by(
        ErrorCode.COMPRESSION_ERROR, "not in the table", headers(3, encoder.encode(REQUEST))
    )


@pytest.mark.parametrize(
    ("encoded", "code"),
    [
        (b"\xbf", ErrorCode.COMPRESSION_ERROR),
        (b"\x00\x05nam", ErrorCode.COMPRESSION_ERROR),
        (block([("k", "v" * 20_000)]), ErrorCode.ENHANCE_YOUR_CALM),
    ],
)
def test_a_bad_early_block_ends_the_connection(encoded: bytes, code: ErrorCode) -> None:
    client, _ = indexing_client()
    client.break_by(code, "", headers(1, encoded))


def test_continued_request_headers_are_one_block() -> None:
    client = RawClient()
    encoded = block(REQUEST)
    client.say(
        frame(kinds.HEADERS, END_STREAM, 1, encoded[:10]),
        frame(kinds.CONTINUATION, kinds.FLAG_END_HEADERS, 1, encoded[10:]),
    )
    assert client.owner.handlers[0].events == [("half_close", None)]


# Compressed requests of a held stream


def test_the_half_close_comes_after_what_is_held() -> None:
    client = RawClient()
    client.say(headers(1, [*REQUEST, ("grpc-encoding", "gzip")]))
    handler = client.owner.handlers[-1]
    handler.hooks["message"] = lambda _: handler.stream.hold()
    each = prefixed(compress("gzip", b"x"), compressed=1)
    client.say(data(1, each * 2, end=True))
    assert (handler.messages, handler.count("half_close")) == ([b"x"], 0)
    handler.stream.release()
    assert (handler.messages, handler.count("half_close")) == ([b"x"] * 2, 0)
    handler.stream.release()
    handler.stream.release()
    assert handler.count("half_close") == 1
    client.hear()
    handler.stream.send_status()
    handler.expect_end()


def test_a_half_close_within_a_held_message_is_refused() -> None:
    client = RawClient()
    client.say(headers(1, [*REQUEST, ("grpc-encoding", "gzip")]))
    handler = client.owner.handlers[-1]
    handler.stream.hold()
    client.say(data(1, prefixed(compress("gzip", b"x"), compressed=1)[:-1], end=True))
    assert handler.messages == []
    assert handler.end is not None
