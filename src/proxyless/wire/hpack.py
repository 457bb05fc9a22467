"""How do header fields become bytes, and bytes header fields?

Specs: RFC 7541.

We announce SETTINGS_HEADER_TABLE_SIZE 0 and never index what we send, so there is no dynamic table
on either side and a header block means the same whenever it comes. Both directions can therefore
remember: `HeaderDecoder` looks a repeated block up in a dictionary, and senders keep encoded
blocks as plain bytes that can be concatenated. The static table and the Huffman code are those of
the `hpack` package; its decoder is not used, because without a dynamic table ours is a page long,
linear in the block, and bounds every integer.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from proxyless.wire.errors import ErrorCode, RemoteProtocolError

Field = tuple[bytes, bytes]
T = TypeVar("T")

# A block that carries something of its own every time (an id, a date) must not push out the rest.
CACHED_BLOCKS_MAX: Final = 512
CACHED_BLOCK_BYTES_MAX: Final = 1024
# A field of the static table is one octet on the wire and two hundred bytes in memory.
CACHED_BLOCK_FIELDS_MAX: Final = 32
# "An entry's size is the sum of its name's length …, its value's length …, and 32" - RFC 7541 4.1
FIELD_OVERHEAD_BYTES: Final = 32
# Huffman's longest code has 30 bits, so a block this much larger than its list does not exist.
_BLOCK_BYTES_PER_LIST_BYTE: Final = 4

_STATIC_TABLE: Final[tuple[Field, ...]] = tuple(HeaderTable.STATIC_TABLE)
_STATIC_FIELDS: Final = {field: index for index, field in enumerate(_STATIC_TABLE, start=1)}
_STATIC_NAMES: Final = {
    name: index for index, (name, _) in reversed(list(enumerate(_STATIC_TABLE, start=1)))
}
# "Never indexed" keeps intermediaries from putting a secret into a compression context.
_SENSITIVE: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
_WITHOUT_INDEXING: Final = 0x00
_NEVER_INDEXED: Final = 0x10
# No length or index in a block we would accept needs more continuation octets.
_INTEGER_OCTETS_MAX: Final = 4
# "A field block that follows an acknowledgment of the reduction to the maximum dynamic table size"
# has to start with a size update (RFC 9113 4.3.1). One octet at the start of each block makes it
# right whatever the peer announces, and whenever.
WITHOUT_TABLE: Final = b"\x20"


class HeaderListTooLarge(Exception):  # noqa: N818 - a condition of one stream, not an error type
    """A block decodes to more than we allow; only its stream has to suffer for that."""


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
    """One field, from the static table where it is there, else as a literal."""
    index = _STATIC_FIELDS.get((name, value))
    if index is not None:
        return _encode_integer(index, 7, 0x80)
    first = _NEVER_INDEXED if name in _SENSITIVE else _WITHOUT_INDEXING
    name_index = _STATIC_NAMES.get(name)
    if name_index is not None:
        head = _encode_integer(name_index, 4, first)
    else:
        head = bytes((first,)) + _encode_integer(len(name), 7, 0x00) + name
    return head + _encode_integer(len(value), 7, 0x00) + value


def encode_fields(fields: Iterable[Field]) -> bytes:
    return b"".join([encode_field(name, value) for name, value in fields])


# Receiving


def _compression_error(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, f"header block is not HPACK: {text}")


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
    return (decode_huffman(text) if is_huffman else text), end


def _static_field(index: int) -> Field:
    if not 1 <= index <= len(_STATIC_TABLE):
        raise _compression_error(f"index {index} is not in the table")
    return _STATIC_TABLE[index - 1]


def _decode_one(block: bytes, at: int) -> tuple[Field, int]:
    first = block[at]
    if first & 0x80:
        index, at = _decode_integer(block, at, 7)
        return _static_field(index), at
    # A literal "with incremental indexing" (0x40) differs from the others only in the width of
    # its prefix: with a table of size 0, adding an entry leaves the table empty (RFC 7541 4.4).
    name_index, at = _decode_integer(block, at, 6 if first & 0x40 else 4)
    if name_index:
        name = _static_field(name_index)[0]
    else:
        name, at = _decode_string(block, at)
    value, at = _decode_string(block, at)
    return (name, value), at


def block_bytes_max(header_list_bytes_max: int) -> int:
    """A block larger than this cannot but decode to a larger list."""
    return header_list_bytes_max * _BLOCK_BYTES_PER_LIST_BYTE


def decode_fields(block: bytes, header_list_bytes_max: int) -> list[Field]:
    """The fields of a block made for a dynamic table of size 0.

    Raises RemoteProtocolError if it is not HPACK, HeaderListTooLarge if it is too much.
    """
    fields: list[Field] = []
    size, at, end = 0, 0, len(block)
    if end > block_bytes_max(header_list_bytes_max):
        raise HeaderListTooLarge
    try:
        while at < end:
            if block[at] & 0xE0 == 0x20:
                table_bytes, at = _decode_integer(block, at, 5)
                if table_bytes or fields:
                    raise _compression_error("table size update not allowed")
                continue
            field, at = _decode_one(block, at)
            size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD_BYTES
            if size > header_list_bytes_max:
                raise HeaderListTooLarge
            fields.append(field)
    except IndexError:
        raise _compression_error("it ends in the middle of a field") from None
    except HPACKError as error:
        raise _compression_error(str(error)) from error
    return fields


class HeaderDecoder(Generic[T]):
    """Decodes header blocks and remembers what its owner made of them.

    `understand` turns the fields of a block into the owner's value; it runs once per distinct
    block as long as the block stays remembered.
    """

    __slots__ = ("_header_list_bytes_max", "_understand", "_understood", "known")

    def __init__(self, understand: Callable[[list[Field]], T], header_list_bytes_max: int) -> None:
        self._understand = understand
        self._header_list_bytes_max = header_list_bytes_max
        self._understood: dict[bytes, T] = {}
        # The look-up alone, for the hot path: known(block) is None for a block to decode.
        self.known = self._understood.get

    def decode(self, block: bytes) -> T:
        """What the owner understands of a block. Raises as `decode_fields` does."""
        understood = self._understood.get(block)
        if understood is None:
            fields = decode_fields(block, self._header_list_bytes_max)
            understood = self._understand(fields)
            if len(block) <= CACHED_BLOCK_BYTES_MAX and len(fields) <= CACHED_BLOCK_FIELDS_MAX:
                if len(self._understood) >= CACHED_BLOCKS_MAX:
                    self._understood.clear()
                self._understood[block] = understood
        return understood
