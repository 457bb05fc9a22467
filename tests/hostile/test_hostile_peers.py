"""Peers that violate HTTP/2: the resulting error code, the end of streams and the memory used.

A stream error ends that stream: RST_STREAM, and a status for the call. A connection error is
RemoteProtocolError for the owner and GOAWAY with the same code for the peer (`expect_error` checks
both, and that every stream has ended once). In both cases memory is bounded.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack

import pytest
from hpack import Encoder

from proxyless.base import Status, StatusCode
from proxyless.wire import ErrorCode, Limits, RemoteProtocolError, compress
from proxyless.wire import frames as kinds
from proxyless.wire.limits import BUFFERED_BYTES_MAX, FLOOD_FRAMES_MAX
from tests.worlds.wire import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    OK_TRAILERS,
    PADDED,
    PREFACE,
    REQUEST,
    WITH_PRIORITY,
    RawClient,
    RawPeer,
    RawServer,
    answer,
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

KB = 1024
MB = 1024 * KB


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Check that the block allocates at most this many bytes at a time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= size, f"held {peak - before} bytes"


# Both roles, with stream 1 open and its headers received.


def client_core(limits: Limits | None = None) -> RawServer:
    server = RawServer(limits)
    server.opened()
    server.send(headers(1, HEAD))
    return server


def server_core(limits: Limits | None = None) -> RawClient:
    client = RawClient(limits)
    client.request(1)
    return client


Core = Callable[[Limits | None], RawPeer]
ROLES: dict[str, Core] = {"client": client_core, "server": server_core}


@pytest.fixture(params=ROLES)
def core(request: pytest.FixtureRequest) -> Core:
    return ROLES[request.param]


def break_in_pieces(peer: RawPeer, code: ErrorCode, text: str, pieces: Iterator[bytes]) -> int:
    """Send pieces until the connection fails; return the number of accepted pieces."""
    taken = 0

    def send_all() -> None:
        nonlocal taken
        for piece in pieces:
            peer.send(piece)
            taken += 1

    with pytest.raises(RemoteProtocolError, match=text) as caught:
        send_all()
    assert caught.value.code is code
    peer.expect_closed(code)
    return taken


# Frames


@pytest.mark.parametrize("kind", [kinds.DATA, kinds.HEADERS, kinds.GOAWAY, 0xFF])
def test_frame_above_the_announced_size_is_refused_at_its_header(core: Core, kind: int) -> None:
    peer = core(Limits(frame_bytes_max=20_000))
    peer.expect_error(
        ErrorCode.FRAME_SIZE_ERROR,
        "frame of 20001 bytes, wanted at most 20000",
        frame(kind, 0, 1, bytes(20_001))[:9],
    )


def test_frame_of_the_announced_size_is_accepted(core: Core) -> None:
    peer = core(Limits(frame_bytes_max=20_000))
    peer.send(data(1, prefixed(bytes(19_995))))
    (stream,) = peer.streams()
    assert len(stream.messages[0]) == 19_995


@pytest.mark.parametrize("piece_bytes", [1, 2, 1000])
def test_incomplete_frame_uses_memory_of_about_its_size(core: Core, piece_bytes: int) -> None:
    peer = core(None)
    half = frame(kinds.DATA, 0, 1, bytes(range(256)) * 1024)[: 50 * KB]
    with at_most(300 * KB):
        for at in range(0, len(half), piece_bytes):
            peer.send(half[at : at + piece_bytes])
    peer.expect_no_output()
    assert not peer.core.is_closed


@pytest.mark.parametrize(
    ("bad", "code", "text"),
    [
        (frame(kinds.SETTINGS, 0, 1), "PROTOCOL_ERROR", "SETTINGS on stream 1, wanted stream 0"),
        (frame(kinds.SETTINGS, 0, 0, bytes(5)), "FRAME_SIZE_ERROR", "SETTINGS of 5 bytes"),
        (frame(kinds.SETTINGS, 1, 0, bytes(6)), "FRAME_SIZE_ERROR", "acknowledgement of 6 bytes"),
        (frame(kinds.PING, 0, 1, bytes(8)), "PROTOCOL_ERROR", "PING on stream 1"),
        (frame(kinds.PING, 0, 0, bytes(7)), "FRAME_SIZE_ERROR", "PING of 7 bytes, wanted 8"),
        (frame(kinds.GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR", "GOAWAY on stream 1"),
        (frame(kinds.GOAWAY, 0, 0, bytes(7)), "FRAME_SIZE_ERROR", "GOAWAY of 7 bytes"),
        (frame(kinds.RST_STREAM, 0, 1, bytes(3)), "FRAME_SIZE_ERROR", "RST_STREAM of 3 bytes"),
        (frame(kinds.RST_STREAM, 0, 0, bytes(4)), "PROTOCOL_ERROR", "RST_STREAM on stream 0"),
        (frame(kinds.WINDOW_UPDATE, 0, 1, bytes(5)), "FRAME_SIZE_ERROR", "of 5 bytes, wanted 4"),
        (frame(kinds.PRIORITY, 0, 1, bytes(4)), "FRAME_SIZE_ERROR", "PRIORITY of 4 bytes"),
        (frame(kinds.PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR", "PRIORITY on stream 0"),
        (data(0, b"x"), "PROTOCOL_ERROR", "DATA on stream 0"),
        (headers(0, HEAD), "PROTOCOL_ERROR", "HEADERS on stream 0"),
        (frame(kinds.PUSH_PROMISE, 4, 1, bytes(4)), "PROTOCOL_ERROR", "push is off"),
    ],
)
def test_malformed_frame_ends_the_connection(core: Core, bad: bytes, code: str, text: str) -> None:
    core(None).expect_error(ErrorCode[code], text, bad)


@pytest.mark.parametrize(
    "pairs",
    [
        [(kinds.INITIAL_WINDOW_SIZE, 2**31)],
        [(kinds.MAX_FRAME_SIZE, 16_383)],
        [(kinds.MAX_FRAME_SIZE, 2**24)],
        [(kinds.ENABLE_PUSH, 2)],
        [(kinds.MAX_FRAME_SIZE, 20_000), (kinds.MAX_FRAME_SIZE, 0)],
    ],
)
def test_settings_out_of_range_end_the_connection(core: Core, pairs: list[tuple[int, int]]) -> None:
    is_window = pairs[0][0] == kinds.INITIAL_WINDOW_SIZE
    code = ErrorCode.FLOW_CONTROL_ERROR if is_window else ErrorCode.PROTOCOL_ERROR
    core(None).expect_error(code, ", wanted ", settings(*pairs))


def test_settings_that_overflow_a_stream_window_end_the_connection(core: Core) -> None:
    core(None).expect_error(
        ErrorCode.FLOW_CONTROL_ERROR,
        "SETTINGS_INITIAL_WINDOW_SIZE overflows the window of stream 1",
        window_update(1, 2**30),
        settings((kinds.INITIAL_WINDOW_SIZE, 2**30 + 2**20)),
    )


@pytest.mark.parametrize("payload", [b"", b"\x05abc", b"\x01", b"\xff" + bytes(254)])
def test_padding_longer_than_its_frame_ends_the_connection(core: Core, payload: bytes) -> None:
    bad = frame(kinds.DATA, PADDED, 1, payload)
    core(None).expect_error(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame", bad)


@pytest.mark.parametrize("payload", [b"", b"\x05abc", b"\x01"])
def test_padding_longer_than_its_frame_ends_the_connection_when_the_stream_was_reset(
    core: Core, payload: bytes
) -> None:
    peer = core(None)
    peer.send(window_update(1, 0))
    peer.expect_reset(1, ErrorCode.PROTOCOL_ERROR)
    bad = frame(kinds.DATA, PADDED, 1, payload)
    peer.expect_error(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame", bad)


@pytest.mark.parametrize("flags", [PADDED, PADDED | END_HEADERS, PADDED | WITH_PRIORITY])
def test_padding_longer_than_a_header_block_ends_the_connection(core: Core, flags: int) -> None:
    bad = frame(kinds.HEADERS, flags, 1, b"\x20" + block(OK_TRAILERS))
    core(None).expect_error(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame", bad)


# Peers that do not use HTTP/2


@pytest.mark.parametrize("piece_bytes", [1, 100])
def test_http_1_response_is_reported(piece_bytes: int) -> None:
    server = RawServer(handshake=False)
    server.read_output()
    reply = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n"
    pieces = (reply[at : at + piece_bytes] for at in range(0, len(reply), piece_bytes))
    text = "peer answered 'HTTP/1.1 .*': it speaks HTTP/1, wanted HTTP/2"
    break_in_pieces(server, ErrorCode.PROTOCOL_ERROR, text, pieces)


def test_error_text_has_the_status_line_of_an_http_1_response() -> None:
    server = RawServer(handshake=False)
    call = server.call(b"x")
    server.read_output()
    server.expect_error(
        ErrorCode.PROTOCOL_ERROR,
        "peer answered 'HTTP/1.1 400 Bad Request': it speaks HTTP/1, wanted HTTP/2",
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100_000),
    )
    call.expect_end(StatusCode.UNAVAILABLE, "it speaks HTTP/1")


@pytest.mark.parametrize(
    "garbage",
    [b"\x15\x03\x01\x00\x02\x02\x46more", b"SSH-2.0-OpenSSH_9.6\r\n", bytes(100), b"\xff" * 100],
)
def test_bytes_that_are_not_http2_from_a_server_end_the_connection(garbage: bytes) -> None:
    server = RawServer(handshake=False)
    server.opened()
    server.expect_error(ErrorCode.PROTOCOL_ERROR, "peer does not speak HTTP/2", garbage)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02", PREFACE[:-1] + b"x", b"x"]
)
def test_bytes_that_are_not_http2_from_a_client_end_the_connection(garbage: bytes) -> None:
    client = RawClient(handshake=False)
    client.read_output()
    client.expect_error(ErrorCode.PROTOCOL_ERROR, "peer does not speak HTTP/2", garbage)


@pytest.mark.parametrize("first", [ping(), settings_ack(), frame(kinds.SETTINGS, 0, 1), goaway(0)])
def test_first_frame_other_than_settings_ends_the_connection(first: bytes) -> None:
    server = RawServer(handshake=False)
    server.read_output()
    server.expect_error(ErrorCode.PROTOCOL_ERROR, "does not speak HTTP/2", first)
    client = RawClient(handshake=False)
    client.read_output()
    client.expect_error(ErrorCode.PROTOCOL_ERROR, "does not speak HTTP/2", PREFACE + first)


# Streams


@pytest.mark.parametrize("idle_id", [2, 5, 2**31 - 1])
@pytest.mark.parametrize("kind", [kinds.DATA, kinds.RST_STREAM, kinds.WINDOW_UPDATE])
def test_a_frame_on_an_idle_stream_ends_the_connection(core: Core, kind: int, idle_id: int) -> None:
    bad = frame(kind, 0, idle_id, pack(">I", 1))
    core(None).expect_error(
        ErrorCode.PROTOCOL_ERROR, f"on stream {idle_id}, which was never opened", bad
    )


@pytest.mark.parametrize("idle_id", [2, 5, 2**31 - 1])
def test_response_on_an_idle_stream_ends_the_connection(idle_id: int) -> None:
    client_core().expect_error(
        ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {idle_id}", headers(idle_id, HEAD)
    )


@pytest.mark.parametrize("bad_id", [2, 3, 4])
def test_a_request_on_a_stream_that_is_not_new_ends_the_connection(bad_id: int) -> None:
    client = server_core()
    client.request(5)
    client.expect_error(
        ErrorCode.PROTOCOL_ERROR,
        f"HEADERS on stream {bad_id}, wanted a new odd one",
        headers(bad_id, REQUEST),
    )


@pytest.mark.parametrize("half_closed", [False, True])
@pytest.mark.parametrize("late", [data(1, b"x"), data(1, b"", end=True), headers(1, OK_TRAILERS)])
def test_frame_after_the_end_of_a_response_ends_the_connection(
    late: bytes, half_closed: bool
) -> None:
    server = RawServer()
    call = server.call()
    if half_closed:
        call.stream.close_sending()
    server.send(answer(1))
    server.read_output()
    server.expect_error(ErrorCode.STREAM_CLOSED, "on stream 1, which is closed", late)


def test_data_on_a_stream_reset_by_the_peer_ends_the_connection(core: Core) -> None:
    core(None).expect_error(
        ErrorCode.STREAM_CLOSED,
        "DATA on stream 1, which is closed",
        rst_stream(1, ErrorCode.CANCEL),
        data(1, b"x"),
    )


def test_rapid_resets_end_the_connection_of_a_server() -> None:
    client = RawClient()
    pieces = (
        headers(stream_id, REQUEST) + rst_stream(stream_id, ErrorCode.CANCEL)
        for stream_id in range(1, 10**6, 2)
    )
    taken = break_in_pieces(
        client, ErrorCode.ENHANCE_YOUR_CALM, "flood of RST_STREAM frames", pieces
    )
    assert taken < FLOOD_FRAMES_MAX


def test_resets_of_closed_streams_end_the_connection_of_a_client() -> None:
    server = client_core()
    server.send(headers(1, OK_TRAILERS, end=True))
    pieces = iter([rst_stream(1, ErrorCode.CANCEL)] * 2 * FLOOD_FRAMES_MAX)
    break_in_pieces(server, ErrorCode.ENHANCE_YOUR_CALM, "flood of RST_STREAM frames", pieces)


# Windows


@pytest.mark.parametrize("role", ROLES)
def test_data_beyond_the_window_of_a_stream_ends_the_stream(role: str) -> None:
    peer = ROLES[role](Limits(stream_window_bytes=20_000, stream_window_bytes_max=20_000))
    peer.read_output()
    peer.send(data(1, prefixed(bytes(19_996))))
    (stream,) = peer.streams()
    stream.expect_end(StatusCode.INTERNAL, "more than the stream's window")
    peer.expect_reset(1, ErrorCode.FLOW_CONTROL_ERROR)


def test_data_beyond_the_window_of_the_connection_ends_the_connection(core: Core) -> None:
    peer = core(Limits(connection_window_bytes=65_535))
    peer.expect_error(
        ErrorCode.FLOW_CONTROL_ERROR,
        "DATA beyond the connection's window",
        data(1, prefixed(bytes(65_531))),
    )


def test_endless_data_on_a_reset_stream_ends_the_connection(core: Core) -> None:
    peer = core(Limits(stream_window_bytes=100_000))
    peer.core.streams[1].reset(ErrorCode.CANCEL, Status(StatusCode.CANCELLED))
    peer.read_output()
    each = data(1, bytes(10_000))
    taken = break_in_pieces(
        peer,
        ErrorCode.FLOW_CONTROL_ERROR,
        "DATA beyond the window of stream 1",
        iter(lambda: each, b""),
    )
    assert taken == 10, "DATA within the window is not accepted"


@pytest.mark.parametrize(
    ("increments", "code"),
    [
        ((0,), ErrorCode.PROTOCOL_ERROR),
        ((2**31 - 1,), ErrorCode.FLOW_CONTROL_ERROR),
        ((2**30, 2**30), ErrorCode.FLOW_CONTROL_ERROR),
    ],
)
def test_a_bad_window_update_of_a_stream_ends_the_stream(
    core: Core, increments: tuple[int, ...], code: ErrorCode
) -> None:
    peer = core(None)
    peer.read_output()
    peer.send(*[window_update(1, increment) for increment in increments])
    (stream,) = peer.streams()
    stream.expect_end(StatusCode.INTERNAL, "WINDOW_UPDATE")
    peer.expect_reset(1, code)


@pytest.mark.parametrize(
    ("increments", "code", "text"),
    [
        ((0,), ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0"),
        ((2**31 - 1,), ErrorCode.FLOW_CONTROL_ERROR, "overflows the window of the connection"),
        ((2**30, 2**30), ErrorCode.FLOW_CONTROL_ERROR, "overflows the window of the connection"),
    ],
)
def test_a_bad_window_update_of_the_connection_ends_it(
    core: Core, increments: tuple[int, ...], code: ErrorCode, text: str
) -> None:
    core(None).expect_error(code, text, *[window_update(0, each) for each in increments])


# Floods


def flood_of(name: str) -> bytes:
    return {
        "SETTINGS": settings((kinds.MAX_CONCURRENT_STREAMS, 5)),
        "SETTINGS ": settings_ack(),
        "PING": ping(),
        "PING ": ping(ack=True),
        "GOAWAY": goaway(2**31 - 1, 0, bytes(1000)),
        "PRIORITY": frame(kinds.PRIORITY, 0, 1, bytes(5)),
        "WINDOW_UPDATE": window_update(1, 1),
        "WINDOW_UPDATE ": window_update(0, 1),
        "empty DATA": data(1, b""),
        "empty DATA ": data(1, b"", padding=255),
        "unknown": frame(0x77, 0, 1, bytes(100)),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "SETTINGS",
        "SETTINGS ",
        "PING",
        "PING ",
        "GOAWAY",
        "PRIORITY",
        "WINDOW_UPDATE",
        "WINDOW_UPDATE ",
        "empty DATA",
        "empty DATA ",
        "unknown",
    ],
)
def test_a_flood_ends_the_connection(core: Core, name: str) -> None:
    peer = core(None)
    each = flood_of(name)
    # Enough for the recorders and the responses to a thousand frames.
    with at_most(500 * KB):
        taken = break_in_pieces(
            peer,
            ErrorCode.ENHANCE_YOUR_CALM,
            f"flood of {name.strip()} frames",
            iter(lambda: each, b""),
        )
    assert taken < FLOOD_FRAMES_MAX


def test_flood_in_one_read_ends_the_connection(core: Core) -> None:
    core(None).expect_error(
        ErrorCode.ENHANCE_YOUR_CALM, "flood of PING frames", ping() * 2 * FLOOD_FRAMES_MAX
    )


@pytest.mark.parametrize(("size", "count"), [(0, 9), (2000, 3), (20_000, 1)])
def test_flood_of_informational_responses_ends_the_call(size: int, count: int) -> None:
    server = RawServer(Limits(header_list_bytes_max=64 * KB))
    one, other = server.opened(2)

    def send(number: int) -> None:
        # All blocks differ, so that each has to be decoded.
        fields = [(":status", "103"), (f"x-{number}", "v" * size)]
        server.send(headers(1, block(fields, huffman=False)))

    for number in range(count - 1):
        send(number)
    one.expect_open()
    send(count)
    one.expect_end(StatusCode.INTERNAL, "too many informational answers")
    server.expect_reset(1, ErrorCode.ENHANCE_YOUR_CALM)
    other.expect_open()


def test_flood_of_informational_responses_on_many_calls_ends_the_connection() -> None:
    server = RawServer()
    server.opened(FLOOD_FRAMES_MAX)
    each = [headers(2 * at + 1, [(":status", "103")]) for at in range(FLOOD_FRAMES_MAX)]
    server.expect_error(
        ErrorCode.ENHANCE_YOUR_CALM,
        "flood of informational HEADERS frames",
        b"".join(each) * 8,
    )


def test_a_flood_of_late_headers_ends_the_connection() -> None:
    server = RawServer()
    (call,) = server.opened()
    call.stream.cancel()
    server.read_output()
    each = headers(1, HEAD)
    server.expect_error(
        ErrorCode.ENHANCE_YOUR_CALM, "flood of late HEADERS frames", each * 2 * FLOOD_FRAMES_MAX
    )


def test_a_flood_of_late_empty_data_ends_the_connection() -> None:
    server = RawServer()
    (call,) = server.opened()
    call.stream.cancel()
    server.read_output()
    server.expect_error(
        ErrorCode.ENHANCE_YOUR_CALM,
        "flood of late DATA frames",
        data(1, b"") * 2 * FLOOD_FRAMES_MAX,
    )


@pytest.mark.parametrize(
    ("limits", "fields", "what"),
    [
        (Limits(concurrent_streams_max=0), REQUEST, "HEADERS over the stream limit"),
        (Limits(), [(":method", "GET")], "HEADERS without a call"),
        (Limits(header_list_bytes_max=10), REQUEST, "HEADERS without a call"),
    ],
)
def test_flood_of_refused_requests_ends_the_connection(
    limits: Limits, fields: list[tuple[str, str]], what: str
) -> None:
    client = RawClient(limits)
    encoded = block(fields)
    pieces = (headers(stream_id, encoded, end=True) for stream_id in range(1, 10**6, 2))
    with at_most(MB):
        break_in_pieces(client, ErrorCode.ENHANCE_YOUR_CALM, f"flood of {what} frames", pieces)


# Header blocks


@pytest.mark.parametrize("size", [0, 1, 100])
def test_flood_of_continuation_frames_ends_the_connection(core: Core, size: int) -> None:
    peer = core(None)
    peer.send(frame(kinds.HEADERS, END_STREAM, 1, b"\x20"))
    each = frame(kinds.CONTINUATION, 0, 1, bytes(size))
    with at_most(100 * KB):
        taken = break_in_pieces(
            peer, ErrorCode.ENHANCE_YOUR_CALM, "header block of", iter(lambda: each, b"")
        )
    assert taken <= 32


@pytest.mark.parametrize("size", [17 * KB, 70 * KB, 300 * KB])
@pytest.mark.parametrize("is_last", [False, True])
def test_continued_block_above_the_limit_ends_its_stream(size: int, is_last: bool) -> None:
    server = RawServer()
    one, other = server.opened(2)
    fields = [*HEAD, *(("k", "v" * KB) for _ in range(size // KB))]
    encoded = block(fields, huffman=False)
    first = END_STREAM if is_last else 0
    cuts = range(16 * KB, len(encoded), 16 * KB)
    pieces = [encoded[at : at + 16 * KB] for at in cuts]
    server.send(frame(kinds.HEADERS, first, 1, encoded[: 16 * KB]))
    with at_most(200 * KB):
        for at, piece in enumerate(pieces, 1):
            flags = END_HEADERS if at == len(pieces) else 0
            server.send(frame(kinds.CONTINUATION, flags, 1, piece))
    # The same status as for this block in one frame, and the same text as grpcio.
    one.expect_end(StatusCode.RESOURCE_EXHAUSTED, "received metadata larger than max (16384 bytes)")
    server.expect_reset(1, ErrorCode.CANCEL)
    server.send(answer(3, b"fine"))
    other.expect_messages(b"fine")


def test_continued_request_above_the_limit_is_answered_431() -> None:
    client = RawClient()
    client.send(frame(kinds.HEADERS, END_STREAM, 1, bytes(60 * KB)))
    client.send(frame(kinds.CONTINUATION, END_HEADERS, 1, bytes(60 * KB)))
    (answered,) = client.read_output().of(kinds.HEADERS, 1)
    assert decode_block(answered.payload) == [(":status", "431")]
    assert client.request(3).stream.id == 3


def test_continued_request_above_the_limit_ends_the_connection_without_settings_ack() -> None:
    client = RawClient(handshake=False)
    client.send(PREFACE, settings())
    client.read_output()
    client.expect_error(
        ErrorCode.ENHANCE_YOUR_CALM,
        "header block larger than the limit",
        frame(kinds.HEADERS, END_STREAM, 1, bytes(60 * KB)),
        frame(kinds.CONTINUATION, END_HEADERS, 1, bytes(60 * KB)),
    )


def test_continued_block_above_1_mib_ends_the_connection(core: Core) -> None:
    peer = core(None)
    peer.send(frame(kinds.HEADERS, END_STREAM, 1, bytes(60 * KB)))
    each = frame(kinds.CONTINUATION, 0, 1, bytes(60 * KB))
    with at_most(200 * KB):
        taken = break_in_pieces(
            peer, ErrorCode.ENHANCE_YOUR_CALM, "wanted at most 1048576", iter(lambda: each, b"")
        )
    assert taken == MB // (60 * KB) - 1


@pytest.mark.parametrize(
    "between",
    [
        data(1, b"x"),
        headers(1, OK_TRAILERS),
        ping(),
        settings(),
        window_update(1, 1),
        rst_stream(1, 8),
        frame(0x77),
        frame(kinds.CONTINUATION, END_HEADERS, 3),
        frame(kinds.CONTINUATION, END_HEADERS, 0),
    ],
)
def test_other_frame_inside_a_header_block_ends_the_connection(core: Core, between: bytes) -> None:
    core(None).expect_error(
        ErrorCode.PROTOCOL_ERROR,
        "in the middle of a header block, wanted CONTINUATION",
        frame(kinds.HEADERS, END_STREAM, 1, b"\x20"),
        between,
    )


def test_continuation_without_a_header_block_ends_the_connection(core: Core) -> None:
    core(None).expect_error(
        ErrorCode.PROTOCOL_ERROR,
        "CONTINUATION without a header block",
        frame(kinds.CONTINUATION, END_HEADERS, 1, block(OK_TRAILERS)),
    )


def test_headers_too_short_for_their_priority_end_the_connection(core: Core) -> None:
    core(None).expect_error(
        ErrorCode.FRAME_SIZE_ERROR,
        "too short for priority",
        frame(kinds.HEADERS, END_HEADERS | WITH_PRIORITY, 1, bytes(4)),
    )


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"\xbe", id="dynamic index"),
        pytest.param(b"\x80", id="index 0"),
        pytest.param(b"\x00\x05name", id="truncated"),
        pytest.param(b"\xff" + b"\xff" * 1000, id="endless integer"),
        pytest.param(b"\x00\x7f" + b"\x80" * 1000 + b"\x01", id="endless zeros"),
        pytest.param(b"\x04\x82\xff\xff", id="Huffman padding"),
        pytest.param(b"\x04\x84\xff\xff\xff\xff", id="Huffman EOS"),
        pytest.param(b"\x82\x20", id="late table size"),
        pytest.param(b"\x3f\xe1\x1f", id="table too large"),
    ],
)
@pytest.mark.parametrize("end", [False, True])
def test_bad_hpack_ends_the_connection(core: Core, bad: bytes, end: bool) -> None:
    peer = core(None)
    with at_most(100 * KB):
        peer.expect_error(
            ErrorCode.COMPRESSION_ERROR, "header block is not HPACK", headers(1, bad, end=end)
        )


BOMBS = [
    pytest.param(block([("k", "v" * 200_000)], huffman=False), id="one value"),
    pytest.param(block([("k" * 200_000, "")], huffman=False), id="one name"),
    pytest.param(b"\x90" * 200_000, id="static fields"),
    pytest.param(b"\x00\x01k\x00" * 50_000, id="empty values"),
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_header_bomb_ends_only_its_call(bomb: bytes) -> None:
    server = RawServer()
    one, other = server.opened(2)
    bomb_frame = headers(1, bomb)
    with at_most(MB):
        server.send(bomb_frame)
    one.expect_end(StatusCode.RESOURCE_EXHAUSTED, "metadata larger than max (16384 bytes)")
    server.expect_reset(1, ErrorCode.CANCEL)
    server.send(answer(3))
    other.expect_end()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_header_bomb_at_a_server_is_answered_431(bomb: bytes) -> None:
    client = RawClient()
    bomb_frame = headers(1, bomb)
    with at_most(MB):
        client.send(bomb_frame)
    (refusal,) = client.read_output().of(kinds.HEADERS, 1)
    assert b"431" in refusal.payload
    client.request(3).expect_open()


def test_bomb_in_the_dynamic_table_ends_the_connection_of_a_server() -> None:
    """A client may use the dynamic table until it has our settings; memory stays bounded."""
    client = RawClient(handshake=False)
    client.send(PREFACE, settings())
    client.read_output()
    encoder = Encoder()
    bomb = encoder.encode([("k", "v" * 3000)]) + encoder.encode([("k", "v" * 3000)]) * 50_000
    with at_most(MB):
        client.expect_error(
            ErrorCode.ENHANCE_YOUR_CALM, "header list larger than 16384", headers(1, bomb)
        )


@pytest.mark.parametrize("fields", [28, 100])
def test_unique_header_blocks_use_bounded_memory(fields: int) -> None:
    server = RawServer()
    rest = b"\x90" * fields
    with at_most(5 * MB):
        for n in range(520):
            stream_id = 2 * n + 1
            server.call(b"x")
            unique = b"\x20\x88\x5f\x10application/grpc\x00\x01k\x08%08d" % n + rest
            server.send(headers(stream_id, unique), headers(stream_id, OK_TRAILERS, end=True))
            server.read_output()
            server.calls.clear()


# Messages


def test_decompression_bomb_ends_the_call_before_it_is_decompressed() -> None:
    server = RawServer()
    (call,) = server.opened()
    bomb = prefixed(compress("gzip", bytes(40 * MB)), compressed=1)
    server.send(headers(1, [*HEAD, ("grpc-encoding", "gzip")]))
    with at_most(9 * MB):
        for at in range(0, len(bomb), 16 * KB):
            server.send(data(1, bomb[at : at + 16 * KB]))
    call.expect_end(StatusCode.RESOURCE_EXHAUSTED, "(4194305 vs. 4194304)")
    server.expect_reset(1, ErrorCode.CANCEL)


def test_small_decompression_bombs_are_decompressed_as_they_are_read() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, [*HEAD, ("grpc-encoding", "gzip")]))
    bomb = prefixed(compress("gzip", bytes(4 * MB)), compressed=1)
    unread: list[int] = []

    def receive(message: bytes) -> None:
        # Like a front, but without keeping the messages.
        unread.append(len(message))
        call.events.clear()
        if sum(unread) > BUFFERED_BYTES_MAX:
            call.stream.hold()

    call.hooks["message"] = receive
    count = MB // len(bomb)
    with at_most(12 * MB):
        for _ in range(count):
            server.send(data(1, bomb))
        server.send(headers(1, OK_TRAILERS, end=True))
        assert len(unread) == 1
        for _ in range(count):
            assert unread == [4 * MB]
            unread.clear()
            call.stream.release()
    call.expect_end()


def test_message_in_tiny_frames_uses_memory_of_about_its_size(core: Core) -> None:
    peer = core(None)
    peer.send(data(1, prefixed(bytes(10**6))[:5]))
    pieces = [data(1, b"%03d" % (n % 1000)) for n in range(20_000)]
    with at_most(300 * KB):
        for piece in pieces:
            peer.send(piece)


def test_messages_are_dropped_when_the_stream_was_reset_with_a_blocked_response() -> None:
    client = RawClient(Limits(message_bytes_max=100))
    handler = client.request(1)
    handler.stream.send_message(bytes(200_000))
    client.read_output()
    client.send(data(1, prefixed(bytes(101))[:5]))
    handler.expect_end(StatusCode.RESOURCE_EXHAUSTED)
    client.expect_reset(1, ErrorCode.CANCEL)
    with at_most(500 * KB):
        client.send(*[data(1, bytes(10_000))] * 10)


# Busy peers that are not hostile


def test_a_server_may_send_a_ping_and_two_window_updates_per_request() -> None:
    server = RawServer()
    extra = ping() + window_update(0, 12)
    head, last = block(HEAD), block(OK_TRAILERS)
    for n in range(100_000):
        stream_id = 2 * n + 1
        call = server.call(b"request")
        server.core.receive(
            extra
            + window_update(stream_id, 12)
            + headers(stream_id, head)
            + data(stream_id, b"\0\0\0\0\0")
            + headers(stream_id, last, end=True)
        )
        assert call.end is not None
        server.calls.clear()
        server.core.outbound.take_output()


@pytest.mark.parametrize("role", ROLES)
def test_keepalive_pings_for_a_day_are_not_a_flood(role: str) -> None:
    peer: RawServer | RawClient = client_core() if role == "client" else server_core()
    for _ in range(24 * 3600 // 10):
        peer.clock.advance(10)
        peer.send(ping())
        assert len(peer.read_output().of(kinds.PING)) == 1


def test_a_large_upload_may_be_acknowledged_frame_by_frame() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(bytes(4 * MB))
    for _ in range(4 * MB // 1000):
        server.send(window_update(0, 1000), window_update(1, 1000))
    assert len(server.read_output().payload(1)) == 4 * MB + 5


def test_many_calls_may_be_cancelled_while_their_responses_arrive() -> None:
    server = RawServer()
    calls = server.opened(900)
    for call in calls:
        call.stream.cancel()
    for n in range(900):
        server.send(answer(2 * n + 1, b"late", b"later"))
    assert not server.core.is_closed


def test_a_stream_of_messages_may_be_acknowledged_one_by_one() -> None:
    client = RawClient()
    handler = client.request(1, end=True)
    for _ in range(5000):
        handler.stream.send_message(b"tick")
        client.send(window_update(0, 9), window_update(1, 9), ping())
    assert not client.core.is_closed
