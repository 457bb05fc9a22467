"""Parser of large messages in steps, so that no step is long.

protobuf parses a message in one call: 1 MB of empty elements takes 40 ms, and memory 50 times its
size. But a message is the concatenation of its fields, and may be merged from parts of it. So the
bytes are split between fields, and inside a large field between the fields of that message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from collections.abc import Generator

    from google.protobuf.descriptor import FieldDescriptor

    from proxyless.protos import Proto

# Bytes that are merged in one call.
PART_BYTES_MAX: Final = 16 * 1024
# Bytes of a map's entry, which cannot be split. Most are extensions, which protobuf copies.
MAP_ENTRY_BYTES_MAX: Final = 256 * 1024
# Bytes of a text, such as the nonce and the version of a response: they are sent back, and shown.
TEXT_BYTES_MAX: Final = 256 * 1024
# Fields of the large messages: elements of lists, above all.
FIELDS_MAX: Final = 500_000

# Work of one step, in units of about a microsecond.
_WORK_PER_PART: Final = 20
_FIELDS_PER_WORK: Final = 2
_BYTES_PER_WORK: Final = 32

# Wire types (protobuf encoding).
_VARINT: Final = 0
_FIXED_64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED_32: Final = 5

_MORE: Final = 0x80
_VARINT_BITS_MAX: Final = 70


class TooLargeError(DecodeError):
    """A message has more elements than are accepted. The text names them."""


def merge_in_steps(message: Proto, serialized: bytes) -> Generator[int, None, None]:
    """Merge a serialized message; yields the work of each step. Raises DECODE_ERRORS.

    The result is that of `message.MergeFromString(serialized)`.
    """
    if len(serialized) <= PART_BYTES_MAX:
        message.MergeFromString(serialized)
        return
    yield from _Merger(serialized).merge(message, 0, len(serialized))


class _Merger:
    """Merges parts of `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields_left = FIELDS_MAX

    def merge(self, message: Proto, start: int, stop: int) -> Generator[int, None, None]:
        data = self._data
        # The next part is data[start:at], with this many fields.
        at, fields = start, 0
        while at < stop:
            field_start = at
            # Most tags and sizes are one byte, and there are thousands.
            tag = data[at]
            at += 1
            if tag >= _MORE:
                tag, at = _read_varint(data, field_start)
            wire_type = tag & 7
            if wire_type == _LENGTH_DELIMITED:
                size, at = _read_varint(data, at)
                if size > PART_BYTES_MAX:
                    if at + size > stop:
                        raise DecodeError("a field is longer than its message")
                    field = _find_message_field(message, tag >> 3, size)
                    if field is not None:
                        # The elements of a list keep their order.
                        yield self._merge_part(message, start, field_start, fields)
                        yield from self.merge(_add_child(message, field), at, at + size)
                        start, fields = at + size, 0
                at += size
            else:
                at = _skip_number(data, at, wire_type)
            fields += 1
            if at - start >= PART_BYTES_MAX:
                if at > stop:
                    break
                yield self._merge_part(message, start, at, fields)
                start, fields = at, 0
        if at > stop:
            raise DecodeError("a field is longer than its message")
        yield self._merge_part(message, start, stop, fields)

    def _merge_part(self, message: Proto, start: int, stop: int, fields: int) -> int:
        self._fields_left -= fields
        if self._fields_left < 0:
            raise TooLargeError(f"has more than {FIELDS_MAX} elements")
        if stop > start:
            message.MergeFromString(self._data[start:stop])
        # More bytes than those of a part are one text, or the bytes of an Any, which are copied.
        parsed = min(stop - start, PART_BYTES_MAX)
        return _WORK_PER_PART + fields // _FIELDS_PER_WORK + parsed // _BYTES_PER_WORK


def _find_message_field(message: Proto, number: int, size: int) -> FieldDescriptor | None:
    """The field with this number if it is a message, and so can be split."""
    field: FieldDescriptor | None = message.DESCRIPTOR.fields_by_number.get(number)
    if field is None:
        return None
    if field.message_type is not None and not _is_map(message, field):
        return field
    # Anything else is copied by protobuf, in one call.
    if field.message_type is not None:
        size_max = MAP_ENTRY_BYTES_MAX
    elif field.type == field.TYPE_STRING:
        size_max = TEXT_BYTES_MAX
    else:
        return None
    if size > size_max:
        found = f"has {size} bytes in one value of {field.name}"
        raise TooLargeError(f"{found}, wanted at most {size_max}")
    return None


def _is_map(message: Proto, field: FieldDescriptor) -> bool:
    """Whether a field of messages is a map: neither one message nor a list of them.

    The options of a descriptor say the same, but protobuf imports its implementation in Python for
    them, which takes 20 ms while the first large response is waiting.
    """
    value = getattr(message, field.name)
    return not isinstance(value, Message) and not hasattr(value, "add")


def _add_child(message: Proto, field: FieldDescriptor) -> Proto:
    """The message that a field's bytes are merged into."""
    child = getattr(message, field.name)
    if not isinstance(child, Message):
        # A list. (`is_repeated` of a field is newer than the oldest supported protobuf.)
        return child.add()
    child.SetInParent()
    return child


def _skip_number(data: bytes, at: int, wire_type: int) -> int:
    """The end of a field that is a number."""
    if wire_type == _VARINT:
        return _read_varint(data, at)[1]
    if wire_type in (_FIXED_32, _FIXED_64):
        return at + (4 if wire_type == _FIXED_32 else 8)
    raise DecodeError(f"a field has wire type {wire_type}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    try:
        value = data[at]
        at += 1
        if value < _MORE:
            return value, at
        value &= _MORE - 1
        shift = 7
        while shift < _VARINT_BITS_MAX:
            byte = data[at]
            at += 1
            value |= (byte & (_MORE - 1)) << shift
            if byte < _MORE:
                return value, at
            shift += 7
    except IndexError:
        raise DecodeError("a number is cut off") from None
    raise DecodeError("a number has more than 64 bits")
