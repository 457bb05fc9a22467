"""How do messages become the bytes of a stream, and back?

Specs: gRPC over HTTP/2 ("Length-Prefixed-Message"), gRPC compression.

A message is a flag (compressed or not), four bytes of length, and the payload. The frames of a
stream cut this anywhere; `MessageAssembler` puts it together again and never holds more than one
message of the allowed size and one frame. `HeldMessages` keeps what nobody wants yet as it came.
"""

import zlib
from collections.abc import Generator
from struct import Struct
from typing import Final

from proxyless.base.status import Status, StatusCode

PREFIX_BYTES: Final = 5
_PREFIX: Final = Struct(">BI")
pack_prefix = _PREFIX.pack
unpack_prefix = _PREFIX.unpack_from
# A chunk costs about 50 bytes beside its content: a peer that sends tiny ones must not multiply
# the size of a message.
_CHUNKS_MAX: Final = 1024
# The head of a DATA frame and the prefix of the message that starts it, packed in one go.
pack_data_and_prefix = Struct(">IBIBI").pack

# zlib's window sizes: 31 writes and reads the gzip container, 15 zlib's own ("deflate" in HTTP).
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
ENCODINGS: Final = frozenset(_WINDOW_BITS)


class MessageError(Exception):
    """A message cannot be delivered; its stream ends with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


def too_large(size: int, limit: int) -> MessageError:
    # The words of grpcio, which people search for.
    text = f"Received message larger than max ({size} vs. {limit})"
    return MessageError(Status(StatusCode.RESOURCE_EXHAUSTED, text))


def compress(encoding: str, message: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=_WINDOW_BITS[encoding])
    return compressor.compress(message) + compressor.flush()


def decompress(encoding: str, payload: bytes, message_bytes_max: int) -> bytes:
    """The message, without ever holding more than one byte over the limit."""
    window_bits = _WINDOW_BITS.get(encoding)
    if window_bits is None:
        text = f"message is compressed, but grpc-encoding is {encoding!r}"
        raise MessageError(Status(StatusCode.INTERNAL, text))
    decompressor = zlib.decompressobj(wbits=window_bits)
    try:
        message = decompressor.decompress(payload, message_bytes_max + 1)
    except zlib.error as error:
        text = f"message is not valid {encoding}: {error}"
        raise MessageError(Status(StatusCode.INTERNAL, text)) from error
    if len(message) > message_bytes_max:
        raise too_large(len(message), message_bytes_max)
    if not decompressor.eof:
        text = f"message is not valid {encoding}: it ends too early"
        raise MessageError(Status(StatusCode.INTERNAL, text))
    if decompressor.unused_data:
        text = f"message is not valid {encoding}: something follows it"
        raise MessageError(Status(StatusCode.INTERNAL, text))
    return message


class MessageAssembler:
    """Cuts the bytes of one stream into messages. Driven by the stream's DATA frames."""

    __slots__ = ("_chunks", "_message_bytes_max", "_size", "_wanted")

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._chunks: list[bytes] = []
        self._size = 0
        # Bytes that must be here before looking again makes sense.
        self._wanted = PREFIX_BYTES

    @property
    def is_partial(self) -> bool:
        return self._size > 0

    def feed(self, data: bytes) -> Generator[tuple[int, bytes], None, None]:
        """The messages that `data` completes, each with its compressed flag.

        Raises MessageError after them if a prefix announces what we will not take. Who closes
        the generator leaves the rest here, for `take_rest`.
        """
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks = [b"".join(self._chunks)]
            return
        data = b"".join(self._chunks)
        at, self._wanted = 0, PREFIX_BYTES
        try:
            while len(data) - at >= PREFIX_BYTES:
                flag, length = unpack_prefix(data, at)
                check_prefix(flag, length, self._message_bytes_max)
                start, end = at + PREFIX_BYTES, at + PREFIX_BYTES + length
                if end > len(data):
                    self._wanted = PREFIX_BYTES + length
                    break
                at = end
                yield flag, data[start:end]
        finally:
            rest = data[at:]
            self._chunks = [rest] if rest else []
            self._size = len(rest)

    def take_rest(self) -> bytes:
        """What is not a message yet, or was not iterated."""
        rest, self._chunks, self._size = b"".join(self._chunks), [], 0
        return rest


class HeldMessages(MessageAssembler):
    """Messages that came while their listener wanted no more, packed as they came.

    A compressed message may be a thousand times as long as what it was on the wire, so only what
    is packed is bounded by the window. Driven by DATA frames, which add, and by the stream's
    owner, who takes.
    """

    __slots__ = ("_bytes", "is_being_taken")

    def __init__(self, message_bytes_max: int, packed: bytes) -> None:
        super().__init__(message_bytes_max)
        # The owner's: taking a message may lead to taking the next one.
        self.is_being_taken = False
        # Cheap to add to at its end, and to take from at its beginning.
        self._bytes = bytearray(packed)

    @property
    def is_partial(self) -> bool:
        """Whether the last message is cut; those before it are not looked at."""
        at = 0
        while len(self._bytes) - at >= PREFIX_BYTES:
            at += PREFIX_BYTES + unpack_prefix(self._bytes, at)[1]
        return at != len(self._bytes)

    @property
    def size(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> tuple[int, bytes] | None:
        """The next message with its compressed flag, None if none is complete.

        Raises MessageError as `feed` of other assemblers does.
        """
        if len(self._bytes) < PREFIX_BYTES:
            return None
        flag, length = unpack_prefix(self._bytes)
        check_prefix(flag, length, self._message_bytes_max)
        end = PREFIX_BYTES + length
        if len(self._bytes) < end:
            return None
        payload = bytes(self._bytes[PREFIX_BYTES:end])
        del self._bytes[:end]
        return flag, payload

    def take_rest(self) -> bytes:
        rest = bytes(self._bytes)
        self._bytes.clear()
        return rest


def check_prefix(flag: int, length: int, message_bytes_max: int) -> None:
    """Raise MessageError for what we will not take."""
    if flag > 1:
        text = f"message has compressed flag {flag}, wanted 0 or 1"
        raise MessageError(Status(StatusCode.INTERNAL, text))
    if length > message_bytes_max:
        raise too_large(length, message_bytes_max)
