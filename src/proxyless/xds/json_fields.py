"""What does a JSON object say in a field, and what is wrong there?

A field that is null is absent. One that is wrong reads as if it were absent, and `errors` says why,
at its path. Fields that nobody asks for are never looked at, so a newer document is no error.

What is kept is fit for protobuf: text is Unicode, numbers are finite, the depth is bounded.
"""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Final, TypeVar

from proxyless.base import ValidationErrors
from proxyless.lb.config import type_name
from proxyless.lb.json_values import to_seconds

T = TypeVar("T")

# Parsers of protobuf stop at 100 messages inside each other, and one object of a Struct is three.
DEPTH_MAX: Final = 30


class JsonObject:
    """One object, read field by field. Driven by the parser of one document."""

    __slots__ = ("_fields", "errors")

    def __init__(self, document: object, errors: ValidationErrors) -> None:
        if not isinstance(document, Mapping):
            errors.add(f"is {type_name(document)}, wanted an object")
            document = {}
        self._fields: Mapping[object, object] = document
        self.errors: Final = errors

    def has(self, name: str) -> bool:
        """Whether there is something in this field, right or wrong."""
        return self._fields.get(name) is not None

    def text(self, name: str) -> str:
        """The string in this field, or the empty one."""
        value = self._fields.get(name)
        if value is None:
            return ""
        with self.errors.field(name):
            return _read_text(value, self.errors)

    def need_text(self, name: str) -> str:
        """The string in this field, which must not be empty."""
        if self._fields.get(name) in (None, ""):
            self.add(name, "is missing or empty, wanted a string")
        return self.text(name)

    def flag(self, name: str) -> bool:
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return value is True
        self.add(name, f"is {type_name(value)}, wanted a boolean")
        return False

    def duration_s(self, name: str, default_s: float) -> float:
        """Proto3's JSON form of a duration above 0, in seconds."""
        value = self._fields.get(name)
        if value is None:
            return default_s
        seconds = to_seconds(value)
        if not seconds:
            shown = repr(value) if isinstance(value, str) else type_name(value)
            self.add(name, f"is {shown}, wanted a duration above 0 such as '1.5s'")
            return default_s
        return seconds

    def elements(self, name: str) -> list[object]:
        """The elements of a list, as they are."""
        value = self._fields.get(name)
        if isinstance(value, list | tuple):
            return list(value)
        if value is not None:
            self.add(name, f"is {type_name(value)}, wanted a list")
        return []

    def objects(self, name: str, count_max: int) -> "Iterator[JsonObject]":
        """The objects of a list. While the caller has one, errors are at its path."""
        elements = self.elements(name)
        if len(elements) > count_max:
            self.add(name, f"has {len(elements)} elements, wanted at most {count_max}")
            return
        for index, element in enumerate(elements):
            with self.errors.field(name), self.errors.index(index):
                yield JsonObject(element, self.errors)

    def entries(self, name: str, count_max: int) -> "Iterator[tuple[str, JsonObject]]":
        """The objects of a map, by key. While the caller has one, errors are at its path."""
        entries = self._map(name)
        if len(entries) > count_max:
            self.add(name, f"has {len(entries)} entries, wanted at most {count_max}")
            return
        for key, value in entries.items():
            with self.errors.field(name), self.errors.key(str(key)):
                yield _read_text(key, self.errors), JsonObject(value, self.errors)

    def nested(self, name: str, parse: "Callable[[JsonObject], T]") -> T | None:
        """What the parser makes of the object in this field, if there is one."""
        value = self._fields.get(name)
        if value is None:
            return None
        with self.errors.field(name):
            return parse(JsonObject(value, self.errors))

    def tree(self, name: str) -> dict[str, object]:
        """A copy of the whole object in this field, for those who know what it means."""
        fields = self._map(name)
        with self.errors.field(name):
            return _copy_map(fields, self.errors, DEPTH_MAX)

    def add(self, name: str, text: str) -> None:
        """Note an error at a field of this object."""
        with self.errors.field(name):
            self.errors.add(text)

    def _map(self, name: str) -> Mapping[object, object]:
        value = self._fields.get(name)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self.add(name, f"is {type_name(value)}, wanted an object")
        return {}


def _read_text(value: object, errors: ValidationErrors) -> str:
    if not isinstance(value, str):
        errors.add(f"is {type_name(value)}, wanted a string")
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can spell half of a surrogate pair; protobuf cannot carry it.
        errors.add(f"is {value!a}, wanted valid Unicode")
        return ""
    return value


def _copy(value: object, errors: ValidationErrors, depth_left: int) -> object:
    match value:
        case None | bool():
            return value
        case str():
            return _read_text(value, errors)
        case int() | float():
            return _read_number(value, errors)
        case Mapping() | list() | tuple():
            return _copy_container(value, errors, depth_left)
        case _:
            errors.add(f"is of type {type(value).__name__}, wanted a JSON value")
            return None


def _copy_container(
    value: "Mapping[object, object] | list[object] | tuple[object, ...]",
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
    fields: Mapping[object, object], errors: ValidationErrors, depth_left: int
) -> dict[str, object]:
    copy: dict[str, object] = {}
    for key, value in fields.items():
        with errors.key(str(key)):
            copy[_read_text(key, errors)] = _copy(value, errors, depth_left - 1)
    return copy


def _read_number(value: float, errors: ValidationErrors) -> float:
    try:
        is_finite = isfinite(value)
    except OverflowError:  # an integer that no double holds
        is_finite = False
    if not is_finite:
        errors.add("is a number beyond what JSON can carry, wanted a finite one")
        return 0
    return value
