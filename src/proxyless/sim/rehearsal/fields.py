"""Typed access to one mapping of a script, which collects all errors by their paths.

A wrong value is an error and reads as the default. A key that the parser never read is an error,
because it may be mistyped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.base.durations import parse_seconds
from proxyless.controlplane.proto_json import describe_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import ValidationErrors

T = TypeVar("T")

_WANTED_TIME: Final = "wanted a time such as 30s, 500ms, 1m30s or 01:30"

_MINUTE_S: Final = 60


def show_time(seconds: float) -> str:
    """Time in the format of scripts: `0:30`, `1:02:03`, `0:00.250`."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, _MINUTE_S * 1000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    whole, fraction = divmod(rest, 1000)
    return f"{text}:{whole:02}" + (f".{fraction:03}" if fraction else "")


class Fields:
    """One mapping. Its parser calls `refuse_others` at the end."""

    def __init__(self, value: object, errors: ValidationErrors) -> None:
        self.errors: Final = errors
        # In the order of the first access.
        self._known: dict[str, None] = {}
        self._values: dict[object, object] = {}
        if isinstance(value, dict):
            self._values = value
        else:
            errors.add(f"is {describe_value(value)}, wanted a mapping")

    def __contains__(self, key: str) -> bool:
        self._known[key] = None
        return key in self._values

    def get(self, key: str) -> object:
        self._known[key] = None
        return self._values.get(key)

    def refuse(self, key: str, wanted: str) -> None:
        """Add an error with the value of this key."""
        self.add(key, f"is {describe_value(self._values.get(key))}, {wanted}")

    def add(self, key: str, text: str) -> None:
        with self.errors.field(key):
            self.errors.add(text)

    def refuse_others(self) -> None:
        """Add an error for each key that was never read."""
        for key in self._values:
            if key not in self._known:
                name = key if isinstance(key, str) else repr(key)
                self.add(name, f"is not known, wanted one of {', '.join(self._known)}")

    # Values, or the default if the value is missing or wrong

    def _read(self, key: str, default: T, parse: Callable[[object], T | None], wanted: str) -> T:
        if key not in self:
            return default
        value = parse(self.get(key))
        if value is None:
            self.refuse(key, wanted)
            return default
        return value

    def text(self, key: str, default: str) -> str:
        def parse(value: object) -> str | None:
            return value if isinstance(value, str) and value else None

        return self._read(key, default, parse, "wanted a text")

    def mapping(self, key: str, wanted: str) -> dict[Any, Any] | None:
        def parse(value: object) -> dict[Any, Any] | None:
            return value if isinstance(value, dict) else None

        return self._read(key, None, parse, wanted)

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """One text, or a list of texts."""
        if key not in self:
            return default
        value = self.get(key)
        values = value if isinstance(value, list) else [value]
        wrong = [each for each in values if not isinstance(each, str) or not each]
        if wrong and values is value:
            self.add(key, f"has {describe_value(wrong[0])}, wanted texts")
        elif wrong or not values:
            self.refuse(key, "wanted a text or a list of texts")
        if wrong or not values:
            return default
        return tuple(dict.fromkeys(values))

    def flag(self, key: str, *, default: bool) -> bool:
        def parse(value: object) -> bool | None:
            return value if isinstance(value, bool) else None

        return self._read(key, default, parse, "wanted true or false")

    def integer(self, key: str, default: int, *, low: int, high: int) -> int:
        def parse(value: object) -> int | None:
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                return None
            return value

        return self._read(key, default, parse, f"wanted a whole number from {low} to {high}")

    def number(self, key: str, default: float, *, high: float) -> float:
        wanted = f"wanted a number above 0, at most {high:g}"
        return self._read(key, default, lambda value: _parse_positive(value, high), wanted)

    def seconds(self, key: str, default: float, *, high: float, low: float = 0.0) -> float:
        if key not in self:
            return default
        value = parse_seconds(self.get(key))
        if value is None:
            self.refuse(key, _WANTED_TIME)
        elif not low <= value <= high:
            span = f"wanted {show_time(low)} to {show_time(high)}"
            self.refuse(key, f"which is {show_time(value)}, {span}")
        else:
            return value
        return default

    def share(self, key: str, default: float) -> float:
        """A share of 1: `0.01`, or `1%`."""

        def parse(value: object) -> float | None:
            if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)? ?%", value):
                value = float(value.rstrip("% ")) / 100
            return _parse_positive(value, 1.0)

        wanted = "wanted a number above 0, at most 1, or a percentage such as 1%"
        return self._read(key, default, parse, wanted)


def _parse_positive(value: object, high: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= high:
        return None
    return float(value)
