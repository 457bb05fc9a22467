"""Unit tests of proxyless.wire.server."""

from collections.abc import Callable
from functools import partial

import pytest
from hpack import Encoder

from proxyless.base import OK, Status, StatusCode
from proxyless.wire import ErrorCode, Limits, UsageError, compress
from proxyless.wire import frames as kinds
from tests.worlds.wire import (
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


def sent_blocks(client: RawClient, stream_id: int = 1) -> list[tuple[Fields, bool]]:
    """Each header block the server sent, and whether it was the last."""
    found = client.read_output().of(kinds.HEADERS, stream_id)
    return [(decode_block(each.payload), bool(each.flags & END_STREAM)) for each in found]


HEAD: Fields = [(":status", "200"), ("content-type", "application/grpc")]


# Requests


def test_a_call_reaches_the_owner_with_its_request() -> None:
    client = RawClient()
    client.send(headers(1, [*REQUEST, ("grpc-timeout", "5S"), ("k-bin", "AP8"), ("k", "v")]))
    (handler,) = client.owner.handlers
    assert handler.request.path == "/test.Service/Method"
    assert handler.request.authority == "test.example"
    assert handler.request.timeout_s == 5
    assert handler.request.metadata == (("k-bin", b"\x00\xff"), ("k", "v"))
    assert handler.events == []


def test_messages_and_half_close_reach_the_handler() -> None:
    client = RawClient()
    handler = client.request(1)
    client.send(data(1, prefixed(b"a")), data(1, prefixed(b"b"), end=True))
    assert handler.events == [("message", b"a"), ("message", b"b"), ("half_close", None)]


@pytest.mark.parametrize("last", [data(1, b"", end=True), headers(1, [("trailer", "x")], end=True)])
def test_half_close_may_be_empty_data_or_trailers(last: bytes) -> None:
    client = RawClient()
    handler = client.request(1)
    client.send(last)
    assert handler.events == [("half_close", None)]


def test_a_request_may_be_headers_only() -> None:
    client = RawClient()
    assert client.request(1, end=True).events == [("half_close", None)]


def test_a_half_close_within_a_message_is_refused() -> None:
    client = RawClient()
    handler = client.request(1)
    client.send(data(1, prefixed(b"abc")[:-1], end=True))
    assert handler.count("half_close") == 0
    ((trailers, is_last),) = sent_blocks(client)
    assert ("grpc-status", "13") in trailers
    assert is_last
    handler.expect_end()


def test_ids_may_be_skipped() -> None:
    client = RawClient()
    client.request(1)
    client.request(7)
    assert sorted(client.core.streams) == [1, 7]


# Responses


def test_head_messages_and_status_are_headers_data_trailers() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_head((("k", "v"),))
    handler.stream.send_message(b"a")
    handler.stream.send_status(ABORTED, (("t-bin", b"\x00\xff"),))
    frames = client.read_output().frames
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


def test_send_message_sends_the_head_first() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(b"a")
    handler.stream.send_message(b"b")
    assert [each.kind for each in client.read_output().frames] == [
        kinds.HEADERS,
        kinds.DATA,
        kinds.DATA,
    ]


def test_a_response_without_messages_is_trailers_only() -> None:
    client = RawClient()
    client.request(1, end=True).stream.send_status(ABORTED)
    assert sent_blocks(client) == [([*HEAD, ("grpc-status", "10"), ("grpc-message", "why")], True)]


def test_the_stream_of_a_client_that_is_still_sending_is_reset() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_status()
    sent = client.read_output()
    assert sent.resets() == [(1, ErrorCode.NO_ERROR)]
    assert sent.frames[-1].kind == kinds.RST_STREAM
    client.send(data(1, prefixed(b"late")), headers(1, [("t", "x")], end=True))
    client.expect_no_output()
    handler.expect_messages()


def test_the_status_follows_queued_messages() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    sent = client.read_output()
    assert len(sent.payload(1)) == 65_535
    handler.expect_open()
    client.send(window_update(0, 100_000), window_update(1, 100_000))
    sent = client.read_output()
    assert sent.frames[-1].flags & END_STREAM
    assert sent.frames[-1].kind == kinds.HEADERS
    handler.expect_end()
    assert handler.count("writable") == 0, "the stream has ended"


def test_on_writable_is_called_when_the_queue_is_sent() -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.send(window_update(0, 100_000), window_update(1, 100_000))
    assert handler.events == [("writable", None)]


def test_a_large_head_is_continued() -> None:
    client = RawClient()
    client.request(1).stream.send_head((("k", "v" * 40_000),))
    assert [each.kind for each in client.read_output().frames] == [
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
def test_sending_after_the_status_raises(misuse: Misuse, text: str) -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    client.read_output()
    with pytest.raises(UsageError, match=text):
        misuse(handler)
    client.expect_no_output()


# Responses sent in `on_call`


@pytest.mark.parametrize("end", [False, True])
def test_a_call_may_be_ended_before_it_has_a_handler(end: bool) -> None:
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


def send_ok(handler: HandlerRecorder, _: object) -> None:
    handler.stream.send_status()


def test_a_handler_may_send_a_status_in_any_callback() -> None:
    client = RawClient()
    for stream_id, moment in ((1, "message"), (3, "half_close")):
        handler = client.request(stream_id)
        handler.hooks[moment] = partial(send_ok, handler)
        client.send(data(stream_id, prefixed(b"a") + prefixed(b"b"), end=True))
        handler.expect_end()
    assert not client.core.streams


# Invalid requests


@pytest.mark.parametrize(
    ("request_fields", "http_status"),
    [
        (replaced(":method", "GET"), "405"),
        (replaced("content-type", "application/json"), "415"),
        (replaced("content-type", "application/grpc-web"), "415"),
        ([*REQUEST, ("k", "v" * 500)], "431"),
    ],
)
def test_a_request_that_is_not_grpc_gets_an_http_status(
    request_fields: Fields, http_status: str
) -> None:
    client = RawClient(Limits(header_list_bytes_max=500))
    client.send(headers(1, request_fields, end=True))
    assert sent_blocks(client) == [([(":status", http_status)], True)]
    assert client.owner.handlers == []
    assert client.request(3) is client.owner.handlers[0], "the connection stays open"


def test_trailers_over_the_limit_end_their_call_only() -> None:
    client = RawClient(Limits(header_list_bytes_max=500))
    handler = client.request(1)
    client.send(headers(1, [("k", "v" * 500)], end=True))
    ((trailers, is_last),) = sent_blocks(client)
    assert ("grpc-status", "8") in trailers
    assert is_last
    handler.expect_end()
    client.request(3).expect_open()


def test_a_second_head_resets_the_stream() -> None:
    client = RawClient()
    handler = client.request(1)
    client.send(headers(1, REQUEST))
    handler.expect_end(StatusCode.INTERNAL, "second request head")
    client.expect_reset(1, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "more", [data(1, prefixed(b"a")), data(1, b"", end=True), headers(1, [("t", "x")], end=True)]
)
def test_a_frame_after_half_close_resets_the_stream(more: bytes) -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.send(more)
    handler.expect_end(StatusCode.INTERNAL, "after it had closed its side")
    client.expect_reset(1, ErrorCode.STREAM_CLOSED)


def test_a_message_over_the_limit_gets_a_status() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    client.send(data(1, prefixed(bytes(11))))
    sent = client.read_output()
    ((trailers),) = [decode_block(each.payload) for each in sent.of(kinds.HEADERS)]
    assert ("grpc-status", "8") in trailers
    assert sent.resets() == [(1, ErrorCode.NO_ERROR)]
    handler.expect_end()


def test_a_bad_message_resets_a_stream_with_queued_messages() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.read_output()
    client.send(data(1, prefixed(bytes(11))))
    handler.expect_end(StatusCode.RESOURCE_EXHAUSTED)
    client.expect_reset(1, ErrorCode.CANCEL)


def test_a_bad_message_resets_a_stream_whose_status_is_queued() -> None:
    client = RawClient(Limits(message_bytes_max=10))
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    handler.stream.send_status()
    client.read_output()
    client.send(data(1, prefixed(bytes(11))))
    handler.expect_end(StatusCode.RESOURCE_EXHAUSTED)
    client.expect_reset(1, ErrorCode.CANCEL)


# Limits and ends


def test_more_streams_than_announced_are_refused() -> None:
    client = RawClient(Limits(concurrent_streams_max=2))
    client.request(1)
    client.request(3)
    client.send(headers(5, REQUEST), data(5, prefixed(b"x"), end=True))
    client.expect_reset(5, ErrorCode.REFUSED_STREAM)
    assert len(client.owner.handlers) == 2
    client.send(rst_stream(1, 8), headers(7, REQUEST))
    assert len(client.owner.handlers) == 3


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.CANCEL, StatusCode.CANCELLED), (ErrorCode.INTERNAL_ERROR, StatusCode.INTERNAL)],
)
def test_a_reset_by_the_client_ends_the_call(code: ErrorCode, status: StatusCode) -> None:
    client = RawClient()
    handler = client.request(1)
    handler.stream.send_message(bytes(100_000))
    client.read_output()
    client.send(rst_stream(1, code), window_update(0, 100_000))
    handler.expect_end(status)
    client.expect_no_output()
    with pytest.raises(UsageError):
        handler.stream.send_status()
    client.expect_no_output()


def test_a_head_for_an_ended_call_is_not_sent() -> None:
    client = RawClient()
    handler = client.request(1)
    client.send(rst_stream(1, 8))
    handler.stream.send_head()
    client.expect_no_output()


def test_draining_finishes_open_calls_and_refuses_new_ones() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.core.drain("bye")
    client.core.drain()
    assert client.read_output().goaways() == [(1, ErrorCode.NO_ERROR, b"bye")]
    client.send(headers(3, REQUEST))
    client.expect_reset(3, ErrorCode.REFUSED_STREAM)
    assert client.owner.count("drained") == 0
    handler.stream.send_status()
    assert client.owner.count("drained") == 1


def test_an_idle_connection_is_drained_at_once() -> None:
    client = RawClient()
    client.core.drain()
    client.core.drain()
    assert client.owner.count("drained") == 1


def test_goaway_of_the_client_ends_no_call() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    client.send(goaway(0, 0, b"bye"))
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
    client.send(ping())
    client.expect_no_output()


# Header compression before our settings are acknowledged


def indexing_client() -> tuple[RawClient, Encoder]:
    """A client that has not acknowledged our SETTINGS, and indexes its header fields."""
    client = RawClient(handshake=False)
    client.send(PREFACE, settings())
    client.read_output()
    return client, Encoder()


def test_a_client_may_index_until_it_acknowledges_our_settings() -> None:
    client, encoder = indexing_client()
    blocks = [encoder.encode(REQUEST) for _ in range(2)]
    assert len(blocks[1]) < len(blocks[0]), "the second one refers to the table"
    client.send(headers(1, blocks[0]), headers(3, blocks[1]))
    first, second = client.owner.handlers
    assert first.request == second.request
    encoder.header_table_size = 0
    client.send(settings_ack(), headers(5, encoder.encode(REQUEST)))
    assert client.owner.handlers[2].request == first.request


def test_refused_requests_count_for_the_table() -> None:
    client, encoder = indexing_client()
    client.send(headers(1, encoder.encode(replaced("content-type", "text/html")), end=True))
    client.send(headers(3, encoder.encode(REQUEST)))
    assert client.owner.handlers[0].request.path == "/test.Service/Method"


def test_indexed_fields_are_an_error_after_the_acknowledgement() -> None:
    client, encoder = indexing_client()
    client.send(headers(1, encoder.encode(REQUEST)), settings_ack())
    client.read_output()
    client.expect_error(
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
    client.expect_error(code, "", headers(1, encoded))


def test_continued_request_headers_are_one_block() -> None:
    client = RawClient()
    encoded = block(REQUEST)
    client.send(
        frame(kinds.HEADERS, END_STREAM, 1, encoded[:10]),
        frame(kinds.CONTINUATION, kinds.FLAG_END_HEADERS, 1, encoded[10:]),
    )
    assert client.owner.handlers[0].events == [("half_close", None)]


# Compressed requests of a held stream


def test_the_half_close_is_delivered_after_held_messages() -> None:
    client = RawClient()
    client.send(headers(1, [*REQUEST, ("grpc-encoding", "gzip")]))
    handler = client.owner.handlers[-1]
    handler.hooks["message"] = lambda _: handler.stream.hold()
    each = prefixed(compress("gzip", b"x"), compressed=1)
    client.send(data(1, each * 2, end=True))
    assert (handler.messages, handler.count("half_close")) == ([b"x"], 0)
    handler.stream.release()
    assert (handler.messages, handler.count("half_close")) == ([b"x"] * 2, 0)
    handler.stream.release()
    handler.stream.release()
    assert handler.count("half_close") == 1
    client.read_output()
    handler.stream.send_status()
    handler.expect_end()


def test_a_half_close_within_a_held_message_is_refused() -> None:
    client = RawClient()
    client.send(headers(1, [*REQUEST, ("grpc-encoding", "gzip")]))
    handler = client.owner.handlers[-1]
    handler.stream.hold()
    client.send(data(1, prefixed(compress("gzip", b"x"), compressed=1)[:-1], end=True))
    assert handler.messages == []
    assert handler.end is not None
