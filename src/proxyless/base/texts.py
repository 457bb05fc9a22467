"""Text of control planes, peers and files in error texts and log lines.

Such text is escaped if it is not printable on one line, so that it cannot forge a line of a log or
control a terminal, and truncated if it is too long to be read. Printable is what `str.isprintable`
accepts: neither C0 and C1 controls nor bidirectional controls, invisible characters or surrogates.
"""

import json
from typing import Final

NAME_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 4_096
# Start of the suffix that names the client in a status.
NODE_ID_NOTE: Final = ' (node id "'


def quote(name: str, limit: int = NAME_LENGTH_MAX) -> str:
    """A name in double quotes, with quotes and line breaks inside it escaped."""
    shown = name[:limit]
    if '"' in shown or "\\" in shown:
        shown = shown.replace("\\", "\\\\").replace('"', '\\"')
    shown = f'"{_escape(shown)}"'
    return shown if len(name) <= limit else f"{shown}... ({len(name)} characters)"


def one_line(text: str, limit: int = TEXT_LENGTH_MAX) -> str:
    """The text on one line of at most `limit` characters. Line breaks become spaces.

    Idempotent. A node id at the end is kept.
    """
    if len(text) <= limit and text.isprintable():
        return text
    line = _escape(" ".join(text[:limit].splitlines()))
    if len(text) <= limit and len(line) <= limit:
        return line
    end = _escape(_end_of(text, limit))
    suffix = f"... ({len(text)} characters){end}"
    return f"{line[: max(0, limit - len(suffix))]}{suffix}"[:limit]


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 route`, `2 routes`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def escape_json(document: str) -> str:
    """A JSON document with all characters escaped that are not printable, but line breaks.

    The document has the same value.
    """
    lines = document.split("\n")
    return "\n".join(line if line.isprintable() else _escape_line(line) for line in lines)


def _escape_line(line: str) -> str:
    # Such characters are inside strings only. Those above U+FFFF become surrogate pairs.
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _end_of(text: str, limit: int) -> str:
    """The node id at the end of a text, if it is shorter than half the limit."""
    at = text.rfind(NODE_ID_NOTE, max(0, len(text) - limit // 2))
    return text[at:] if at >= 0 and text.endswith(")") else ""


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
