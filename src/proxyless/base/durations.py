"""Parser of durations in files: `500ms`, `30s`, `1m30s`, `2h`, `01:30`, or a number of seconds."""

from __future__ import annotations

import re
from math import isfinite
from typing import Final

# 500ms; 30s, 1m30s, 2h; 00:30, 1:30:00.
_MILLISECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)ms").fullmatch
_UNITS: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?").fullmatch
_CLOCK: Final = re.compile(r"(?:(\d+):)?(\d+):([0-5]?\d(?:\.\d+)?)").fullmatch

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def parse_seconds(value: object) -> float | None:
    """Seconds of a number or of a text such as `1m30s` or `01:30`; None if it is neither."""
    try:
        seconds = _parse_number(value) if isinstance(value, int | float) else _parse_text(value)
    except OverflowError:  # An int may be too large for a float.
        return None
    return seconds if seconds is not None and isfinite(seconds) and seconds >= 0 else None


def _parse_number(value: float) -> float | None:
    # YAML reads 1:30 as the number 90.
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
