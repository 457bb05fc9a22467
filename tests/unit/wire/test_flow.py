"""Unit tests of proxyless.wire.flow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.wire import ErrorCode, Limits, RequestEncoder
from proxyless.wire import frames as kinds
from proxyless.wire.flow import (
    ROUND_TRIP_PING,
    Outbound,
    RoundTripMeter,
    SendQueue,
    choose_window_target,
)
from proxyless.wire.turns import Turns
from tests.worlds.wire import (
    END_STREAM,
    HEAD,
    RawServer,
    SentFrames,
    WireWorld,
    data,
    headers,
    ping,
    prefixed,
    settings,
    window_update,
)

KB = 1024
DEFAULT_WINDOW = 65_535


# Receive windows


@pytest.mark.parametrize(
    ("updated_at", "now", "target"),
    [(-1, 0, 100), (0, 0, 200), (0, 1, 100), (3, 3, 200), (3, 9, 100)],
)
def test_a_window_doubles_when_half_of_it_came_within_a_round_trip(
    updated_at: int, now: int, target: int
) -> None:
    chosen = choose_window_target(100, 1000, updated_at_trip=updated_at, trips_now=now)
    assert chosen == target


def test_a_window_does_not_grow_beyond_its_maximum() -> None:
    assert choose_window_target(800, 1000, updated_at_trip=0, trips_now=0) == 1000
    assert choose_window_target(1000, 1000, updated_at_trip=0, trips_now=0) == 1000


def test_an_acknowledged_ping_is_a_round_trip() -> None:
    meter = RoundTripMeter()
    meter.is_measuring = True
    meter.on_ack()
    assert (meter.count, meter.is_measuring) == (1, False)


SMALL = Limits(
    stream_window_bytes=64 * KB,
    stream_window_bytes_max=256 * KB,
    connection_window_bytes=1024 * KB,
)


def receiving(limits: Limits = SMALL) -> RawServer:
    """A client that has received the beginning of a very large message."""
    server = RawServer(limits)
    server.opened()
    server.send(headers(1, HEAD), data(1, b"\0\0\x40\0\0"))
    server.read_output()
    return server


def receive_half(server: RawServer, half: int) -> SentFrames:
    """Send half of the window and one byte more."""
    for size in (half - 16 * KB, 16 * KB - 5, 6):
        for at in range(0, size, 16 * KB):
            server.send(data(1, bytes(min(16 * KB, size - at))))
    return server.read_output()


def test_half_a_window_is_given_back_with_a_ping() -> None:
    sent = receive_half(receiving(), 32 * KB)
    assert sent.updates() == [(1, 32 * KB + 6)]
    assert [frame.payload for frame in sent.of(kinds.PING)] == [ROUND_TRIP_PING]


def test_the_window_stays_while_round_trips_are_shorter() -> None:
    server = receiving()
    for _ in range(5):
        sent = receive_half(server, 32 * KB)
        (update,) = sent.updates()
        assert update[1] <= 33 * KB
        server.send(ping(ROUND_TRIP_PING, ack=True))


def test_the_window_grows_while_the_ping_is_under_way() -> None:
    server = receiving()
    (first,) = receive_half(server, 32 * KB).updates()
    sent = receive_half(server, 32 * KB)
    assert sent.updates() == [(1, 128 * KB - 64 * KB + 32 * KB + 1)]
    assert not sent.of(kinds.PING), "one is pending"
    assert first[1] < 64 * KB


def test_no_ping_is_sent_once_the_window_is_at_its_maximum() -> None:
    server = receiving()
    stream = server.calls[0].stream
    pings = 0
    for _ in range(40):
        server.send(data(1, bytes(16 * KB)))
        pings += len(server.read_output().of(kinds.PING))
    assert stream.recv_target == 256 * KB
    assert pings == 1
    server.send(ping(ROUND_TRIP_PING, ack=True))
    for _ in range(40):
        server.send(data(1, bytes(16 * KB)))
        assert not server.read_output().of(kinds.PING)


def test_one_ping_serves_all_streams() -> None:
    server = RawServer(SMALL)
    server.opened(3)
    for stream_id in (1, 3, 5):
        server.send(headers(stream_id, HEAD), data(stream_id, b"\0\0\x40\0\0"))
        server.send(*[data(stream_id, bytes(16 * KB))] * 3)
    sent = server.read_output()
    assert [stream_id for stream_id, _ in sent.updates()] == [1, 3, 5]
    assert len(sent.of(kinds.PING)) == 1


def test_an_unexpected_round_trip_ping_ack_is_reported_to_the_owner() -> None:
    server = RawServer()
    server.send(ping(ROUND_TRIP_PING, ack=True))
    assert server.owner.values("ping_ack") == [ROUND_TRIP_PING]


# The queue


@given(st.lists(st.binary(max_size=30), max_size=10), st.lists(st.integers(0, 40), max_size=20))
def test_a_queue_gives_back_its_bytes_in_order(chunks: list[bytes], sizes: list[int]) -> None:
    queue = SendQueue()
    for chunk in chunks:
        queue.push(chunk)
    whole = b"".join(chunks)
    taken = b""
    for size in sizes:
        piece = b"".join(queue.take(size))
        assert len(piece) == min(size, len(whole) - len(taken))
        taken += piece
        assert queue.size == len(whole) - len(taken)
    assert taken == whole[: len(taken)]


def test_a_queue_does_not_copy() -> None:
    queue = SendQueue()
    chunk = bytes(100)
    queue.push(chunk)
    for _ in range(2):
        (view,) = queue.take(30)
        assert view.obj is chunk


# Output


def outbound() -> tuple[Outbound, list[str]]:
    calls: list[str] = []
    return Outbound(lambda: calls.append("output"), Turns()), calls


def test_output_is_announced_once_until_it_is_taken() -> None:
    out, calls = outbound()
    out.emit(b"a")
    out.emit(b"b")
    out.send_data(1, b"c")
    assert calls == ["output"]
    assert out.take_output() == b"abc"
    assert out.take_output() == b""
    out.send_data(1, b"d")
    assert calls == ["output", "output"]


def test_an_owner_may_take_output_as_soon_as_it_is_announced() -> None:
    taken: list[bytes] = []
    out = Outbound(lambda: taken.append(out.take_output()), Turns())
    out.emit(b"a")
    out.send_data(1, b"b")
    assert taken == [b"a", b"b"]
    assert out.take_output() == b""


def test_sendable_bytes_is_the_minimum_of_window_and_frame_size() -> None:
    out, _ = outbound()
    assert out.sendable_bytes == 16_384
    out.set_frame_bytes_max(100_000)
    assert out.sendable_bytes == DEFAULT_WINDOW
    out.send_data(DEFAULT_WINDOW - 10, b"frame")
    assert out.sendable_bytes == 10
    out.pause()
    assert out.sendable_bytes == 0
    out.add_window(90)
    assert out.sendable_bytes == 0
    out.resume()
    assert out.sendable_bytes == 100


def test_data_frames_are_counted() -> None:
    out, _ = outbound()
    out.emit(b"not DATA")
    out.send_data(1, b"DATA")
    out.send_data(1, b"DATA")
    assert out.data_frames == 2


# Send windows


def streaming(server: RawServer, messages: int = 1, size: int = 100_000) -> None:
    """Open a call and send large messages on it."""
    call = server.call()
    for _ in range(messages):
        call.stream.send_message(bytes(size))


def sizes(sent: SentFrames, stream_id: int) -> list[int]:
    return [len(frame.payload) for frame in sent.of(kinds.DATA, stream_id)]


def test_a_message_larger_than_the_window_is_sent_as_the_window_opens() -> None:
    server = RawServer()
    streaming(server)
    call = server.calls[0]
    assert sizes(server.read_output(), 1) == [16_384, 16_384, 16_384, 16_383]
    call.expect_writable(False)
    server.send(window_update(0, 100_000))
    server.expect_no_output()
    server.send(window_update(1, 10))
    assert sizes(server.read_output(), 1) == [10]
    server.send(window_update(1, 100_000))
    assert sizes(server.read_output(), 1) == [
        16_384,
        16_384,
        100_005 - DEFAULT_WINDOW - 10 - 2 * 16_384,
    ]
    call.expect_writable(True)
    assert call.count("writable") == 1


def test_frames_may_be_as_large_as_the_peer_announces() -> None:
    server = RawServer(announce=((kinds.MAX_FRAME_SIZE, 40_000),))
    streaming(server)
    assert sizes(server.read_output(), 1) == [40_000, 25_535]


def test_the_initial_window_counts_for_new_and_for_open_streams() -> None:
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 10),))
    streaming(server, size=20)
    assert sizes(server.read_output(), 1) == [10]
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 13)))
    assert sizes(server.read_output(), 1) == [3]
    streaming(server, size=20)
    assert sizes(server.read_output(), 3) == [13]


def test_a_negative_window_blocks_until_updates_make_it_positive() -> None:
    server = RawServer()
    streaming(server, size=1000)
    call = server.calls[0]
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 100)))
    assert call.stream.send_window == 100 - 1005
    call.stream.send_message(b"x")
    assert sizes(server.read_output(), 1) == [1005]
    server.send(window_update(1, 905))
    assert sizes(server.read_output(), 1) == []
    server.send(window_update(1, 6))
    assert sizes(server.read_output(), 1) == [6]


def test_a_stream_can_be_closed_while_its_window_is_below_zero() -> None:
    server = RawServer()
    streaming(server, size=1000)
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 0)))
    server.read_output()
    server.calls[0].stream.close_sending()
    (last,) = server.read_output().of(kinds.DATA, 1)
    assert (last.flags, last.payload) == (END_STREAM, b"")
    assert server.calls[0].stream.send_window == -1005


def test_a_closing_stream_sends_end_stream_with_its_last_byte() -> None:
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 0),))
    server.call(b"ab")
    assert sizes(server.read_output(), 1) == []
    server.send(window_update(1, 6))
    assert [frame.flags for frame in server.read_output().of(kinds.DATA, 1)] == [0]
    server.send(window_update(1, 1))
    assert [frame.flags for frame in server.read_output().of(kinds.DATA, 1)] == [END_STREAM]


def test_blocked_streams_share_a_window_that_opens_slowly() -> None:
    server = RawServer()
    for _ in range(4):
        streaming(server)
    server.send(*[window_update(stream_id, 1 << 20) for stream_id in (1, 3, 5, 7)])
    server.read_output()
    order: list[int] = []
    for _ in range(8):
        server.send(window_update(0, 16_384))
        order += [frame.stream_id for frame in server.read_output().of(kinds.DATA)]
    assert sorted(order) == [1, 1, 3, 3, 5, 5, 7, 7], "none is left behind"


def test_blocked_streams_share_a_window_that_opens_at_once() -> None:
    server = RawServer()
    for _ in range(3):
        streaming(server)
    server.send(*[window_update(stream_id, 1 << 20) for stream_id in (1, 3, 5)])
    server.read_output()
    server.send(window_update(0, 6 * 16_384))
    order = [frame.stream_id for frame in server.read_output().of(kinds.DATA)]
    assert sorted(order) == [1, 1, 3, 3, 5, 5]
    assert len(set(order[:3])) == len(set(order[3:])) == 3


def test_a_stream_whose_own_window_is_closed_does_not_stop_others() -> None:
    server = RawServer()
    streaming(server)
    streaming(server, size=10)
    server.read_output()
    server.send(window_update(0, 1 << 20))
    assert sizes(server.read_output(), 3) == [15]


def test_a_paused_socket_blocks_only_data() -> None:
    server = RawServer()
    server.core.outbound.pause()
    call = server.call(b"message")
    server.send(ping())
    sent = server.read_output()
    assert [frame.kind for frame in sent.frames] == [kinds.HEADERS, kinds.PING]
    server.core.outbound.resume()
    assert server.read_output().payload(1) == prefixed(b"message")
    assert call.count("writable") == 1


def test_windows_that_open_during_a_pause_count_afterwards() -> None:
    server = RawServer()
    streaming(server)
    server.read_output()
    server.core.outbound.pause()
    server.send(window_update(0, 1 << 20), window_update(1, 1 << 20))
    server.expect_no_output()
    server.core.outbound.resume()
    assert sum(sizes(server.read_output(), 1)) == 100_005 - DEFAULT_WINDOW


def test_payload_of_a_large_message_is_copied_with_the_output_only() -> None:
    peer = RawServer()
    message = bytes(50_000)
    call = peer.call()
    peer.core.outbound.emit(b"")
    call.stream.send_message(message)
    views = [each for each in peer.core.outbound.output if isinstance(each, memoryview)]
    assert sum(each.obj is message for each in views) == 4
    assert call.stream.is_writable


def test_the_queue_of_a_cancelled_stream_is_dropped() -> None:
    server = RawServer()
    streaming(server)
    server.read_output()
    server.calls[0].stream.cancel()
    server.expect_reset(1, ErrorCode.CANCEL)
    server.send(window_update(0, 1 << 20), window_update(1, 1 << 20))
    server.expect_no_output()


def test_a_listener_may_cancel_a_stream_that_is_next_to_send() -> None:
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 1 << 20),))
    streaming(server, size=65_600)
    streaming(server, size=100)
    first, second = server.calls
    first.hooks["writable"] = lambda _: second.stream.cancel()
    server.read_output()
    server.send(window_update(0, 1 << 20))
    sent = server.read_output()
    assert sizes(sent, 1) == [65_605 - DEFAULT_WINDOW]
    assert sizes(sent, 3) == []
    assert sent.resets() == [(3, ErrorCode.CANCEL)]


def test_on_writable_is_called_only_if_the_stream_was_blocked() -> None:
    server = RawServer()
    call = server.call()
    call.stream.send_message(bytes(40_000))
    call.expect_writable(True)
    assert call.count("writable") == 0


def test_a_listener_that_fills_a_large_window_needs_no_large_stack() -> None:
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 2**31 - 1),))
    call = server.call()
    left = [2000]

    def write_on(_: object) -> None:
        while left[0] and call.stream.is_writable:
            left[0] -= 1
            call.stream.send_message(bytes(20_000))

    call.hooks["writable"] = write_on
    write_on(None)
    server.send(window_update(0, 2**31 - 1 - DEFAULT_WINDOW))
    assert left == [0]
    assert len(server.read_output().payload(1)) == 2000 * 20_005


@given(st.lists(st.integers(1, 60_000), min_size=1, max_size=12))
def test_a_slow_reader_gets_every_byte(amounts: list[int]) -> None:
    world = WireWorld(server=Limits(stream_window_bytes=70_000, connection_window_bytes=70_000))
    world.run()
    call = world.call()
    messages = [bytes((n,)) * size for n, size in enumerate(amounts)]
    for message in messages:
        call.stream.send_message(message)
    call.stream.close_sending()
    world.run()
    world.handler.expect_messages(*messages)
    assert world.handler.count("half_close") == 1


def test_a_header_block_larger_than_a_frame_is_continued() -> None:
    server = RawServer()
    encoder = RequestEncoder(path="/s/m", authority="a")
    server.call(b"x", request=encoder.block(metadata=(("k", "v" * 40_000),)))
    kinds_read = [frame.kind for frame in server.read_output().frames]
    assert kinds_read == [kinds.HEADERS, kinds.CONTINUATION, kinds.CONTINUATION, kinds.DATA]
