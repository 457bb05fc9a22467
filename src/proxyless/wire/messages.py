"""How do messages become the bytes of a stream, and back?

Specs: gRPC over HTTP/2 ("Length-Prefixed-Message"), gRPC compression.

A message is a flag (compressed or not), four bytes of length, and the payload. The frames of a
stream cut this anywhere; `MessageAssembler` puts it together again and never holds more than one
message of the allowed size and one frame.
"""

import zlib
from collections.abc import Iterator
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

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that `data` completes, each with its compressed flag.

        Raises MessageError after them if a prefix announces what we will not take.
        """
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks = [b"".join(self._chunks)]
            return
        data = b"".join(self._chunks)
        at, self._wanted = 0, PREFIX_BYTES
        while len(data) - at >= PREFIX_BYTES:
            flag, length = unpack_prefix(data, at)
            self._check_prefix(flag, length)
            end = at + PREFIX_BYTES + length
            if end > len(data):
                self._wanted = PREFIX_BYTES + length
                break
            yield flag, data[at + PREFIX_BYTES : end]
            at = end
        rest = data[at:]
        self._chunks = [rest] if rest else []
        self._size = len(rest)

    def _check_prefix(self, flag: int, length: int) -> None:
        if flag > 1:
            text = f"message has compressed flag {flag}, wanted 0 or 1"
            raise MessageError(Status(StatusCode.INTERNAL, text))
        if length > self._message_bytes_max:
            raise too_large(length, self._message_bytes_max)
