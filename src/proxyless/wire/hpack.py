"""HPACK: encoder and decoder of header blocks, and a cache of decoded blocks.

Specs: RFC 7541.

We announce SETTINGS_HEADER_TABLE_SIZE 0 and never index what we send, so there is no dynamic table
on either side and the same bytes always mean the same fields. So both directions can cache:
`HeaderDecoder` looks a repeated block up in a dictionary, and senders keep encoded blocks as plain
bytes that can be concatenated.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from proxyless.wire.errors import ErrorCode, RemoteProtocolError

Field = tuple[bytes, bytes]
T = TypeVar("T")

CACHED_BLOCKS_MAX: Final = 512
CACHED_BLOCK_BYTES_MAX: Final = 1024
# A field of the static table is one octet on the wire and two hundred bytes in memory.
CACHED_BLOCK_FIELDS_MAX: Final = 32
CACHED_NAMES_MAX: Final = 256
# "An entry's size is the sum of its name's length …, its value's length …, and 32" - RFC 7541 4.1
FIELD_OVERHEAD_BYTES: Final = 32
# Size updates at the start of a block, which are not part of the list: "at most two" of six octets
# each - RFC 7541 4.2
_SIZE_UPDATE_BYTES_MAX: Final = 12
# "The initial value is 4,096 octets" - RFC 9113 6.5.2, SETTINGS_HEADER_TABLE_SIZE
TABLE_BYTES_DEFAULT: Final = 4096

# RFC 7541 appendix A: entries 1 to 61, each a name or name=value.
STATIC_TABLE: Final[tuple[Field, ...]] = tuple(
    (name, value)
    for name, _, value in (
        entry.partition(b"=")
        for entry in (
            b":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http"
            b"|:scheme=https|:status=200|:status=204|:status=206|:status=304|:status=400"
            b"|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate"
            b"|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow"
            b"|authorization|cache-control|content-disposition|content-encoding"
            b"|content-language|content-length|content-location|content-range|content-type"
            b"|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since"
            b"|if-none-match|if-range|if-unmodified-since|last-modified|link|location"
            b"|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh"
            b"|retry-after|server|set-cookie|strict-transport-security|transfer-encoding"
            b"|user-agent|vary|via|www-authenticate"
        ).split(b"|")
    )
)
_STATIC_FIELDS: Final = {field: index for index, field in enumerate(STATIC_TABLE, start=1)}
_STATIC_NAMES: Final = {
    name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, start=1)))
}
# "Never indexed" keeps intermediaries from putting a secret into a compression context.
_SENSITIVE: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
_WITHOUT_INDEXING: Final = 0x00
_NEVER_INDEXED: Final = 0x10
# No length or index in a block we would accept needs more continuation octets.
_INTEGER_OCTETS_MAX: Final = 4
# "A field block that follows an acknowledgment of the reduction to the maximum dynamic table size"
# has to start with a size update (RFC 9113 4.3.1). We do not track acknowledgments: this one octet
# at the start of every block is always correct.
WITHOUT_TABLE: Final = b"\x20"


class HeaderListTooLarge(Exception):  # noqa: N818 - a condition of one stream, not an error type
    """A block decodes to more than the limit: an error of one stream, not of the connection."""


# Sending


def _encode_integer(value: int, prefix_bits: int, first: int) -> bytes:
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((first | value,))
    out = bytearray((first | limit,))
    value -= limit
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(name: bytes, value: bytes) -> bytes:
    """One field: an index into the static table, or a literal."""
    index = _STATIC_FIELDS.get((name, value))
    if index is not None:
        return _encode_integer(index, 7, 0x80)
    size = len(value)
    if size < 0x7F:
        # Most values: their size is one octet.
        return b"%b%c%b" % (_encode_name(name), size, value)
    return _encode_name(name) + _encode_integer(size, 7, 0x00) + value


@lru_cache(CACHED_NAMES_MAX)
def _encode_name(name: bytes) -> bytes:
    """The part of a literal before its value: the names of an application are few."""
    first = _NEVER_INDEXED if name in _SENSITIVE else _WITHOUT_INDEXING
    name_index = _STATIC_NAMES.get(name)
    if name_index is not None:
        return _encode_integer(name_index, 4, first)
    return bytes((first,)) + _encode_integer(len(name), 7, 0x00) + name


def encode_fields(fields: Iterable[Field]) -> bytes:
    return b"".join([encode_field(name, value) for name, value in fields])


# Receiving


def _compression_error(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, f"header block is not HPACK: {text}")


class DynamicTable:
    """Dynamic table of a decoder, for a peer that has not acknowledged our table size 0 yet."""

    def __init__(self, size_limit: int) -> None:
        self._size_limit = self._size_max = size_limit
        self._size = 0
        self._fields: deque[Field] = deque()

    def set_size_max(self, size_max: int) -> None:
        if size_max > self._size_limit:
            raise _compression_error("table size update not allowed")
        self._size_max = size_max
        self._evict()

    def add(self, field: Field) -> None:
        size = _size_of(field)
        if size > self._size_max:
            # "an attempt to add an entry larger than the maximum size causes the table to be
            # emptied of all existing entries" - RFC 7541 4.4
            self._fields.clear()
            self._size = 0
            return
        self._fields.appendleft(field)
        self._size += size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._size_max:
            self._size -= _size_of(self._fields.pop())

    def get(self, index: int) -> Field:
        """The field of an index into the static table followed by this one."""
        if not 1 <= index <= len(STATIC_TABLE) + len(self._fields):
            raise _compression_error(f"index {index} is not in the table")
        if index <= len(STATIC_TABLE):
            return STATIC_TABLE[index - 1]
        return self._fields[index - len(STATIC_TABLE) - 1]


def _size_of(field: Field) -> int:
    return len(field[0]) + len(field[1]) + FIELD_OVERHEAD_BYTES


# Shared by all threads: a table of size 0 never changes.
_NO_TABLE: Final = DynamicTable(0)


def _decode_integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """An integer and the position after it. IndexError where the block ends too early."""
    limit = (1 << prefix_bits) - 1
    value = block[at] & limit
    at += 1
    if value < limit:
        return value, at
    for octet in range(_INTEGER_OCTETS_MAX):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << (7 * octet)
        if byte < 0x80:
            return value, at
    raise _compression_error("integer too long")


def _decode_string(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] & 0x80
    length, at = _decode_integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise IndexError
    text = block[at:end]
    if is_huffman:
        from proxyless.wire.huffman import decode_huffman  # noqa: PLC0415 - many peers do not use it

        text = decode_huffman(text)
    return text, end


def _decode_one(block: bytes, at: int, table: DynamicTable) -> tuple[Field, int]:
    first = block[at]
    if first & 0x80:
        index, at = _decode_integer(block, at, 7)
        return table.get(index), at
    is_indexed = first & 0x40
    name_index, at = _decode_integer(block, at, 6 if is_indexed else 4)
    if name_index:
        name = table.get(name_index)[0]
    else:
        name, at = _decode_string(block, at)
    value, at = _decode_string(block, at)
    if is_indexed:
        table.add((name, value))
    return (name, value), at


def block_bytes_max(header_list_bytes_max: int) -> int:
    """Size above which a block is taken for a header list over the limit, without decoding it.

    A field takes fewer octets in a block than it counts in the list, unless its Huffman code is
    longer than the string itself. Encoders send that string as it is, so a block with more octets
    than the list may have is a list that is too large, or an attack: decoding Huffman is slow.
    """
    return header_list_bytes_max + _SIZE_UPDATE_BYTES_MAX


def decode_fields(
    block: bytes, header_list_bytes_max: int, table: DynamicTable = _NO_TABLE
) -> list[Field]:
    """The fields of a block.

    Raises RemoteProtocolError if it is not HPACK, HeaderListTooLarge if it is over the limit; after
    either, `table` is not usable any more.
    """
    fields: list[Field] = []
    size, at, end = 0, 0, len(block)
    if end > block_bytes_max(header_list_bytes_max):
        raise HeaderListTooLarge
    try:
        while at < end:
            if block[at] & 0xE0 == 0x20:
                table_bytes, at = _decode_integer(block, at, 5)
                if fields:
                    raise _compression_error("table size update not allowed")
                table.set_size_max(table_bytes)
                continue
            field, at = _decode_one(block, at, table)
            size += _size_of(field)
            if size > header_list_bytes_max:
                raise HeaderListTooLarge
            fields.append(field)
    except IndexError:
        raise _compression_error("it ends in the middle of a field") from None
    except ValueError as error:
        raise _compression_error(str(error)) from error
    return fields


class HeaderDecoder(Generic[T]):
    """Decodes header blocks, parses their fields with `parse`, and caches the results."""

    __slots__ = ("_cache", "_header_list_bytes_max", "_parse", "cached")

    def __init__(self, parse: Callable[[list[Field]], T], header_list_bytes_max: int) -> None:
        self._parse = parse
        self._header_list_bytes_max = header_list_bytes_max
        self._cache: dict[bytes, T] = {}
        # The lookup alone, for the hot path: None for a block that is not cached.
        self.cached = self._cache.get

    def decode(self, block: bytes) -> T:
        """The parsed fields of a block. Raises as `decode_fields` does."""
        parsed = self._cache.get(block)
        if parsed is None:
            fields = decode_fields(block, self._header_list_bytes_max)
            parsed = self._parse(fields)
            # A binary field has as many values as commas, and one.
            commas = [value.count(b",") for name, value in fields if name.endswith(b"-bin")]
            values = len(fields) + sum(commas)
            if len(block) <= CACHED_BLOCK_BYTES_MAX and values <= CACHED_BLOCK_FIELDS_MAX:
                if len(self._cache) >= CACHED_BLOCKS_MAX:
                    self._cache.clear()
                self._cache[block] = parsed
        return parsed
