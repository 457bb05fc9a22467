"""Unit tests of proxyless.wire.connection. Connection errors are in tests/hostile."""

from collections.abc import Callable
from itertools import pairwise
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import OK, Status, StatusCode
from proxyless.wire import ErrorCode, Limits, RemoteProtocolError
from proxyless.wire import frames as kinds
from tests.worlds.wire import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEAD,
    OK_TRAILERS,
    PADDED,
    PREFACE,
    REQUEST,
    RESERVED_BIT,
    WITH_PRIORITY,
    CallRecorder,
    OwnerRecorder,
    RawClient,
    RawServer,
    WireWorld,
    answer,
    block,
    data,
    frame,
    goaway,
    headers,
    ping,
    prefixed,
    read_frames,
    rst_stream,
    settings,
    settings_ack,
    window_update,
)

# Preface


def test_a_client_begins_with_preface_settings_and_window() -> None:
    server = RawServer(Limits(connection_window_bytes=100_000), handshake=False)
    output = server.core.outbound.take_output()
    assert output.startswith(PREFACE)
    first, second = read_frames(output.removeprefix(PREFACE))
    assert dict(kinds.decode_settings(first.payload)) == {
        kinds.HEADER_TABLE_SIZE: 0,
        kinds.ENABLE_PUSH: 0,
        kinds.INITIAL_WINDOW_SIZE: 1024 * 1024,
        kinds.MAX_FRAME_SIZE: 256 * 1024,
        kinds.MAX_HEADER_LIST_SIZE: 16 * 1024,
    }
    assert second.kind == kinds.WINDOW_UPDATE
    assert second.payload == pack(">I", 100_000 - 65_535)


def test_a_server_begins_with_settings_and_window() -> None:
    client = RawClient(Limits(concurrent_streams_max=7), handshake=False)
    first, second = client.read_output().frames
    assert dict(kinds.decode_settings(first.payload))[kinds.MAX_CONCURRENT_STREAMS] == 7
    assert (first.kind, second.kind) == (kinds.SETTINGS, kinds.WINDOW_UPDATE)


def test_a_connection_window_of_the_default_size_is_not_announced() -> None:
    server = RawServer(Limits(connection_window_bytes=65_535), handshake=False)
    assert server.read_output().updates() == []


@pytest.mark.parametrize("cut", range(15))
def test_settings_of_a_server_may_come_in_pieces(cut: int) -> None:
    server = RawServer(handshake=False)
    first_bytes = settings((kinds.MAX_CONCURRENT_STREAMS, 5))
    server.send(first_bytes[:cut])
    assert server.owner.count("settings") == 0
    server.send(first_bytes[cut:])
    assert server.owner.count("settings") == 1
    assert server.core.peer.concurrent_streams_max == 5


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5, 9, 24, 25, 33])
def test_preface_of_a_client_may_come_in_pieces(piece_bytes: int) -> None:
    client = RawClient(handshake=False)
    first_bytes = PREFACE + settings((kinds.INITIAL_WINDOW_SIZE, 5)) + settings_ack()
    for at in range(0, len(first_bytes), piece_bytes):
        client.send(first_bytes[at : at + piece_bytes])
    assert client.owner.count("settings") == 1
    assert client.core.peer.initial_window_bytes == 5


# Settings and pings


def test_settings_are_acknowledged_and_an_acknowledgement_is_not() -> None:
    server = RawServer()
    server.send(settings((kinds.MAX_FRAME_SIZE, 20_000)), settings_ack())
    (sent,) = server.read_output().frames
    assert (sent.kind, sent.flags, sent.payload) == (kinds.SETTINGS, ACK, b"")


def test_a_ping_is_answered_with_its_payload() -> None:
    server = RawServer()
    server.send(ping(b"8 octets"))
    (sent,) = server.read_output().frames
    assert (sent.kind, sent.flags, sent.payload) == (kinds.PING, ACK, b"8 octets")


def test_on_ping_ack_is_called_with_the_payload_of_our_ping() -> None:
    server = RawServer()
    server.core.ping(b"keepaliv")
    (sent,) = server.read_output().frames
    assert (sent.kind, sent.flags, sent.payload) == (kinds.PING, 0, b"keepaliv")
    server.send(ping(b"keepaliv", ack=True))
    assert server.owner.values("ping_ack") == [b"keepaliv"]
    server.expect_no_output()


# Forms of frames


def test_the_reserved_bit_is_ignored() -> None:
    server = RawServer()
    (call,) = server.opened()
    bit = RESERVED_BIT
    server.send(
        frame(kinds.SETTINGS, 0, bit),
        frame(kinds.HEADERS, END_HEADERS, 1 | bit, block(HEAD)),
        data(1 | bit, prefixed(b"a")),
        frame(kinds.WINDOW_UPDATE, 0, 1 | bit, pack(">I", 5 | bit)),
        frame(kinds.HEADERS, 0, 1 | bit, block(OK_TRAILERS)[:1]),
        frame(kinds.CONTINUATION, END_HEADERS, 1, block(OK_TRAILERS)[1:]),
    )
    call.expect_messages(b"a")
    assert server.core._recv_window == server.core.limits.connection_window_bytes - 6


def test_the_reserved_bit_is_ignored_by_servers() -> None:
    client = RawClient()
    client.send(headers(1 | RESERVED_BIT, REQUEST), data(1 | RESERVED_BIT, prefixed(b"a")))
    client.owner.handlers[0].expect_messages(b"a")
    client.send(rst_stream(1 | RESERVED_BIT, 8))
    client.owner.handlers[0].expect_end(StatusCode.CANCELLED)


def test_padding_and_priority_are_not_part_of_a_header_block() -> None:
    server = RawServer()
    (call,) = server.opened()
    padded = b"\x03" + pack(">IB", 0, 15) + block(HEAD) + bytes(3)
    server.send(frame(kinds.HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, padded))
    server.send(frame(kinds.PRIORITY, 0, 1, pack(">IB", 0, 15)))
    assert call.head.refusal is None


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_a_header_block_may_be_continued(cut: int) -> None:
    server = RawServer()
    (call,) = server.opened()
    encoded = block(HEAD)
    server.send(
        frame(kinds.HEADERS, PADDED, 1, b"\x02" + encoded[:cut] + bytes(2)),
        frame(kinds.CONTINUATION, 0, 1, encoded[cut : cut + 1]),
        frame(kinds.CONTINUATION, 0, 1),
        frame(kinds.CONTINUATION, END_HEADERS, 1, encoded[cut + 1 :]),
    )
    assert call.head.refusal is None


def test_continued_trailers_end_the_stream() -> None:
    server = RawServer()
    (call,) = server.opened()
    encoded = block(OK_TRAILERS)
    server.send(
        headers(1, HEAD),
        frame(kinds.HEADERS, END_STREAM, 1, encoded[:3]),
        frame(kinds.CONTINUATION, END_HEADERS, 1, encoded[3:]),
    )
    call.expect_end()


@pytest.mark.parametrize("kind", [0xA, 0xC, 0x10, 0xFF])
def test_frames_of_unknown_types_are_ignored(kind: int) -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(frame(kind, 0xFF, 1, b"anything"), frame(kind, 0, 0), answer(1, b"a"))
    call.expect_end()
    server.expect_no_output()


TRANSCRIPT = b"".join(
    (
        settings((kinds.MAX_CONCURRENT_STREAMS, 10), (kinds.INITIAL_WINDOW_SIZE, 70_000)),
        settings_ack(),
        headers(1, [(":status", "103")]),
        headers(1, HEAD),
        data(1, prefixed(b"first") + prefixed(b"second")[:3]),
        ping(b"12345678"),
        data(1, prefixed(b"second")[3:], padding=4),
        frame(0x42, 1, 2, b"unknown"),
        headers(3, [*HEAD, ("k-bin", "AP8,YQ")]),
        window_update(0, 1000),
        headers(1, OK_TRAILERS, end=True),
        frame(kinds.HEADERS, END_STREAM, 3, block(OK_TRAILERS)[:2]),
        frame(kinds.CONTINUATION, END_HEADERS, 3, block(OK_TRAILERS)[2:]),
        rst_stream(5, 7),
        headers(7, [(":status", "503")], end=True),
        goaway(7, 0, b"bye"),
    )
)


def replay(pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """All that a client with five calls reports, and all that it sends."""
    server = RawServer(handshake=False)
    calls = [server.call(b"request") for _ in range(5)]
    server.read_output()
    for piece in pieces:
        server.send(piece)
    server.owner.events = [event for event in server.owner.events if event[0] != "output"]
    return [call.events for call in calls] + server.owner.events, _output(server)


def _output(server: RawServer) -> bytes:
    return server.core.outbound.take_output()


def test_bytes_one_by_one_mean_the_same_as_all_at_once() -> None:
    whole = replay([TRANSCRIPT])
    assert replay([bytes((byte,)) for byte in TRANSCRIPT]) == whole
    # The transcript is not trivial.
    kinds_seen = {kind for call in whole[0][:5] for kind, _ in call}
    assert kinds_seen == {"head", "message", "end"}


def test_a_cut_at_any_place_means_the_same() -> None:
    whole = replay([TRANSCRIPT])
    for cut in range(len(TRANSCRIPT)):
        assert replay([TRANSCRIPT[:cut], TRANSCRIPT[cut:]]) == whole


@given(st.lists(st.integers(0, len(TRANSCRIPT)), max_size=10))
def test_any_cuts_mean_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TRANSCRIPT)]
    pieces = [TRANSCRIPT[a:b] for a, b in pairwise(edges)]
    assert replay(pieces) == replay([TRANSCRIPT])


# Windows


def test_the_connection_window_is_given_back_by_halves() -> None:
    server = RawServer(Limits(connection_window_bytes=100_000))
    server.opened()
    server.send(headers(1, HEAD))
    server.send(*[data(1, prefixed(bytes(9_995)))] * 5)
    assert server.read_output().updates() == []
    server.send(data(1, prefixed(b"")))
    assert server.read_output().updates() == [(0, 50_005)]


def test_data_on_a_cancelled_stream_counts_for_the_connection() -> None:
    server = RawServer(Limits(connection_window_bytes=65_535))
    (call,) = server.opened()
    call.stream.cancel()
    server.read_output()
    server.send(headers(1, HEAD), *[data(1, prefixed(bytes(9_995)))] * 4)
    assert server.read_output().updates() == [(0, 40_000)]
    assert call.messages == []


def test_a_large_download_may_be_cancelled() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, HEAD), data(1, prefixed(b"first")))
    call.stream.cancel()
    # The peer has used the whole window of the stream, with small messages.
    left = server.core.limits.stream_window_bytes - 10
    server.send(*[data(1, prefixed(bytes(95)))] * (left // 100))
    assert not server.core.is_closed


def test_a_window_update_on_an_ended_stream_is_ignored() -> None:
    server = RawServer()
    server.opened()
    server.send(answer(1), window_update(1, 100), window_update(1, 0), rst_stream(1, 8))
    server.expect_no_output()


# Ends


def test_closing_sends_goaway_and_ends_every_stream_once() -> None:
    server = RawServer()
    calls = server.opened(3)
    server.core.close()
    assert server.read_output().goaways() == [(0, ErrorCode.NO_ERROR, b"closed by us")]
    for call in calls:
        call.expect_end(StatusCode.UNAVAILABLE, "connection closed: closed by us")
    server.core.close()
    server.core.lose(OK)
    server.core.ping(b"12345678")
    server.send(answer(1))
    server.expect_no_output()
    assert server.owner.count("drained") == 0


def test_a_lost_connection_ends_every_stream_with_its_status() -> None:
    server = RawServer()
    calls = server.opened(2)
    server.core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    for call in calls:
        call.expect_end(StatusCode.UNAVAILABLE, "gone")
    server.expect_no_output()


def test_goaway_of_a_server_names_its_last_stream() -> None:
    client = RawClient()
    client.request(1)
    client.request(5)
    client.core.close()
    assert [last for last, _, _ in client.read_output().goaways()] == [5]


def test_a_long_text_is_truncated_for_goaway() -> None:
    server = RawServer()
    server.core.close(ErrorCode.INTERNAL_ERROR, "x" * 10_000)
    ((_, code, text),) = server.read_output().goaways()
    assert (code, len(text)) == (ErrorCode.INTERNAL_ERROR, 256)


def test_on_broken_is_called_before_the_calls_end() -> None:
    server = RawServer()
    (call,) = server.opened()
    seen: list[object] = []

    def record_state(code: object) -> None:
        seen.append((code, call.end, server.core.is_usable))

    server.owner.hooks["broken"] = record_state
    server.expect_error(ErrorCode.PROTOCOL_ERROR, "PRIORITY", frame(kinds.PRIORITY, 0, 0, bytes(5)))
    assert seen == [(ErrorCode.PROTOCOL_ERROR, None, False)]
    call.expect_end(StatusCode.UNAVAILABLE, "peer broke HTTP/2: PRIORITY on stream 0")


# Listeners that call the connection


def cancel(*calls: CallRecorder) -> None:
    for call in calls:
        call.stream.cancel()


Act = Callable[[RawServer], object]
ACTS: dict[str, Act] = {
    "close": lambda server: server.core.close(),
    "lose": lambda server: server.core.lose(OK),
    "open": lambda server: server.call(b"from a callback") if len(server.calls) < 20 else None,
    "cancel all": lambda server: cancel(*server.calls),
    "cancel last": lambda server: cancel(server.calls[-1]),
    "drain": lambda server: server.core.drain(),
    "ping": lambda server: server.core.ping(b"12345678"),
}
CALLBACKS = ["head", "message", "end", "writable", "settings", "ping_ack", "goaway", "drained"]

ALL_CALLBACKS = b"".join(
    (
        headers(1, HEAD),
        data(1, prefixed(b"a") + prefixed(b"b")),
        ping(b"keepaliv", ack=True),
        settings((kinds.MAX_CONCURRENT_STREAMS, 3)),
        window_update(5, 100_000),
        window_update(0, 100_000),
        headers(1, OK_TRAILERS, end=True),
        headers(3, HEAD),
        rst_stream(3, 8),
        goaway(5),
        headers(5, [("grpc-status", "1")], end=True),
        ping(),
    )
)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_listener_may_call_the_connection_in_any_callback(callback: str, act: str) -> None:
    server = RawServer(announce=((kinds.MAX_CONCURRENT_STREAMS, 4),))
    server.opened(2)
    server.call().stream.send_message(bytes(100_000))
    for _ in range(4):
        server.call(b"waits")
    hit: list[str] = []

    def run(_: object) -> None:
        hit.append(callback)
        ACTS[act](server)

    owner: OwnerRecorder = server.owner
    owner.hooks[callback] = run
    for call in server.calls[:]:
        call.hooks[callback] = run
    try:
        server.send(ALL_CALLBACKS)
    except RemoteProtocolError as error:
        # A call that the callback opens may get the id of a stream in these frames.
        assert error.code is ErrorCode.PROTOCOL_ERROR  # noqa: PT017
    server.core.lose(OK)
    assert hit, "the frames lead to this callback"
    assert all(call.count("end") == 1 for call in server.calls)
    assert not server.core.streams
    assert server.core.calls == 0


@pytest.mark.parametrize("callback", CALLBACKS)
def test_nothing_is_reported_after_a_listener_closed_the_connection(callback: str) -> None:
    server = RawServer(announce=((kinds.MAX_CONCURRENT_STREAMS, 4),))
    server.opened(2)
    server.call().stream.send_message(bytes(100_000))
    closed: list[int] = []

    def close(_: object) -> None:
        if not closed:
            server.core.close()
            closed.append(len(server.owner.events))

    server.owner.hooks[callback] = close
    for call in server.calls:
        call.hooks[callback] = close
    server.read_output()
    server.send(ALL_CALLBACKS)
    assert server.owner.events[closed[0] :] == []
    sent = server.read_output()
    assert len(sent.goaways()) == 1
    assert sent.frames[-1].kind == kinds.GOAWAY


def test_two_cores_agree_when_both_close_at_once() -> None:
    world = WireWorld()
    world.run()
    call = world.call(b"x")
    world.run()
    world.core.close()
    world.server.close()
    world.run()
    call.expect_end(StatusCode.UNAVAILABLE)
    world.handler.expect_end(StatusCode.UNAVAILABLE)
