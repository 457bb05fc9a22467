"""Reader of JSON objects: typed fields, with every error at its field path.

Bootstraps, service configs, LB policy configs and trust bundles are read with it, by the rules of
protobuf's JSON mapping: a field that is null is absent; 3, 3.0 and "3" are one integer; a duration
is "1.5s"; a name may be spelled in lowerCamelCase or as in the .proto file.

A field with a wrong value reads as absent, with an error at its path. Fields that are not read are
ignored, so a newer document is not an error. Values that are read are valid in protobuf: text is
Unicode, numbers are finite, the depth is bounded.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite
from sys import float_info
from typing import Final, Generic, TypeVar

from proxyless.base.frozen import frozen
from proxyless.base.validation import ValidationErrors

T = TypeVar("T")

# Parsers of protobuf stop at 100 nested messages, and one object of a Struct is three.
DEPTH_MAX: Final = 30
# About 10,000 years: the range of google.protobuf.Duration.
DURATION_MAX_S: Final = 315_576_000_000
UINT32_MAX: Final = 2**32 - 1

# Compiled when they are first used.
_SECONDS: Final = r"([0-9]{1,12})(?:\.([0-9]{1,9}))?s"
# Enough digits for 64 bits; the range of a field is checked by its kind.
_INTEGER: Final = r"-?[0-9]{1,20}"
_NUMBER: Final = r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,3})?"

# Values


def type_name(json: object) -> str:
    """The JSON type of a value, for error texts."""
    match json:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def show_value(value: object) -> str:
    """A wrong value in an error text: a string or number itself, of other values the type."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return repr(value) if is_plain else type_name(value)


def to_integer(value: object) -> int | None:
    """The integer of a number or numeric string; None for other values."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if re.fullmatch(_INTEGER, value):
            return int(value)
        case _:
            return None


def to_number(value: object) -> float | None:
    """The finite number of a number or numeric string; None for other values."""
    if isinstance(value, str) and re.fullmatch(_NUMBER, value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -float_info.max <= value <= float_info.max else None


def to_seconds(value: object) -> float | None:
    """The seconds of a duration that is not negative; None for other values."""
    parts = re.fullmatch(_SECONDS, value) if isinstance(value, str) else None
    if parts is None or int(parts[1]) > DURATION_MAX_S:
        return None
    return int(parts[1]) + int((parts[2] or "").ljust(9, "0")) / 1e9


# Kinds of fields


@frozen
class FieldKind(Generic[T]):
    """A type of field: converts values, or returns None for a value that is not valid."""

    convert: Callable[[object], T | None]
    # For error texts.
    wanted: str


def _instance(kind: type[T]) -> Callable[[object], T | None]:
    return lambda value: value if isinstance(value, kind) else None


def _to_sequence(value: object) -> Sequence[object] | None:
    return value if isinstance(value, list | tuple) else None


def _to_mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, Mapping) else None


def _to_text(value: object) -> str | None:
    return value if isinstance(value, str) and _is_unicode(value) else None


def _is_unicode(text: str) -> bool:
    """Whether it is valid in protobuf: JSON can hold half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def integer(low: int, high: int) -> FieldKind[int]:
    """Integers of this range."""

    def convert(value: object) -> int | None:
        number = to_integer(value)
        return number if number is not None and low <= number <= high else None

    return FieldKind(convert, f"an integer from {low} to {high}")


TEXT: Final = FieldKind(_to_text, "a string")
BOOLEAN: Final = FieldKind(_instance(bool), "a boolean")
LIST: Final = FieldKind(_to_sequence, "a list")
OBJECT: Final = FieldKind(_to_mapping, "an object")
DURATION: Final = FieldKind(to_seconds, "a duration such as '1.5s'")
POSITIVE_DURATION: Final = FieldKind(
    lambda value: to_seconds(value) or None, "a duration above 0 such as '1.5s'"
)

# Objects


class JsonObject:
    """One JSON object, read field by field."""

    __slots__ = ("_fields", "errors")

    def __init__(self, document: object, errors: ValidationErrors) -> None:
        if not isinstance(document, Mapping):
            errors.add(f"is {show_value(document)}, wanted an object")
            document = {}
        self._fields: Mapping[str, object] = document
        self.errors: Final = errors

    def get(self, name: str) -> object:
        """The value of a field, by its name in JSON or, without one, by its name in the proto."""
        value = self._fields.get(name)
        return self._fields.get(_to_snake_case(name)) if value is None else value

    def has(self, name: str) -> bool:
        """Whether the field has a value, right or wrong."""
        return self.get(name) is not None

    def read(self, name: str, kind: FieldKind[T]) -> T | None:
        """The value of a field; None if it is absent or wrong."""
        value = self.get(name)
        if value is None:
            return None
        with self.errors.field(name):
            return self._convert(value, kind)

    def read_or(self, name: str, kind: FieldKind[T], default: T) -> T:
        """The value of a field, or the default if it is absent or wrong."""
        value = self.read(name, kind)
        return default if value is None else value

    def need(self, name: str, kind: FieldKind[T]) -> T | None:
        """The value of a field, whose absence is an error."""
        if not self.has(name):
            self.add(name, f"is missing, wanted {kind.wanted}")
        return self.read(name, kind)

    def text(self, name: str) -> str:
        """The string in this field, or the empty one."""
        return self.read_or(name, TEXT, "")

    def need_text(self, name: str) -> str:
        """The string in this field, which must not be empty."""
        if self.get(name) in (None, ""):
            self.add(name, "is missing or empty, wanted a string")
        return self.text(name)

    def elements(self, name: str, kind: FieldKind[T], count_max: int | None = None) -> Iterator[T]:
        """Yield the elements of a list; one that is not of this kind is an error.

        Errors that the caller adds during an iteration are at the path of the element.
        """
        values = self.read(name, LIST) or ()
        if count_max is not None and len(values) > count_max:
            self.add(name, f"has {len(values)} elements, wanted at most {count_max}")
            return
        for index, value in enumerate(values):
            with self.errors.field(name), self.errors.index(index):
                element = self._convert(value, kind)
                if element is not None:
                    yield element

    def objects(self, name: str, count_max: int | None = None) -> "Iterator[JsonObject]":
        """Yield the objects of a list, as `elements` does."""
        for fields in self.elements(name, OBJECT, count_max):
            yield JsonObject(fields, self.errors)

    def entries(
        self, name: str, count_max: int | None = None
    ) -> "Iterator[tuple[str, JsonObject]]":
        """Yield the objects of a map with their keys; a value of another type is an error.

        Errors that the caller adds during an iteration are at the path of the entry.
        """
        entries = self.read_or(name, OBJECT, {})
        if count_max is not None and len(entries) > count_max:
            self.add(name, f"has {len(entries)} entries, wanted at most {count_max}")
            return
        for key, value in entries.items():
            with self.errors.field(name), self.errors.key(str(key)):
                fields = self._convert(value, OBJECT)
                if fields is not None:
                    yield self._convert(key, TEXT) or "", JsonObject(fields, self.errors)

    def nested(self, name: str, parse: "Callable[[JsonObject], T]") -> T | None:
        """The result of the parser for the object in this field; None if absent or wrong."""
        fields = self.read(name, OBJECT)
        if fields is None:
            return None
        with self.errors.field(name):
            return parse(JsonObject(fields, self.errors))

    def tree(self, name: str) -> dict[str, object]:
        """A checked copy of the whole object in this field, for another parser."""
        fields = self.read_or(name, OBJECT, {})
        with self.errors.field(name):
            return _copy_map(fields, self.errors, DEPTH_MAX)

    def add(self, name: str, text: str) -> None:
        """Add an error at a field of this object."""
        with self.errors.field(name):
            self.errors.add(text)

    def _convert(self, value: object, kind: FieldKind[T]) -> T | None:
        converted = kind.convert(value)
        if converted is None:
            is_bad_text = kind is TEXT and isinstance(value, str)
            wanted = "valid Unicode" if is_bad_text else kind.wanted
            self.errors.add(f"is {show_value(value)}, wanted {wanted}")
        return converted


@cache
def _to_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name)


# Trees


def _copy(value: object, errors: ValidationErrors, depth_left: int) -> object:
    match value:
        case None | bool():
            return value
        case str():
            return _copy_text(value, errors)
        case int() | float():
            return _copy_number(value, errors)
        case Mapping() | list() | tuple():
            return _copy_container(value, errors, depth_left)
        case _:
            errors.add(f"is of type {type(value).__name__}, wanted a JSON value")
            return None


def _copy_container(
    value: "Mapping[str, object] | list[object] | tuple[object, ...]",
    errors: ValidationErrors,
    depth_left: int,
) -> object:
    if depth_left == 0:
        errors.add(f"is more than {DEPTH_MAX} levels deep")
        return None
    if isinstance(value, Mapping):
        return _copy_map(value, errors, depth_left)
    elements: list[object] = []
    for index, element in enumerate(value):
        with errors.index(index):
            elements.append(_copy(element, errors, depth_left - 1))
    return elements


def _copy_map(
    fields: Mapping[str, object], errors: ValidationErrors, depth_left: int
) -> dict[str, object]:
    copy: dict[str, object] = {}
    for key, value in fields.items():
        with errors.key(str(key)):
            copy[_copy_text(key, errors)] = _copy(value, errors, depth_left - 1)
    return copy


def _copy_text(value: object, errors: ValidationErrors) -> str:
    text = _to_text(value)
    if text is None:
        wanted = "valid Unicode" if isinstance(value, str) else "a string"
        errors.add(f"is {show_value(value)}, wanted {wanted}")
    return text or ""


def _copy_number(value: float, errors: ValidationErrors) -> float:
    try:
        is_finite = isfinite(value)
    except OverflowError:  # an integer that no double holds
        is_finite = False
    if not is_finite:
        errors.add("is a number beyond what JSON can carry, wanted a finite one")
        return 0
    return value
