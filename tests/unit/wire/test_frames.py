"""Unit tests of proxyless.wire.frames. Compared with `hyperframe`, which `h2` uses."""

import pytest
from hyperframe import frame as hf
from hypothesis import given
from hypothesis import strategies as st

from proxyless.wire import frames
from proxyless.wire.errors import ErrorCode, RemoteProtocolError


def read(data: bytes) -> list[hf.Frame]:
    """Frames as hyperframe reads them."""
    found: list[hf.Frame] = []
    while data:
        frame, length = hf.Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + length]))
        found.append(frame)
        data = data[9 + length :]
    return found


def read_one(data: bytes) -> hf.Frame:
    (frame,) = read(data)
    return frame


# Layout


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        (frames.DATA, hf.DataFrame),
        (frames.HEADERS, hf.HeadersFrame),
        (frames.PRIORITY, hf.PriorityFrame),
        (frames.RST_STREAM, hf.RstStreamFrame),
        (frames.SETTINGS, hf.SettingsFrame),
        (frames.PUSH_PROMISE, hf.PushPromiseFrame),
        (frames.PING, hf.PingFrame),
        (frames.GOAWAY, hf.GoAwayFrame),
        (frames.WINDOW_UPDATE, hf.WindowUpdateFrame),
        (frames.CONTINUATION, hf.ContinuationFrame),
    ],
)
def test_frame_types_have_their_numbers(kind: int, reference: type[hf.Frame]) -> None:
    assert kind == reference.type


@pytest.mark.parametrize(
    ("setting", "reference"),
    [
        (frames.HEADER_TABLE_SIZE, hf.SettingsFrame.HEADER_TABLE_SIZE),
        (frames.ENABLE_PUSH, hf.SettingsFrame.ENABLE_PUSH),
        (frames.MAX_CONCURRENT_STREAMS, hf.SettingsFrame.MAX_CONCURRENT_STREAMS),
        (frames.INITIAL_WINDOW_SIZE, hf.SettingsFrame.INITIAL_WINDOW_SIZE),
        (frames.MAX_FRAME_SIZE, hf.SettingsFrame.MAX_FRAME_SIZE),
        (frames.MAX_HEADER_LIST_SIZE, hf.SettingsFrame.MAX_HEADER_LIST_SIZE),
    ],
)
def test_settings_have_their_numbers(setting: int, reference: int) -> None:
    assert setting == reference


@given(st.integers(0, 2**24 - 1), st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31))
def test_a_packed_header_unpacks_to_the_same(
    length: int, kind: int, flags: int, stream_id: int
) -> None:
    packed = frames.pack_header(length << 8 | kind, flags, stream_id)
    assert len(packed) == frames.FRAME_HEADER_BYTES
    assert frames.unpack_header(packed) == (length << 8 | kind, flags, stream_id)


def test_settings_are_encoded_in_order() -> None:
    pairs = [(frames.INITIAL_WINDOW_SIZE, 70_000), (frames.MAX_FRAME_SIZE, 16_384)]
    frame = read_one(frames.encode_settings(pairs))
    assert isinstance(frame, hf.SettingsFrame)
    assert list(frame.settings.items()) == pairs
    assert list(frames.decode_settings(frame.serialize_body())) == pairs


def test_the_settings_acknowledgement_is_empty() -> None:
    frame = read_one(frames.SETTINGS_ACK)
    assert isinstance(frame, hf.SettingsFrame)
    assert "ACK" in frame.flags
    assert not frame.settings


def test_window_update_carries_its_increment() -> None:
    frame = read_one(frames.encode_window_update(3, 2**31 - 1))
    assert isinstance(frame, hf.WindowUpdateFrame)
    assert (frame.stream_id, frame.window_increment) == (3, 2**31 - 1)


def test_rst_stream_carries_its_code() -> None:
    frame = read_one(frames.encode_rst_stream(5, ErrorCode.CANCEL))
    assert isinstance(frame, hf.RstStreamFrame)
    assert (frame.stream_id, frame.error_code) == (5, ErrorCode.CANCEL)


@pytest.mark.parametrize("ack", [False, True])
def test_ping_carries_its_payload(ack: bool) -> None:
    frame = read_one(frames.encode_ping(b"8 octets", ack=ack))
    assert isinstance(frame, hf.PingFrame)
    assert (frame.opaque_data, "ACK" in frame.flags) == (b"8 octets", ack)


def test_goaway_carries_stream_code_and_text() -> None:
    frame = read_one(frames.encode_goaway(7, ErrorCode.ENHANCE_YOUR_CALM, b"text"))
    assert isinstance(frame, hf.GoAwayFrame)
    assert (frame.last_stream_id, frame.error_code) == (7, ErrorCode.ENHANCE_YOUR_CALM)
    assert frame.additional_data == b"text"


# Header blocks over frames


@pytest.mark.parametrize("end_stream", [False, True])
@pytest.mark.parametrize(
    ("size", "pieces"), [(0, 1), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (99, 10)]
)
def test_a_long_block_is_continued(size: int, pieces: int, end_stream: bool) -> None:
    block = bytes(range(size))
    encoded = frames.encode_headers(9, block, end_stream=end_stream, frame_bytes_max=10)
    first, *rest = read(encoded)
    assert isinstance(first, hf.HeadersFrame)
    assert ("END_STREAM" in first.flags) is end_stream
    fragments = [first.data]
    for frame in rest:
        assert isinstance(frame, hf.ContinuationFrame)
        fragments.append(frame.data)
    assert b"".join(fragments) == block
    assert len(fragments) == pieces
    assert all(len(fragment) <= 10 for fragment in fragments)
    assert ["END_HEADERS" in frame.flags for frame in (first, *rest)] == [
        *[False] * (pieces - 1),
        True,
    ]
    assert all(frame.stream_id == 9 for frame in (first, *rest))


def fragments_of(size_max: int) -> frames.HeaderFragments:
    return frames.HeaderFragments(stream_id=1, end_stream=0, size_max=size_max)


def test_fragments_join_in_order() -> None:
    fragments = fragments_of(6)
    for piece in (b"ab", b"", b"cdef"):
        fragments.add(piece)
    assert fragments.join() == b"abcdef"


def test_a_block_one_byte_over_the_limit_is_discarded() -> None:
    fragments = fragments_of(6)
    fragments.add(b"abcdef")
    fragments.add(b"g")
    fragments.add(b"")
    assert fragments.join() is None


def test_a_block_that_is_much_too_large_ends_the_connection() -> None:
    fragments = fragments_of(6)
    fragments.add(bytes(frames.DISCARDED_BLOCK_BYTES_MAX))
    with pytest.raises(RemoteProtocolError, match="header block of 1048577 bytes") as caught:
        fragments.add(b"g")
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_a_block_in_too_many_frames_is_a_connection_error() -> None:
    fragments = fragments_of(100)
    for _ in range(frames.FRAGMENTS_MAX):
        fragments.add(b"")
    with pytest.raises(RemoteProtocolError, match="in 33 frames, wanted at most 1048576 bytes in"):
        fragments.add(b"")


# Padding and priority


@given(st.binary(max_size=40), st.integers(0, 255), st.binary(max_size=5))
def test_padding_is_stripped(payload: bytes, padding: int, before: bytes) -> None:
    data = before + bytes((padding,)) + payload + bytes(padding)
    start, stop = frames.strip_padding(data, len(before), len(data))
    assert data[start:stop] == payload


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x02a", b"\xffabc"])
def test_padding_that_does_not_fit_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="padding longer than its frame") as caught:
        frames.strip_padding(payload, 0, len(payload))
    assert caught.value.code is ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        (0, b"block"),
        (frames.FLAG_PADDED, b"\x02block\0\0"),
        (frames.FLAG_PRIORITY, b"\0\0\0\3\xffblock"),
        (frames.FLAG_PADDED | frames.FLAG_PRIORITY, b"\x01\0\0\0\3\xffblock\0"),
    ],
)
def test_a_fragment_has_neither_padding_nor_priority(flags: int, payload: bytes) -> None:
    assert frames.strip_headers_extras(flags, payload) == b"block"


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        (frames.FLAG_PRIORITY, b"\0\0\0\3"),
        (frames.FLAG_PADDED | frames.FLAG_PRIORITY, b"\x02\0\0\0\3\xff\0"),
    ],
)
def test_headers_too_short_for_priority_are_a_frame_size_error(flags: int, payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="too short for priority") as caught:
        frames.strip_headers_extras(flags, payload)
    assert caught.value.code is ErrorCode.FRAME_SIZE_ERROR


def test_a_payload_of_another_size_is_a_frame_size_error() -> None:
    frames.check_size("PING", b"12345678", 8)
    with pytest.raises(RemoteProtocolError, match="PING of 7 bytes, wanted 8") as caught:
        frames.check_size("PING", b"1234567", 8)
    assert caught.value.code is ErrorCode.FRAME_SIZE_ERROR


# Partial frames


def test_the_buffer_returns_nothing_until_the_frame_is_complete() -> None:
    buffer = frames.FrameBuffer()
    assert buffer.size == 0
    buffer.keep(b"ab", 5)
    assert buffer.take(b"c") == b""
    assert buffer.size == 3
    assert buffer.take(b"d") == b""
    assert buffer.take(b"efg") == b"abcdefg"
    assert buffer.size == 0


def test_the_buffer_can_be_used_again() -> None:
    buffer = frames.FrameBuffer()
    for _ in range(3):
        buffer.keep(b"a", 2)
        assert buffer.take(b"b") == b"ab"
