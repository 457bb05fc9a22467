"""Length-prefixed messages: assembly from DATA frames, and compression.

Specs: gRPC over HTTP/2 ("Length-Prefixed-Message"), gRPC compression.

A message is a flag (compressed or not), four bytes of length, and the payload. Frames may split it
anywhere. `MessageAssembler` never holds more than one message of the allowed size and one frame.
"""

import zlib
from collections.abc import Generator
from enum import Enum
from struct import Struct
from typing import Final

from proxyless.base.status import Status, StatusCode
from proxyless.wire.limits import PACKED_BYTE_COST, PACKED_PART_BYTES, UNPACKED_PART_BYTES

PREFIX_BYTES: Final = 5
_PREFIX: Final = Struct(">BI")
pack_prefix = _PREFIX.pack
unpack_prefix = _PREFIX.unpack_from
# A chunk costs about 50 bytes beside its content: a peer that sends tiny ones must not multiply
# the size of a message.
_CHUNKS_MAX: Final = 1024
# The header of a DATA frame together with the prefix of its message.
_DATA_AND_PREFIX: Final = Struct(">IBIBI")
pack_data_and_prefix = _DATA_AND_PREFIX.pack
unpack_data_and_prefix = _DATA_AND_PREFIX.unpack_from

# zlib's `wbits`: 31 is the gzip format, 15 the zlib format ("deflate" in HTTP).
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
ENCODINGS: Final = frozenset(_WINDOW_BITS)


class MessageError(Exception):
    """A message cannot be delivered; its stream ends with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


def too_large(size: int, limit: int) -> MessageError:
    # The wording of grpcio, which users search for.
    text = f"Received message larger than max ({size} vs. {limit})"
    return MessageError(Status(StatusCode.RESOURCE_EXHAUSTED, text))


def compress(encoding: str, message: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=_WINDOW_BITS[encoding])
    return compressor.compress(message) + compressor.flush()


def decompress(encoding: str, payload: bytes, message_bytes_max: int) -> bytes:
    """The message, without ever holding more than one byte over the limit."""
    unpacker = Unpacker(encoding, payload, message_bytes_max)
    while not unpacker.is_complete:
        unpacker.advance()
    return unpacker.take()


class Unpacker:
    """Decompresses one message, in steps: a small part of it may take long.

    An empty block of deflate has a dozen bytes, and building its tables takes two microseconds. So
    a step is bounded by what it reads, too. Raises MessageError for an invalid message.
    """

    __slots__ = (
        "_decompressor",
        "_encoding",
        "_message_bytes_max",
        "_parts",
        "_payload",
        "_read_bytes",
        "_size",
        "is_complete",
    )

    def __init__(self, encoding: str, payload: bytes, message_bytes_max: int) -> None:
        window_bits = _WINDOW_BITS.get(encoding)
        if window_bits is None:
            raise unknown_encoding(encoding)
        self._encoding = encoding
        self._payload = payload
        self._message_bytes_max = message_bytes_max
        self._decompressor = zlib.decompressobj(wbits=window_bits)
        # Bytes of the payload that the decompressor has, including its `unconsumed_tail`.
        self._read_bytes = 0
        self._parts: list[bytes] = []
        self._size = 0
        self.is_complete = False

    def advance(self) -> int:
        """Unpack the next part; return its cost, see `COST_PER_TURN_MAX`."""
        decompressor, payload = self._decompressor, self._payload
        packed = decompressor.unconsumed_tail
        if not packed:
            packed = payload[self._read_bytes : self._read_bytes + PACKED_PART_BYTES]
            self._read_bytes += len(packed)
        size_max = min(self._message_bytes_max + 1 - self._size, UNPACKED_PART_BYTES)
        try:
            part = decompressor.decompress(packed, size_max)
        except zlib.error as error:
            raise self._invalid(str(error)) from error
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._message_bytes_max:
            raise too_large(self._size, self._message_bytes_max)
        if decompressor.eof:
            if decompressor.unused_data or self._read_bytes < len(payload):
                raise self._invalid("something follows it")
            self.is_complete = True
        elif self._read_bytes == len(payload) and not decompressor.unconsumed_tail and not part:
            raise self._invalid("it ends too early")
        read_bytes = len(packed) - len(decompressor.unconsumed_tail)
        return len(part) + read_bytes * PACKED_BYTE_COST

    def take(self) -> bytes:
        """The message. Called once, when it is complete."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _invalid(self, text: str) -> MessageError:
        return _invalid(f"message is not valid {self._encoding}: {text}")


def unknown_encoding(encoding: str) -> MessageError:
    return _invalid(f"message is compressed, but grpc-encoding is {encoding!r}")


def _invalid(text: str) -> MessageError:
    return MessageError(Status(StatusCode.INTERNAL, text))


class MessageAssembler:
    """Splits the received bytes of one stream into messages."""

    __slots__ = ("_chunks", "_message_bytes_max", "_size", "_size_needed")

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._chunks: list[bytes] = []
        self._size = 0
        # Size of the next message's prefix or, if that is complete, of the whole message.
        self._size_needed = PREFIX_BYTES

    @property
    def is_partial(self) -> bool:
        return self._size > 0

    def feed(self, data: bytes) -> Generator[tuple[int, bytes], None, None]:
        """Yield the messages that `data` completes, each with its compressed flag.

        Raises MessageError at an invalid prefix. If the generator is closed before its end, the
        bytes that follow stay here, for `take_rest`.
        """
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._size_needed:
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks = [b"".join(self._chunks)]
            return
        if self._size == self._size_needed > PREFIX_BYTES:
            # The usual case of a large message: it is copied once, without its prefix.
            yield self._take_message()
            return
        data = b"".join(self._chunks)
        at, self._size_needed = 0, PREFIX_BYTES
        try:
            while len(data) - at >= PREFIX_BYTES:
                flag, length = unpack_prefix(data, at)
                check_prefix(flag, length, self._message_bytes_max)
                start, end = at + PREFIX_BYTES, at + PREFIX_BYTES + length
                if end > len(data):
                    self._size_needed = PREFIX_BYTES + length
                    break
                at = end
                yield flag, data[start:end]
        finally:
            rest = data[at:]
            self._chunks = [rest] if rest else []
            self._size = len(rest)

    def _take_message(self) -> tuple[int, bytes]:
        """Remove and return the one message. The first chunk has its prefix, which is checked."""
        first, *others = self._chunks
        flag: int = unpack_prefix(first)[0]
        message = b"".join((memoryview(first)[PREFIX_BYTES:], *others))
        self._chunks, self._size, self._size_needed = [], 0, PREFIX_BYTES
        return flag, message

    def take_rest(self) -> bytes:
        """Remove and return the bytes that no yielded message contained."""
        rest, self._chunks, self._size = b"".join(self._chunks), [], 0
        return rest


class Unpacking(Enum):
    """When a stream delivers messages that may be compressed. Until then they are kept packed."""

    AT_ONCE = "when they are received, unless the stream is held"
    ON_READ = "one for each request of the owner"
    AT_END = "when the peer has ended the stream, or has sent a second message"


class HeldMessages(MessageAssembler):
    """Received messages that are not delivered yet, as on the wire.

    A message may be a thousand times larger decompressed than on the wire, and an object for each
    small message takes ten times its size: here all take what the window admits.
    """

    __slots__ = ("_bytes", "is_being_taken", "is_requested", "unpacker", "unpacking")

    def __init__(self, message_bytes_max: int, packed: bytes) -> None:
        super().__init__(message_bytes_max)
        self.unpacking = Unpacking.AT_ONCE
        # The owner reads: ON_READ, until the next message is delivered.
        self.is_requested = False
        # Set by the stream while it delivers: delivering a message may call `release` again.
        self.is_being_taken = False
        # Set by the stream while it unpacks the first message.
        self.unpacker: Unpacker | None = None
        self._bytes = bytearray(packed)

    @property
    def is_partial(self) -> bool:
        """Whether the first message is incomplete. Its prefix is not checked."""
        return bool(self._bytes) and not self.has_message

    @property
    def _first_bytes(self) -> int:
        """Size of the first message with its prefix; at least that of a prefix."""
        if len(self._bytes) < PREFIX_BYTES:
            return PREFIX_BYTES
        length: int = unpack_prefix(self._bytes)[1]
        return PREFIX_BYTES + length

    @property
    def has_message(self) -> bool:
        """Whether the first message is complete. Its prefix is not checked."""
        return len(self._bytes) >= self._first_bytes

    @property
    def has_second(self) -> bool:
        """Whether bytes follow the first message."""
        return len(self._bytes) > self._first_bytes

    @property
    def size(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data

    def check(self) -> None:
        """Raise MessageError if the first prefix is invalid."""
        if len(self._bytes) >= PREFIX_BYTES:
            flag, length = unpack_prefix(self._bytes)
            check_prefix(flag, length, self._message_bytes_max)

    def take(self) -> tuple[int, bytes] | None:
        """The next message with its compressed flag, None if it is incomplete.

        A compressed one stays here until `drop_first`. Raises MessageError at an invalid prefix.
        """
        received = self._bytes
        if len(received) < PREFIX_BYTES:
            return None
        flag, length = unpack_prefix(received)
        if flag > 1 or length > self._message_bytes_max:
            check_prefix(flag, length, self._message_bytes_max)
        end = PREFIX_BYTES + length
        if len(received) < end:
            return None
        payload = bytes(received[PREFIX_BYTES:end])
        if not flag:
            del received[:end]
        return flag, payload

    def drop_first(self) -> int:
        """Remove the first message; return its size, with its prefix."""
        size = self._first_bytes
        del self._bytes[:size]
        return size

    def take_rest(self) -> bytes:
        rest = bytes(self._bytes)
        self._bytes.clear()
        return rest


def check_prefix(flag: int, length: int, message_bytes_max: int) -> None:
    """Raise MessageError for an unknown flag or a message over the limit."""
    if flag > 1:
        raise _invalid(f"message has compressed flag {flag}, wanted 0 or 1")
    if length > message_bytes_max:
        raise too_large(length, message_bytes_max)
