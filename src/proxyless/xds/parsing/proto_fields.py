"""Parsers of protobuf fields that many messages share: durations, wrappers, extensions.

A function that takes `errors` adds each error at the current path and returns a placeholder: its
result is valid only if no error was added. None of them raises. Errors inside an extension are
added at `errors.key(extension.type_name)`.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base.frozen import frozen
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.xds.parsing.limits import PART_WORK_MAX, REGEX_WORK_MAX
from proxyless.xds.resources.matcher import Fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence, Sized

    from proxyless.base import ValidationErrors

T = TypeVar("T")

# The range of google.protobuf.Duration: about 10,000 years.
DURATION_SECONDS_MAX: Final = 315_576_000_000
DURATION_NANOS_MAX: Final = 999_999_999

UINT32_MAX: Final = 2**32 - 1

_MILLION: Final = 1_000_000
# The enum FractionalPercent.DenominatorType.
_DENOMINATORS: Final = {0: 100, 1: 10_000, 2: _MILLION}

_TYPED_STRUCTS: Final = frozenset({"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"})

# The largest integer up to which a double holds every integer.
_EXACT_MAX: Final = 2**53

# Work (`ValidationErrors.work`).
_ELEMENT_WORK: Final = 2
_VALUE_WORK: Final = 2
_EXTENSION_WORK: Final = 5
_EXTENSION_BYTES_PER_WORK: Final = 8
_REGEX_WORK: Final = 30
_REGEX_INSTRUCTIONS_PER_WORK: Final = 8
# RE2 works for as long as this until it rejects an expression with repetitions or Unicode classes.
_INVALID_REGEX_WORK: Final = 10_000
# An invalid expression uses up the limit faster.
_INVALID_REGEX_FACTOR: Final = 10


def add_error(errors: ValidationErrors, field: str, text: str) -> None:
    """Add an error at a field of the current path; `field` may be a path such as `a.b[0]`."""
    with errors.field(field):
        errors.add(text)


def spend_work(work: int, errors: ValidationErrors) -> bool:
    """Count work. False adds an error: the current part of the resource takes too much of it."""
    errors.work += work
    if errors.work <= PART_WORK_MAX:
        return True
    errors.add("is too large or has too many elements, wanted less in one place")
    return False


# Numbers and times


def parse_duration_s(duration: Proto, errors: ValidationErrors) -> float:
    """The seconds of a Duration, which must not be negative."""
    seconds: int = duration.seconds
    nanos: int = duration.nanos
    if not 0 <= seconds <= DURATION_SECONDS_MAX:
        add_error(errors, "seconds", f"is {seconds}, wanted 0 to {DURATION_SECONDS_MAX}")
        return 0.0
    if not 0 <= nanos <= DURATION_NANOS_MAX:
        add_error(errors, "nanos", f"is {nanos}, wanted 0 to {DURATION_NANOS_MAX}")
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
    """The denominator of a FractionalPercent: 100, 10,000 or a million."""
    denominator = _DENOMINATORS.get(percent.denominator)
    if denominator is None:
        text = f"is {percent.denominator}, wanted HUNDRED, TEN_THOUSAND or MILLION"
        add_error(errors, "denominator", text)
        return _MILLION
    return denominator


def parse_fraction(percent: Proto, errors: ValidationErrors) -> Fraction:
    """A FractionalPercent, at most 1."""
    scale = _MILLION // read_denominator(percent, errors)
    return Fraction(min(percent.numerator * scale, _MILLION))


# Texts and lists


def check_regex(source: str, errors: ValidationErrors) -> None:
    """Add an error unless RE2 accepts the source."""
    from proxyless.xds.resources.regex import (  # noqa: PLC0415 - few meshes have any
        compile_regex,
        count_instructions,
        is_compiled,
    )

    was_compiled = is_compiled(source)
    if not was_compiled and not _may_compile(errors):
        return
    work = _REGEX_WORK + 2 * len(source)
    factor = 1
    try:
        work += count_instructions(compile_regex(source)) // _REGEX_INSTRUCTIONS_PER_WORK
    except ValueError as error:
        errors.add(f"is not a valid regular expression: {error}")
        if "{" in source or "\\" in source:
            work, factor = _INVALID_REGEX_WORK, _INVALID_REGEX_FACTOR
    if not was_compiled:
        errors.work += work
        errors.regex_work += work * factor


def _may_compile(errors: ValidationErrors) -> bool:
    """Whether the work for one more expression is within the limits; adds an error if not."""
    if errors.regex_work > REGEX_WORK_MAX:
        errors.add("is not checked: the resource has too many regular expressions")
        return False
    return spend_work(0, errors)


def check_count(elements: Sized, count_max: int, errors: ValidationErrors) -> bool:
    """Whether there are at most `count_max` elements; adds an error if not."""
    if len(elements) <= count_max:
        return True
    errors.add(f"has {len(elements)} elements, wanted at most {count_max}")
    return False


def parse_list(
    messages: Sequence[Proto],
    count_max: int | None,
    parse: Callable[[Proto, ValidationErrors], T | None],
    errors: ValidationErrors,
) -> tuple[T, ...]:
    """The results for the elements that are not None; empty if there are too many elements."""
    if count_max is not None and not check_count(messages, count_max, errors):
        return ()
    results: list[T] = []
    for index, message in enumerate(messages):
        with errors.index(index):
            result = parse(message, errors)
        if result is not None:
            results.append(result)
        if errors.is_full or not spend_work(_ELEMENT_WORK, errors):
            break
    return tuple(results)


def check_config_source(source: Proto, errors: ValidationErrors) -> None:
    """Add an error unless the source is the ADS stream of the message itself (A27-15)."""
    kind = source.WhichOneof("config_source_specifier")
    if kind not in ("ads", "self"):
        errors.add(f"is {kind or 'unset'}, wanted ads or self")


def check_unique_name(name: str, names: Container[str], errors: ValidationErrors) -> None:
    """Add an error at the field `name` if it is empty or one of `names`."""
    if not name or name in names:
        text = f"is {name!r} again, wanted a unique one" if name else "is empty"
        add_error(errors, "name", text)


# Extensions


@frozen
class Extension:
    """Content of an Any: a serialized message, or the JSON object of a TypedStruct (A39)."""

    # The full name of the message type.
    type_name: str
    value: bytes | Mapping[str, object]


def unwrap_any(any_message: Proto, errors: ValidationErrors) -> Extension | None:
    """The content of a google.protobuf.Any. None adds an error."""
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
    """The message, or the JSON object of a TypedStruct. None adds an error."""
    if not isinstance(extension.value, bytes):
        return extension.value
    with errors.key(extension.type_name):
        return _decode(extension.type_name, extension.value, errors)


def decode_any_as(full_name: str, any_message: Proto, errors: ValidationErrors) -> Proto | None:
    """The message of this type in an Any. None adds an error, such as for another type."""
    extension = unwrap_any(any_message, errors)
    if extension is None:
        return None
    if extension.type_name != full_name or not isinstance(extension.value, bytes):
        form = "" if isinstance(extension.value, bytes) else "a TypedStruct of "
        errors.add(f"is {form}{extension.type_name}, wanted {full_name}")
        return None
    return decode_extension(extension, errors)


def parse_extension(
    parse: Callable[[Proto | Mapping[str, object], ValidationErrors], T],
    extension: Extension,
    errors: ValidationErrors,
) -> T | None:
    """The result of an application's parser. None adds an error."""
    message = decode_extension(extension, errors)
    if message is None:
        return None
    with errors.key(extension.type_name):
        try:
            return parse(message, errors)
        except Exception as error:  # A bug in the parser must reject the resource only.
            errors.add(f"its parser raised {type(error).__name__}: {error}")
            return None


def _read_type_name(holder: Proto, errors: ValidationErrors) -> str:
    """The name in the type_url of an Any or a TypedStruct; empty adds an error."""
    _, slash, name = holder.type_url.rpartition("/")
    if not slash or not name:
        text = f"is {holder.type_url!r}, wanted one such as 'host/package.Type'"
        add_error(errors, "type_url", text)
        return ""
    return str(name)


def _decode(full_name: str, serialized: bytes, errors: ValidationErrors) -> Proto | None:
    work = _EXTENSION_WORK + len(serialized) // _EXTENSION_BYTES_PER_WORK
    if not spend_work(work, errors):
        return None
    try:
        return message_class(full_name).FromString(serialized)
    except KeyError:
        errors.add("is of a type that is not known here, wanted one that is, or a TypedStruct")
    except DECODE_ERRORS:
        errors.add(f"cannot be decoded as {full_name}")
    return None


# protobuf decodes at most 100 nested messages, which bounds the recursion below.


def _read_struct(struct: Proto, errors: ValidationErrors) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in struct.fields.items():
        with errors.key(key):
            fields[key] = _read_value(value, errors)
        if errors.is_full or not spend_work(_VALUE_WORK, errors):
            break
    return fields


def _read_list(values: Proto, errors: ValidationErrors) -> list[object]:
    elements: list[object] = []
    for index, value in enumerate(values.values):
        with errors.index(index):
            elements.append(_read_value(value, errors))
        if errors.is_full or not spend_work(_VALUE_WORK, errors):
            break
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
    """An int where the value is exact: a Struct has only doubles."""
    if not isfinite(number):
        errors.add(f"is {number}, wanted a finite number")
        return 0
    return int(number) if number.is_integer() and abs(number) <= _EXACT_MAX else number
