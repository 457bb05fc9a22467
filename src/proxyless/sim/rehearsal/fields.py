"""How is one mapping of a script read, so that all that is wrong with it is said, by its path?

A parser asks for the keys it knows and gets values it can use, whatever stands there; what it did
not ask for is an error, because a key with a typing mistake would otherwise mean nothing.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.documents import describe_value

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors

# 500ms; 30s, 1m30s, 2h; 00:30, 1:30:00.
_MILLISECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)ms").fullmatch
_UNITS: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?").fullmatch
_CLOCK: Final = re.compile(r"(?:(\d+):)?(\d+):([0-5]?\d(?:\.\d+)?)").fullmatch
_WANTED_TIME: Final = "wanted a time such as 30s, 500ms, 1m30s or 01:30"

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def parse_seconds(value: object) -> float | None:
    """The seconds that a number or a text such as `1m30s` or `01:30` stands for; None if none."""
    try:
        seconds = _parse_number(value) if isinstance(value, int | float) else _parse_text(value)
    except OverflowError:  # A number of 400 digits is one to Python.
        return None
    return seconds if seconds is not None and isfinite(seconds) and seconds >= 0 else None


def _parse_number(value: float) -> float | None:
    # YAML itself reads 1:30 as 90.
    return None if isinstance(value, bool) else float(value)


def _parse_text(value: object) -> float | None:
    if not isinstance(value, str) or not value:
        return None
    if found := _MILLISECONDS(value):
        return float(found[1]) / 1000
    if found := _UNITS(value) or _CLOCK(value):
        hours, minutes, seconds = (float(each or 0) for each in found.groups())
        return hours * _HOUR_S + minutes * _MINUTE_S + seconds
    return None


def show_time(seconds: float) -> str:
    """As a script may say it: `0:30`, `1:02:03`, `0:00.250`."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, _MINUTE_S * 1000)
    hours, minutes = divmod(minutes, 60)
    said = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    whole, fraction = divmod(rest, 1000)
    return f"{said}:{whole:02}" + (f".{fraction:03}" if fraction else "")


class Fields:
    """One mapping. Driven by its parser, which ends with `refuse_others`."""

    def __init__(self, value: object, errors: ValidationErrors) -> None:
        self.errors: Final = errors
        self._asked: list[str] = []
        self._values: dict[object, object] = {}
        if isinstance(value, dict):
            self._values = value
        else:
            errors.add(f"is {describe_value(value)}, wanted a mapping")

    def __contains__(self, key: str) -> bool:
        self._ask(key)
        return key in self._values

    def get(self, key: str) -> object:
        """Whatever stands there."""
        self._ask(key)
        return self._values.get(key)

    def refuse(self, key: str, wanted: str) -> None:
        """What stands there is something else."""
        self.add(key, f"is {describe_value(self._values.get(key))}, {wanted}")

    def add(self, key: str, text: str) -> None:
        """An error at this key."""
        with self.errors.field(key):
            self.errors.add(text)

    def refuse_others(self) -> None:
        """What nobody has asked for is an error."""
        for key in self._values:
            if key not in self._asked:
                name = key if isinstance(key, str) else repr(key)
                self.add(name, f"is not known, wanted one of {', '.join(self._asked)}")

    # Values, or the default if there is none or it is wrong

    def text(self, key: str, default: str) -> str:
        if key not in self:
            return default
        value = self.get(key)
        if not isinstance(value, str) or not value:
            self.refuse(key, "wanted a text")
            return default
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """One text, or a list of them."""
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
        if key not in self:
            return default
        value = self.get(key)
        if not isinstance(value, bool):
            self.refuse(key, "wanted true or false")
            return default
        return value

    def integer(self, key: str, default: int, *, low: int, high: int) -> int:
        if key not in self:
            return default
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(key, f"wanted a whole number from {low} to {high}")
            return default
        return value

    def number(self, key: str, default: float, *, high: float) -> float:
        """More than 0."""
        if key not in self:
            return default
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= high:
            self.refuse(key, f"wanted a number above 0, at most {high:g}")
            return default
        return float(value)

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
        """A part of 1: `0.01`, or `1%`."""
        if key not in self:
            return default
        value = self.get(key)
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)? ?%", value):
            value = float(value.rstrip("% ")) / 100
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            self.refuse(key, "wanted a number above 0, at most 1, or a percentage such as 1%")
            return default
        return float(value)

    def _ask(self, key: str) -> None:
        if key not in self._asked:
            self._asked.append(key)
