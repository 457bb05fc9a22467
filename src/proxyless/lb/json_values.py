"""What does a JSON value say that stands for an integer or a duration of proto3?

LB policy configs and service configs are JSON of protobuf messages. There 2, 2.0 and "2" are the
same integer, and one second and a half is "1.5s". None means: it is something else.
"""

import re
from typing import Final

from proxyless.lb.config import type_name

# About 10,000 years: the range of google.protobuf.Duration.
DURATION_MAX_S: Final = 315_576_000_000

_SECONDS: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?s").fullmatch
# Enough digits for 64 bits; what is larger than a field may be is for its reader to say.
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}").fullmatch


def to_integer(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if _INTEGER(value):
            return int(value)
        case _:
            return None


def to_seconds(value: object) -> float | None:
    """A duration that is not negative."""
    parts = _SECONDS(value) if isinstance(value, str) else None
    if parts is None or int(parts[1]) > DURATION_MAX_S:
        return None
    return int(parts[1]) + int((parts[2] or "").ljust(9, "0")) / 1e9


def show_value(value: object) -> str:
    """A wrong value: as it is if it is a text or a number, else by its type."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return repr(value) if is_plain else type_name(value)
