"""What does a message say in a field, and what is wrong there?

What parsers of Envoy's messages share. A function that takes `errors` adds what it dislikes, at the
current path, and returns something harmless: what was made counts only if nothing was added.

- `read_duration_s`, `read_uint32`: a field that may be unset. `parse_duration_s`: one that is set.
- `parse_fraction`: a FractionalPercent. `check_regex`: RE2 source. `check_count`: a list's bound.
- `check_config_source`: resources come from the stream that named them (A27-15).
- `unwrap_any`: an Any, or the TypedStruct in it, becomes an `Extension`: the name of its type and
  its bytes or JSON object. `decode_extension` makes a message of it; `decode_any_as` takes only one
  of a certain type. Errors inside an extension stand at `errors.key(extension.type_name)`.
- `guard_parser`: an application's own parser may raise; nothing else here does.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from proxyless.base.frozen import frozen
from proxyless.protos import Proto, message_class
from proxyless.xds.resources.matcher import Fraction
from proxyless.xds.resources.regex import compile_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized

    from proxyless.base import ValidationErrors

T = TypeVar("T")

# The range of google.protobuf.Duration: about 10,000 years.
DURATION_SECONDS_MAX: Final = 315_576_000_000
DURATION_NANOS_MAX: Final = 999_999_999

UINT32_MAX: Final = 2**32 - 1

_MILLION: Final = 1_000_000
# By the number of the enum FractionalPercent.DenominatorType.
_DENOMINATORS: Final = {0: 100, 1: 10_000, 2: _MILLION}

_TYPED_STRUCTS: Final = frozenset({"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"})

# Above it a double does not hold every integer.
_EXACT_MAX: Final = 2**53


# Numbers and times


def parse_duration_s(duration: Proto, errors: ValidationErrors) -> float:
    """The seconds of a Duration that is there; 0 is the least."""
    seconds: int = duration.seconds
    nanos: int = duration.nanos
    if not 0 <= seconds <= DURATION_SECONDS_MAX:
        with errors.field("seconds"):
            errors.add(f"is {seconds}, wanted 0 to {DURATION_SECONDS_MAX}")
        return 0.0
    if not 0 <= nanos <= DURATION_NANOS_MAX:
        with errors.field("nanos"):
            errors.add(f"is {nanos}, wanted 0 to {DURATION_NANOS_MAX}")
        return 0.0
    return seconds + nanos / 1e9


def read_duration_s(message: Proto, field: str, errors: ValidationErrors) -> float | None:
    """The seconds of a field of type Duration; None if it is unset."""
    if not message.HasField(field):
        return None
    with errors.field(field):
        return parse_duration_s(getattr(message, field), errors)


def read_uint32(message: Proto, field: str) -> int | None:
    """The number in a field of type UInt32Value; None if it is unset."""
    if not message.HasField(field):
        return None
    value: int = getattr(message, field).value
    return value


def read_denominator(percent: Proto, errors: ValidationErrors) -> int:
    """What a FractionalPercent is a fraction of: 100, 10,000 or a million."""
    denominator = _DENOMINATORS.get(percent.denominator)
    if denominator is None:
        with errors.field("denominator"):
            errors.add(f"is {percent.denominator}, wanted HUNDRED, TEN_THOUSAND or MILLION")
        return _MILLION
    return denominator


def parse_fraction(percent: Proto, errors: ValidationErrors) -> Fraction:
    """A FractionalPercent; more than all is all."""
    worth = _MILLION // read_denominator(percent, errors)
    return Fraction(min(percent.numerator * worth, _MILLION))


# Texts and lists


def check_regex(source: str, errors: ValidationErrors) -> None:
    """Add an error unless RE2 takes the source."""
    try:
        compile_regex(source)
    except ValueError as error:
        errors.add(f"is not a valid regular expression: {error}")


def check_count(elements: Sized, count_max: int, errors: ValidationErrors) -> bool:
    """Whether there are no more than so many; if not, nobody should walk them."""
    if len(elements) <= count_max:
        return True
    errors.add(f"has {len(elements)} elements, wanted at most {count_max}")
    return False


def check_config_source(source: Proto, errors: ValidationErrors) -> None:
    """Add an error unless the source is the stream that the message itself came by (A27-15)."""
    kind = source.WhichOneof("config_source_specifier")
    if kind not in ("ads", "self"):
        errors.add(f"is {kind or 'unset'}, wanted ads or self")


# Extensions


@frozen
class Extension:
    """What an Any holds: a message of some type, or a JSON object in its place (A39)."""

    # The full name of the type, without the host of a type URL.
    type_name: str
    # Serialized; or the object, if it came as a TypedStruct.
    value: bytes | Mapping[str, object]


def unwrap_any(any_message: Proto, errors: ValidationErrors) -> Extension | None:
    """What is in a google.protobuf.Any. None adds an error."""
    type_name = _read_type_name(any_message, errors)
    if type_name in _TYPED_STRUCTS:
        with errors.key(type_name):
            return _unwrap_struct(_decode(type_name, any_message.value, errors), errors)
    return Extension(type_name, any_message.value) if type_name else None


def _unwrap_struct(typed_struct: Proto | None, errors: ValidationErrors) -> Extension | None:
    if typed_struct is None:
        return None
    type_name = _read_type_name(typed_struct, errors)
    with errors.field("value"):
        value = _read_struct(typed_struct.value, errors)
    return Extension(type_name, value) if type_name else None


def decode_extension(
    extension: Extension, errors: ValidationErrors
) -> Proto | Mapping[str, object] | None:
    """The message, or the object as it is. None adds an error."""
    if not isinstance(extension.value, bytes):
        return extension.value
    with errors.key(extension.type_name):
        return _decode(extension.type_name, extension.value, errors)


def decode_any_as(full_name: str, any_message: Proto, errors: ValidationErrors) -> Proto | None:
    """The message of this type that an Any holds; None adds an error if it holds another one."""
    extension = unwrap_any(any_message, errors)
    if extension is None:
        return None
    if extension.type_name != full_name or not isinstance(extension.value, bytes):
        errors.add(f"is {_describe(extension)}, wanted {full_name}")
        return None
    return decode_extension(extension, errors)


def guard_parser(
    parse: Callable[[Proto | Mapping[str, object], ValidationErrors], T],
    message: Proto | Mapping[str, object],
    errors: ValidationErrors,
) -> T | None:
    """What a parser from outside this package makes of a message; it may have bugs of its own."""
    try:
        return parse(message, errors)
    except Exception as error:  # whatever it is, the resource is refused and the client lives on
        errors.add(f"its parser raised {type(error).__name__}: {error}")
        return None


def _describe(extension: Extension) -> str:
    form = "" if isinstance(extension.value, bytes) else "a TypedStruct of "
    return f"{form}{extension.type_name}"


def _read_type_name(holder: Proto, errors: ValidationErrors) -> str:
    """The name in the type_url of an Any or a TypedStruct; empty adds an error."""
    _, slash, name = holder.type_url.rpartition("/")
    if not slash or not name:
        with errors.field("type_url"):
            errors.add(f"is {holder.type_url!r}, wanted one such as 'host/package.Type'")
        return ""
    return str(name)


def _decode(full_name: str, serialized: bytes, errors: ValidationErrors) -> Proto | None:
    try:
        return message_class(full_name).FromString(serialized)
    except KeyError:
        errors.add("is of a type that is not known here, wanted one that is, or a TypedStruct")
    except DecodeError:
        errors.add(f"cannot be decoded as {full_name}")
    return None


# The depth of what follows is bounded: protobuf decodes at most 100 messages inside each other.


def _read_struct(struct: Proto, errors: ValidationErrors) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in struct.fields.items():
        with errors.key(key):
            fields[key] = _read_value(value, errors)
    return fields


def _read_list(values: Proto, errors: ValidationErrors) -> list[object]:
    elements: list[object] = []
    for index, value in enumerate(values.values):
        with errors.index(index):
            elements.append(_read_value(value, errors))
    return elements


def _read_value(value: Proto, errors: ValidationErrors) -> object:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _read_struct(value.struct_value, errors)
        case "list_value":
            return _read_list(value.list_value, errors)
        case "number_value":
            return _read_number(value.number_value, errors)
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return bool(value.bool_value)
        case _:
            return None


def _read_number(number: float, errors: ValidationErrors) -> float:
    """JSON knows one kind of number; what counts something is an integer here."""
    if not isfinite(number):
        errors.add(f"is {number}, wanted a finite number")
        return 0
    return int(number) if number.is_integer() and abs(number) <= _EXACT_MAX else number
