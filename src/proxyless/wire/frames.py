"""Layout of HTTP/2 frames: encoding, and buffers for partial frames and header blocks.

Specs: RFC 9113 sections 4 and 6. Frames are handled in `connection`.

The frame header is read as three numbers. Its first four bytes hold length and type together, so
one `unpack_from` with the format `>IBI` yields `length << 8 | type`, the flags and the stream id.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from proxyless.base.texts import one_line
from proxyless.wire.errors import (
    PEER_TEXT_BYTES_MAX,
    ErrorCode,
    RemoteProtocolError,
    frame_size_error,
    protocol_error,
)

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

FLAG_END_STREAM: Final = 0x1
FLAG_ACK: Final = 0x1
FLAG_END_HEADERS: Final = 0x4
FLAG_PADDED: Final = 0x8
FLAG_PRIORITY: Final = 0x20
# If of these only END_HEADERS is set, the payload of HEADERS is a whole header block.
HEADERS_FORM: Final = FLAG_END_HEADERS | FLAG_PADDED | FLAG_PRIORITY

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES: Final = 9
STREAM_ID_MASK: Final = 0x7FFF_FFFF
WINDOW_MAX: Final = 0x7FFF_FFFF
WINDOW_DEFAULT: Final = 65_535
FRAME_BYTES_DEFAULT: Final = 16_384
FRAME_BYTES_MAX: Final = (1 << 24) - 1
PRIORITY_BYTES: Final = 5
_SETTING_BYTES: Final = 6
_GOAWAY_HEAD_BYTES: Final = 8
# A block within the size limit needs fewer frames, unless the peer sends empty ones.
FRAGMENTS_MAX: Final = 32
# A block over its stream's limit is discarded; beyond this size it ends the connection.
DISCARDED_BLOCK_BYTES_MAX: Final = 1024 * 1024
# A chunk costs about 50 bytes beside its content: tiny ones must not multiply a frame's size.
_CHUNKS_MAX: Final = 1024

_HEADER: Final = Struct(">IBI")
pack_header = _HEADER.pack
unpack_header = _HEADER.unpack_from
_SETTING: Final = Struct(">HI")
_U32: Final = Struct(">I")
_U32_PAIR: Final = Struct(">II")
unpack_u32 = _U32.unpack_from
unpack_u32_pair = _U32_PAIR.unpack_from

SETTINGS_ACK: Final = pack_header(SETTINGS, FLAG_ACK, 0)


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return pack_header(len(payload) << 8 | kind, flags, stream_id) + payload


def encode_settings(settings: Iterable[tuple[int, int]]) -> bytes:
    return encode_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in settings))


def decode_settings(payload: bytes) -> Iterable[tuple[int, int]]:
    """The (identifier, value) pairs. The payload's length must be a multiple of six."""
    return _SETTING.iter_unpack(payload)


def encode_window_update(stream_id: int, increment: int) -> bytes:
    return encode_frame(WINDOW_UPDATE, 0, stream_id, _U32.pack(increment))


def encode_rst_stream(stream_id: int, code: int) -> bytes:
    return encode_frame(RST_STREAM, 0, stream_id, _U32.pack(code))


def encode_ping(payload: bytes, *, ack: bool = False) -> bytes:
    return encode_frame(PING, FLAG_ACK if ack else 0, 0, payload)


def encode_goaway(last_stream_id: int, code: int, debug_text: bytes = b"") -> bytes:
    return encode_frame(GOAWAY, 0, 0, _U32_PAIR.pack(last_stream_id, code) + debug_text)


def encode_headers(
    stream_id: int, block: bytes, *, end_stream: bool, frame_bytes_max: int
) -> bytes:
    """A header block as HEADERS and, if it is longer than one frame, CONTINUATION."""
    flags = FLAG_END_STREAM if end_stream else 0
    if len(block) <= frame_bytes_max:
        return encode_frame(HEADERS, flags | FLAG_END_HEADERS, stream_id, block)
    pieces = [block[at : at + frame_bytes_max] for at in range(0, len(block), frame_bytes_max)]
    last = len(pieces) - 1
    frames = [encode_frame(HEADERS, flags, stream_id, pieces[0])]
    for index, piece in enumerate(pieces[1:], start=1):
        end = FLAG_END_HEADERS if index == last else 0
        frames.append(encode_frame(CONTINUATION, end, stream_id, piece))
    return b"".join(frames)


class FrameBuffer:
    """Holds the received part of an incomplete frame.

    Bytes are joined only when the frame is complete, so a large frame in small pieces costs no
    more than its size.
    """

    __slots__ = ("_chunks", "_size_needed", "is_complete", "size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.size = 0
        self._size_needed = 0
        # The bytes were enough when they were kept.
        self.is_complete = False

    def keep(self, rest: bytes, size_needed: int) -> None:
        """Keep `rest` until there are `size_needed` bytes."""
        self._chunks = [rest]
        self.size = len(rest)
        self._size_needed = size_needed
        self.is_complete = len(rest) >= size_needed

    def take(self, data: bytes | memoryview) -> bytes:
        """All bytes so far with `data`, or nothing while they are too few."""
        self.size += len(data)
        if self.size < self._size_needed:
            self._chunks.append(bytes(data))
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks = [b"".join(self._chunks)]
            return b""
        joined = b"".join((*self._chunks, data))
        self._chunks = []
        self.size = self._size_needed = 0
        self.is_complete = False
        return joined


def strip_padding(data: bytes, start: int, stop: int) -> tuple[int, int]:
    """Start and stop of the payload without its padding."""
    if start == stop or data[start] >= stop - start:
        # "If the length of the padding is the length of the frame payload or greater, the
        # recipient MUST treat this as a connection error" - RFC 9113 6.1
        raise protocol_error("padding longer than its frame")
    return start + 1, stop - data[start]


def strip_headers_extras(flags: int, payload: bytes) -> bytes:
    """The fragment of a HEADERS payload without padding and priority."""
    start, stop = 0, len(payload)
    if flags & FLAG_PADDED:
        start, stop = strip_padding(payload, start, stop)
    if flags & FLAG_PRIORITY:
        start += PRIORITY_BYTES
        if start > stop:
            raise frame_size_error("HEADERS too short for priority")
    return payload[start:stop]


class HeaderFragments:
    """A header block that CONTINUATION frames continue. Bounded in size and count.

    A block larger than `size_max` is discarded, which affects its stream only: without a dynamic
    table no other block depends on it. A much larger one is a connection error.
    """

    __slots__ = ("_count", "_fragments", "_size", "_size_max", "end_stream", "stream_id")

    def __init__(self, stream_id: int, end_stream: int, size_max: int) -> None:
        self.stream_id = stream_id
        self.end_stream = end_stream
        self._size_max = size_max
        self._fragments: list[bytes] = []
        self._count = 0
        self._size = 0

    def add_frame(self, kind: int, stream_id: int, fragment: bytes) -> None:
        """Add the next frame. Raises RemoteProtocolError if it is not a CONTINUATION."""
        if kind != CONTINUATION or stream_id != self.stream_id:
            found = f"frame of type {kind:#x} in the middle of a header block"
            raise protocol_error(f"{found}, wanted CONTINUATION")
        self.add(fragment)

    def add(self, fragment: bytes) -> None:
        self._count += 1
        self._size += len(fragment)
        if self._count > FRAGMENTS_MAX or self._size > DISCARDED_BLOCK_BYTES_MAX:
            raise RemoteProtocolError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"header block of {self._size} bytes in {self._count} frames,"
                f" wanted at most {DISCARDED_BLOCK_BYTES_MAX} bytes in {FRAGMENTS_MAX}",
            )
        if self._size <= self._size_max:
            self._fragments.append(fragment)
        else:
            self._fragments.clear()

    def join(self) -> bytes | None:
        """The block, or None if it was discarded."""
        return b"".join(self._fragments) if self._size <= self._size_max else None


def check_size(what: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise frame_size_error(f"{what} of {len(payload)} bytes, wanted {size}")


def check_on_connection(what: str, stream_id: int) -> None:
    if stream_id:
        raise protocol_error(f"{what} on stream {stream_id}, wanted stream 0")


def check_settings(payload: bytes) -> None:
    if len(payload) % _SETTING_BYTES:
        raise frame_size_error(f"SETTINGS of {len(payload)} bytes, wanted sixes")


def decode_goaway(payload: bytes) -> tuple[int, int, str]:
    """The last stream id, the error code and the start of the debug data of a GOAWAY."""
    if len(payload) < _GOAWAY_HEAD_BYTES:
        raise frame_size_error(f"GOAWAY of {len(payload)} bytes, wanted at least 8")
    last_stream_id, code = unpack_u32_pair(payload)
    debug = payload[_GOAWAY_HEAD_BYTES : _GOAWAY_HEAD_BYTES + PEER_TEXT_BYTES_MAX]
    text = one_line(debug.decode("utf-8", "replace"), PEER_TEXT_BYTES_MAX)
    return last_stream_id & STREAM_ID_MASK, code, text
