"""Format of a flight recording: JSON lines, version 1.

The first line is the header, the last one the end; each line between them is an entry:

    {"format": "proxyless.flight", "version": 1, "time": …, "process": …}
    {"number": 7, "time": 1763…, "loop": 1, "event": "channel.state", "fields": {"target": …}}
    {"end": true, "entries": 1, "left_out": 0}

Numbers are those of the process and increase; times are seconds since the epoch. Resources are
entries with the event `resource` and the message in base64 without secrets
(`protos.redaction`). All characters that are not printable are escaped. A recording is read with
limits, because it may come from anywhere.
"""

from __future__ import annotations

import json
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import State, Status
from proxyless.base.frozen import frozen
from proxyless.base.texts import escape_json, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FORMAT: Final = "proxyless.flight"
VERSION: Final = 1
RESOURCE_EVENT: Final = "resource"
RPC_EVENT: Final = "rpc"

TEXT_MAX: Final = 500
LIST_MAX: Final = 50
# Limits of a file that is read.
LINES_MAX: Final = 200_000
LINE_CHARS_MAX: Final = 16 * 1024 * 1024


class RecordingError(ValueError):
    """A file that is not a recording, or one that cannot be read."""


@frozen
class Entry:
    """One entry. Fields are texts, numbers, booleans, None and lists or maps of these."""

    number: int
    time: float
    loop: int
    event: str
    fields: Mapping[str, Any]


@frozen
class Recording:
    """A recording that was read."""

    header: Mapping[str, Any]
    entries: tuple[Entry, ...]
    # Entries that the process had dropped, and whether the end is missing.
    left_out: int
    is_cut: bool


def bound_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Fields of an event with long lists cut. What remains is converted when it is written."""
    return {key: _bound(value) for key, value in fields.items()}


def _bound(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) > LIST_MAX:
        return (*value[:LIST_MAX], f"... ({len(value)} items)")
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return one_line(value, TEXT_MAX)
    return value


def to_plain(value: object) -> Any:  # noqa: ANN401 - a JSON value
    """A value as JSON. Values of other types become text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.name if isinstance(value, State) else to_plain(value.value)
    if isinstance(value, Status):
        return {"code": value.code.name, "details": one_line(value.details, TEXT_MAX)}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value[: LIST_MAX + 1]]
    return one_line(str(value), TEXT_MAX)


def write_lines(
    header: Mapping[str, object], entries: Iterable[Entry], left_out: int
) -> Iterator[str]:
    """The lines of a recording, each with its line break."""
    yield _line({"format": FORMAT, "version": VERSION, **header})
    number = 0
    for entry in entries:
        number += 1
        yield _line(to_document(entry))
    yield _line({"end": True, "entries": number, "left_out": left_out})


def to_document(entry: Entry) -> dict[str, Any]:
    fields = {
        key: value if entry.event == RESOURCE_EVENT else to_plain(value)
        for key, value in entry.fields.items()
    }
    return {
        "number": entry.number,
        "time": round(entry.time, 6),
        "loop": entry.loop,
        "event": entry.event,
        "fields": fields,
    }


def _line(document: Mapping[str, object]) -> str:
    return f"{escape_json(json.dumps(document, ensure_ascii=False))}\n"


def read_lines(lines: Iterable[str]) -> Recording:
    """Read a recording. Raises RecordingError for one that is invalid or of another version."""
    numbered = enumerate(lines, start=1)
    header = _read_document(*next(numbered, (1, "")))
    if header.get("format") != FORMAT:
        raise RecordingError(f'line 1: wanted a header with "format": "{FORMAT}"')
    if header.get("version") != VERSION:
        raise RecordingError(f"line 1: version is {header.get('version')!r}, wanted {VERSION}")
    entries: list[Entry] = []
    for number, line in numbered:
        if not line.strip():
            continue
        if number > LINES_MAX:
            raise RecordingError(f"more than {LINES_MAX} lines")
        document = _read_document(number, line)
        if document.get("end"):
            left_out = document.get("left_out")
            return Recording(
                header, tuple(entries), left_out if isinstance(left_out, int) else 0, False
            )
        entries.append(_read_entry(number, document))
    return Recording(header, tuple(entries), 0, is_cut=True)


def _read_document(number: int, line: str) -> Mapping[str, Any]:
    if len(line) > LINE_CHARS_MAX:
        raise RecordingError(f"line {number}: more than {LINE_CHARS_MAX} characters")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordingError(f"line {number}: not JSON") from None
    if not isinstance(document, dict):
        raise RecordingError(f"line {number}: wanted a JSON object")
    return document


def _read_entry(number: int, document: Mapping[str, Any]) -> Entry:
    match document:
        case {
            "number": int(at),
            "time": int() | float() as time,
            "loop": int(loop),
            "event": str(event),
            "fields": dict(fields),
        } if isfinite(time):
            return Entry(at, float(time), loop, event, fields)
        case _:
            raise RecordingError(f"line {number}: wanted number, time, loop, event and fields")
