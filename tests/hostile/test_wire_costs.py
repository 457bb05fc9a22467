"""Servers that cause much work or memory with few bytes: what a connection does for them, counted.

Every test proves its limit with counts (calls, messages, frames, bytes, turns), which are the same
on every machine. `docs/limits.md` has the measured figures, and those of grpcio.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import pairwise

import pytest

from proxyless.base import Status, StatusCode
from proxyless.wire import ErrorCode, Limits, RemoteProtocolError, compress, huffman
from proxyless.wire import frames as kinds
from proxyless.wire.limits import (
    BUFFERED_BYTES_MAX,
    COST_PER_TURN_MAX,
    ENDING_COST,
    FLOOD_FRAMES_MAX,
    FRAME_COST,
    FRAMES_PER_TURN_MAX,
    HEADER_FIELD_COST,
    MESSAGE_COST,
    MESSAGE_OVERHEAD_BYTES,
    OPENING_COST,
    OVERFLOW_CHECK_FRAMES,
    PACKED_PART_BYTES,
)
from proxyless.wire.messages import Unpacking
from tests.worlds.call_counts import count_calls
from tests.worlds.wire import (
    HEAD,
    OK_TRAILERS,
    CallRecorder,
    ManualTurns,
    RawServer,
    block,
    data,
    goaway,
    headers,
    ping,
    prefixed,
    settings,
    window_update,
)

KB = 1024
MB = 1024 * KB
GZIPPED_HEAD = [*HEAD, ("grpc-encoding", "gzip")]
BOMB = prefixed(compress("gzip", bytes(4 * MB)), compressed=1)
TOO_LARGE = prefixed(compress("gzip", bytes(4 * MB + 1)), compressed=1)
# Four blocks of deflate without content, each with tables of its own, which take 1.5 us.
EMPTY_BLOCKS = bytes.fromhex(
    "04c081000000000090ff6b100007020000000040feaf41001c080000000000f9bf060170200000000000e4ff1a"
)
# Streams that a server finds blocked, few and many.
FEW, MANY = 20, 2000


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fail if the block allocates more bytes at a time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= size, f"held {peak - before} bytes"


# Compressed messages


def packed_calls(
    unpacking: Unpacking, count: int, turns: ManualTurns | None = None
) -> tuple[RawServer, list[CallRecorder]]:
    """Calls whose server compresses, and whose messages are kept packed."""
    server = RawServer(turns=turns)
    calls = server.opened(count)
    for call in calls:
        server.send(headers(call.stream.id, GZIPPED_HEAD))
        call.stream.keep_packed(unpacking)
        # Only the sizes are kept, so that the test measures the connection.
        call.hooks["message"] = partial(shorten, call)
    server.read_output()
    return server, calls


def count_of(calls: list[CallRecorder], kind: str) -> int:
    return sum(call.count(kind) for call in calls)


def shorten(call: CallRecorder, message: bytes) -> None:
    call.events[-1] = ("message", b"%d" % len(message))


@pytest.mark.parametrize("unpacking", [Unpacking.ON_READ, Unpacking.AT_END])
def test_bombs_on_many_streams_are_not_unpacked_before_they_are_due(unpacking: Unpacking) -> None:
    server, calls = packed_calls(unpacking, 200)
    with at_most(2 * MB):
        for call in calls:
            server.send(data(call.stream.id, BOMB))
    assert not any(call.messages for call in calls)
    assert server.core.held_bytes == 200 * len(BOMB)


def test_a_read_unpacks_one_message() -> None:
    server, (call,) = packed_calls(Unpacking.ON_READ, 1)
    server.send(data(1, BOMB * 3), headers(1, OK_TRAILERS, end=True))
    for count in (1, 2, 3):
        call.expect_open()
        with at_most(9 * MB):
            call.stream.request_message()
        assert call.messages == [b"4194304"] * count
    call.expect_end()
    assert server.core.held_bytes == 0


def test_a_read_that_comes_first_gets_the_message_when_it_is_received() -> None:
    server, (call,) = packed_calls(Unpacking.ON_READ, 1)
    call.stream.request_message()
    server.send(data(1, BOMB * 2))
    assert len(call.messages) == 1


def test_messages_at_the_end_are_unpacked_one_per_turn_of_the_loop() -> None:
    turns = ManualTurns()
    server, calls = packed_calls(Unpacking.AT_END, 10, turns)
    for call in calls:
        server.send(data(call.stream.id, BOMB))
    pieces = [headers(call.stream.id, OK_TRAILERS, end=True) for call in calls]
    server.send(*pieces)
    delivered = [count_of(calls, "message")]
    while turns.take() or server.core.is_behind:
        server.core.receive(b"")
        delivered.append(count_of(calls, "message"))
        assert delivered[-1] == count_of(calls, "end")
    # A message of 4 MB is more than the budget of a turn, so there is no second one.
    assert delivered[0] == 1
    assert delivered[-1] == 10
    assert all(after - before <= 1 for before, after in pairwise(delivered))
    for call in calls:
        assert [kind for kind, _ in call.events] == ["head", "message", "end"]


def test_bombs_over_the_message_limit_count_for_the_turn() -> None:
    turns = ManualTurns()
    server, calls = packed_calls(Unpacking.AT_ONCE, 5, turns)
    for call in calls:
        server.send(data(call.stream.id, TOO_LARGE))
    assert [call.count("end") for call in calls] == [1, 0, 0, 0, 0]
    assert turns.take_all() == 4
    for call in calls:
        call.expect_end(StatusCode.RESOURCE_EXHAUSTED, "(4194305 vs. 4194304)")


def test_a_message_of_empty_blocks_is_unpacked_in_slices() -> None:
    turns = ManualTurns()
    server, (call,) = packed_calls(Unpacking.AT_ONCE, 1, turns)
    blocks = EMPTY_BLOCKS * ((4 * MB - 100) // len(EMPTY_BLOCKS))
    packed = prefixed(b"\x1f\x8b\x08" + bytes(7) + blocks, compressed=1)
    for at in range(0, len(packed), MB // 4):
        server.send(data(1, packed[at : at + MB // 4]))
    # A turn reads two parts of 64 kB; the first one was not counted.
    assert 1 + turns.take_all() >= len(packed) // (2 * PACKED_PART_BYTES)
    call.expect_end(StatusCode.INTERNAL, "it ends too early")


@pytest.mark.parametrize("ending", ["reset", "lost", "hold"])
def test_a_message_is_unpacked_in_slices_when_its_stream_ends(ending: str) -> None:
    turns = ManualTurns()
    server, (call,) = packed_calls(Unpacking.AT_ONCE, 1, turns)
    message = b"".join(sha256(at.to_bytes(4)).digest() for at in range(MB // 32))
    packed = prefixed(compress("gzip", message), compressed=1)
    for at in range(0, len(packed), MB // 4):
        server.send(data(1, packed[at : at + MB // 4]))
    server.send(headers(1, OK_TRAILERS, end=True))
    assert turns.take()
    assert call.messages == []
    if ending == "reset":
        call.stream.cancel()
    elif ending == "lost":
        server.core.lose(Status(StatusCode.UNAVAILABLE, "lost"))
    else:
        call.stream.hold()
        assert turns.take_all() <= 1
        call.stream.release()
    turns.take_all()
    assert call.messages == ([] if ending == "reset" else [b"%d" % len(message)])
    assert call.count("end") == 1
    assert server.core.held_bytes == 0


def test_a_second_message_of_a_unary_call_is_delivered_before_the_end() -> None:
    server, (call,) = packed_calls(Unpacking.AT_END, 1)
    first = prefixed(compress("gzip", b"1"), compressed=1)
    server.send(data(1, first))
    assert call.messages == []
    server.send(data(1, first[:3]))
    assert len(call.messages) == 1
    server.send(data(1, first[3:]))
    assert len(call.messages) == 2


def test_a_message_larger_than_the_window_is_received_without_a_read() -> None:
    limits = Limits(stream_window_bytes=64 * KB, stream_window_bytes_max=64 * KB)
    server = RawServer(limits)
    (call,) = server.opened()
    server.send(headers(1, GZIPPED_HEAD))
    call.stream.keep_packed(Unpacking.ON_READ)
    server.read_output()
    message = prefixed(bytes(200 * KB))
    sent, window = 0, 64 * KB
    while sent < len(message):
        piece = message[sent : sent + min(window, 16 * KB)]
        server.send(data(1, piece))
        sent += len(piece)
        window -= len(piece)
        window += sum(size for stream_id, size in server.read_output().updates() if stream_id)
        assert window, "a message that is not complete must not wait for a read"
    call.expect_open()
    call.stream.request_message()
    assert [len(each) for each in call.messages] == [200 * KB]


def test_unread_messages_use_up_the_window_of_their_stream() -> None:
    limits = Limits(stream_window_bytes=64 * KB, stream_window_bytes_max=64 * KB)
    server = RawServer(limits)
    (call,) = server.opened()
    server.send(headers(1, GZIPPED_HEAD))
    call.stream.keep_packed(Unpacking.ON_READ)
    server.read_output()
    for _ in range(15):
        server.send(data(1, prefixed(bytes(4 * KB))))
    assert server.read_output().updates() == []
    for _ in range(8):
        call.stream.request_message()
    # Half of the window is free again; the unread half is not given back.
    ((stream_id, increment),) = server.read_output().updates()
    assert (stream_id, call.stream.recv_window) == (1, 64 * KB - server.core.held_bytes)
    assert increment >= 32 * KB


# Blocked streams


def blocked_calls(
    count: int, turns: ManualTurns | None = None, *announce: tuple[int, int]
) -> RawServer:
    """Calls whose requests wait for the windows of their streams."""
    server = RawServer(announce=announce or ((kinds.INITIAL_WINDOW_SIZE, 0),), turns=turns)
    server.send(window_update(0, 1 << 30))
    for _ in range(count):
        server.call(b"request")
    server.read_output()
    return server


FLOODS: dict[str, Callable[[int], bytes]] = {
    "WINDOW_UPDATE": lambda number: window_update(0, 1 + number % 2),
    "SETTINGS": lambda number: settings((kinds.MAX_FRAME_SIZE, 16_384 + number % 2)),
    "smaller windows": lambda number: settings((kinds.INITIAL_WINDOW_SIZE, number % 2)),
    "stream limits": lambda number: settings((kinds.MAX_CONCURRENT_STREAMS, 5000 + number)),
    "GOAWAY": lambda _: goaway(2**31 - 1),
    "PING": lambda _: ping(),
}


@pytest.mark.parametrize("name", [name for name in FLOODS if name != "smaller windows"])
def test_a_frame_costs_the_same_with_few_and_many_blocked_streams(name: str) -> None:
    pieces = [FLOODS[name](number) for number in range(100)]
    servers = (blocked_calls(FEW), blocked_calls(MANY))
    few, many = (count_calls(partial(server.send, *pieces)) for server in servers)
    assert many <= few + 10


def test_initial_windows_that_go_up_and_down_cost_one_slice_per_turn() -> None:
    turns = ManualTurns()
    server = blocked_calls(MANY, turns)
    pieces = [FLOODS["smaller windows"](number) for number in range(900)]
    examined_max = COST_PER_TURN_MAX // FRAME_COST + 1

    def send_all() -> None:
        server.core.receive(b"".join(pieces))

    # Without a limit each of the 450 raises would examine all streams.
    assert count_calls(send_all) < 900 * 30 + examined_max * 30
    turns.take_all()
    assert not server.core.is_closed


def test_settings_that_lower_and_raise_the_window_are_exact() -> None:
    server = blocked_calls(1)
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 5)))
    assert server.read_output().payload(1) == prefixed(b"request")[:5]
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 2)), settings((kinds.INITIAL_WINDOW_SIZE, 7)))
    assert server.read_output().payload(1) == prefixed(b"request")[5:7]
    assert server.calls[0].stream.send_window == 0


def test_a_raised_initial_window_sends_from_many_streams_in_slices() -> None:
    turns = ManualTurns()
    server = blocked_calls(MANY, turns)
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 100)))
    sent = [server.read_output().of(kinds.DATA)]
    while turns.take():
        sent.append(server.read_output().of(kinds.DATA))
    slice_max = COST_PER_TURN_MAX // FRAME_COST + 1
    assert max(len(each) for each in sent) <= slice_max
    ids = [frame.stream_id for each in sent for frame in each]
    assert ids == [call.stream.id for call in server.calls], "each once, in order"


def test_streams_over_the_stream_limit_are_opened_in_slices() -> None:
    turns = ManualTurns()
    server = blocked_calls(MANY, turns, (kinds.MAX_CONCURRENT_STREAMS, 0))
    server.send(settings((kinds.MAX_CONCURRENT_STREAMS, 100_000)))
    opened = [len(server.read_output().of(kinds.HEADERS))]
    while turns.take():
        opened.append(len(server.read_output().of(kinds.HEADERS)))
    assert max(opened) <= COST_PER_TURN_MAX // OPENING_COST + 1
    assert sum(opened) == MANY
    ids = [call.stream.id for call in server.calls]
    assert ids == sorted(ids), "in the order of the calls"


@pytest.mark.parametrize("announced", [100_000, 10])
def test_streams_of_a_lost_connection_end_in_slices(announced: int) -> None:
    """The calls over the stream limit, which wait, too."""
    turns = ManualTurns()
    server = blocked_calls(MANY, turns, (kinds.MAX_CONCURRENT_STREAMS, announced))
    turns.take_all()
    server.core.lose(Status(StatusCode.UNAVAILABLE, "connection lost"))
    # The socket is closed meanwhile.
    server.core.lose(Status(StatusCode.UNAVAILABLE, "closed again"))
    ended = [sum(call.stream.is_ended for call in server.calls)]
    while turns.take():
        ended.append(sum(call.stream.is_ended for call in server.calls))
    steps = [after - before for before, after in pairwise([0, *ended])]
    assert max(steps) <= COST_PER_TURN_MAX // ENDING_COST + 1
    ends = [call.end for call in server.calls if call.end is not None]
    assert len(ends) == MANY
    assert {end.status.details for end in ends} == {"connection lost"}


def test_a_large_request_leaves_in_slices() -> None:
    turns = ManualTurns()
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 2**31 - 1),), turns=turns)
    server.call(bytes(16 * MB))
    server.send(window_update(0, 1 << 30))
    sizes = [len(server.read_output().payload(1))]
    while turns.take():
        sizes.append(len(server.read_output().payload(1)))
    frames_max = COST_PER_TURN_MAX // (FRAME_COST + 16 * KB // 8) + 1
    assert max(sizes) <= frames_max * 16 * KB
    assert sum(sizes) == 16 * MB + 5


def test_repeated_checks_for_window_overflow_are_a_flood() -> None:
    server = RawServer()
    (call,) = server.opened()
    server.send(window_update(1, 2**31 - 1 - 65_535))
    call.stream.cancel()
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 65_535 + 100)))
    # The next one does not examine the streams, unless another window was raised as much.
    pieces = [settings((kinds.INITIAL_WINDOW_SIZE, 65_535 + 100))]
    assert count_calls(lambda: server.send(*pieces)) < 40

    def repeat() -> None:
        for _ in range(FLOOD_FRAMES_MAX // OVERFLOW_CHECK_FRAMES):
            call = server.call(b"request")
            server.send(window_update(call.stream.id, 2**31 - 1 - 65_535 - 100))
            call.stream.cancel()
            server.send(settings((kinds.INITIAL_WINDOW_SIZE, 65_535 + 200)))
            server.send(settings((kinds.INITIAL_WINDOW_SIZE, 65_535 + 100)))

    with pytest.raises(RemoteProtocolError, match="flood of SETTINGS"):
        repeat()


# Frames


def test_frames_of_one_read_are_handled_in_slices() -> None:
    turns = ManualTurns()
    server = RawServer(turns=turns)
    (call,) = server.opened()
    server.send(headers(1, HEAD))
    server.core.receive(data(1, prefixed(b"")) * 5000)
    handled = [call.count("message")]
    while server.core.is_behind:
        server.core.receive(b"")
        handled.append(call.count("message"))
    assert handled == [FRAMES_PER_TURN_MAX, 2 * FRAMES_PER_TURN_MAX, 5000]


def test_small_messages_of_one_frame_are_delivered_in_slices() -> None:
    turns = ManualTurns()
    server = RawServer(turns=turns)
    (call,) = server.opened()
    server.send(headers(1, HEAD))
    server.core.receive(data(1, prefixed(b"") * 5000))
    delivered = [call.count("message")]
    while turns.take():
        delivered.append(call.count("message"))
    slice_max = COST_PER_TURN_MAX // MESSAGE_COST
    assert delivered[:2] == [slice_max, 2 * slice_max]
    assert delivered[-1] == 5000
    server.send(headers(1, OK_TRAILERS, end=True))
    call.expect_end()


# Unread messages


def lagging_calls(count: int, limits: Limits | None = None) -> tuple[RawServer, list[CallRecorder]]:
    """Calls that hold their streams as the fronts do, and are not read."""
    server = RawServer(limits)
    calls = server.opened(count)
    for call in calls:
        server.send(headers(call.stream.id, HEAD))
        call.hooks["message"] = partial(hold_if_full, call)
    server.read_output()
    return server, calls


def hold_if_full(call: CallRecorder, _message: bytes) -> None:
    unread = sum(len(each) + MESSAGE_OVERHEAD_BYTES for each in call.messages)
    if unread > BUFFERED_BYTES_MAX:
        call.stream.hold()


def test_small_messages_on_unread_streams_cost_about_what_was_sent() -> None:
    server, calls = lagging_calls(20)
    small = prefixed(b"ab")
    frame = small * 1800
    sent = 0
    with at_most(20 * 4 * len(frame) + 20 * 64 * KB):
        for call in calls:
            for _ in range(4):
                server.send(data(call.stream.id, frame))
                sent += len(frame)
    objects_max = BUFFERED_BYTES_MAX // MESSAGE_OVERHEAD_BYTES + 1
    assert all(len(call.messages) <= objects_max for call in calls)
    delivered = sum(len(call.messages) for call in calls) * len(small)
    assert server.core.held_bytes == sent - delivered
    # Nothing is lost: all can be read later.
    for call in calls:
        call.hooks.clear()
        call.stream.release()
        assert len(call.messages) == 4 * 1800
    assert server.core.held_bytes == 0


def test_unread_bytes_beyond_the_limit_close_the_window_of_the_connection() -> None:
    limits = Limits(connection_window_bytes=128 * KB, held_bytes_max=256 * KB)
    server, calls = lagging_calls(4, limits)
    frame = prefixed(b"ab") * 2000
    window = 128 * KB
    sent = 0
    while window >= len(frame) and sent < 10 * MB:
        server.send(data(calls[sent // len(frame) % 4].stream.id, frame))
        sent += len(frame)
        window -= len(frame)
        window += sum(size for stream_id, size in server.read_output().updates() if not stream_id)
    assert sent < 3 * (limits.connection_window_bytes + limits.held_bytes_max)
    assert server.core.held_bytes > limits.held_bytes_max
    # Frames that no window limits are still handled: keepalive works.
    server.send(ping())
    assert len(server.read_output().of(kinds.PING)) == 1
    for call in calls:
        call.hooks.clear()
        call.stream.release()
    granted = [size for stream_id, size in server.read_output().updates() if not stream_id]
    assert window + sum(granted) > limits.connection_window_bytes // 2
    server.send(*[data(call.stream.id, prefixed(b"last")) for call in calls])
    assert [call.messages[-1] for call in calls] == [b"last"] * 4


def test_unread_messages_are_dropped_with_their_streams() -> None:
    server, calls = lagging_calls(3)
    for call in calls:
        server.send(data(call.stream.id, prefixed(b"ab") * 2000))
    server.send(headers(5, OK_TRAILERS, end=True))
    assert server.core.held_bytes
    for call in calls:
        call.stream.cancel()
    assert server.core.held_bytes == 0


def test_held_messages_are_not_counted_after_the_connection_is_lost() -> None:
    server, calls = lagging_calls(2)
    for call in calls:
        server.send(data(call.stream.id, prefixed(b"ab") * 2000))
    server.core.lose(Status(StatusCode.UNAVAILABLE, "gone"))
    assert server.core.held_bytes == 0


# Header blocks


def huffman_block(size: int) -> bytes:
    """A header block with a Huffman string of this size: every symbol has five bits."""
    length, rest = bytearray(), size - 127
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return b"\x88\x00\x01k\xff" + length + bytes(size)


def test_a_huffman_block_over_the_limit_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> bytes:
        raise AssertionError("decoded")

    monkeypatch.setattr(huffman, "decode_huffman", refuse)
    server = RawServer()
    (call,) = server.opened()
    server.send(headers(1, huffman_block(63_000)))
    call.expect_end(StatusCode.RESOURCE_EXHAUSTED, "received metadata larger than max")


def test_header_blocks_that_are_not_cached_are_decoded_in_slices() -> None:
    turns = ManualTurns()
    server = RawServer(turns=turns)
    calls = server.opened(16)
    blocks = [headers(call.stream.id, huffman_block(10_000 + 5 * call.stream.id)) for call in calls]
    server.core.receive(b"".join(blocks))
    decoded = [count_of(calls, "end")]
    while server.core.is_behind:
        assert turns.left <= 0
        turns.left = COST_PER_TURN_MAX
        server.core.receive(b"")
        decoded.append(count_of(calls, "end"))
    assert decoded[0] <= 4
    assert decoded[-1] == 16


@pytest.mark.parametrize(
    "fields",
    [b"\x8f" * 300, b"\x8f" * 400, b"\x00\x05x-bin\x7f\xad\x02" + b"," * 428],
    ids=["fields", "too many fields", "values"],
)
def test_header_blocks_of_many_values_are_decoded_in_slices(fields: bytes) -> None:
    turns = ManualTurns()
    server = RawServer(turns=turns)
    calls = server.opened(60)
    pieces = [headers(each.stream.id, block(OK_TRAILERS) + fields, end=True) for each in calls]
    server.core.receive(b"".join(pieces))
    turns.take_all()
    assert count_of(calls, "end") <= 1 + COST_PER_TURN_MAX // (300 * HEADER_FIELD_COST)
    assert server.core.is_behind


def test_floods_end_the_connection_when_they_come_in_slices() -> None:
    turns = ManualTurns()
    server = blocked_calls(FEW, turns)
    pieces = b"".join(ping() for _ in range(FLOOD_FRAMES_MAX + 10))
    server.expect_error(ErrorCode.ENHANCE_YOUR_CALM, "flood of PING frames", pieces)


def test_a_half_close_leaves_without_window_and_without_budget() -> None:
    turns = ManualTurns()
    server = RawServer(announce=((kinds.INITIAL_WINDOW_SIZE, 0),), turns=turns)
    call = server.call()
    server.read_output()
    turns.left = 0
    call.stream.close_sending()
    assert len(server.read_output().of(kinds.DATA, 1)) == 1


def test_windows_and_stream_limit_that_grow_together_send_everything() -> None:
    first = ((kinds.INITIAL_WINDOW_SIZE, 0), (kinds.MAX_CONCURRENT_STREAMS, 1))
    server = RawServer(announce=first)
    for _ in range(2):
        server.call(b"request")
    server.read_output()
    server.send(settings((kinds.INITIAL_WINDOW_SIZE, 5), (kinds.MAX_CONCURRENT_STREAMS, 9)))
    sent = server.read_output()
    assert [len(sent.payload(stream_id)) for stream_id in (1, 3)] == [5, 5]
