"""How does text from outside stand in a text of ours?

Error texts and log lines are one line each, and control planes, peers and files have a say in them:
names of resources, reasons, messages. What they say is shown as it is as long as it can be printed
on one line; what cannot is escaped, so that nobody forges a line of a log, and what is too long to
be read is cut.
"""

from typing import Final

NAME_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 4_096
# How the end of a text begins that says which client's it is.
NODE_ID_NOTE: Final = ' (node id "'


def quote(name: str, limit: int = NAME_LENGTH_MAX) -> str:
    """A name in double quotes. Nothing in it ends the quotes or the line."""
    shown = name[:limit]
    if '"' in shown or "\\" in shown:
        shown = shown.replace("\\", "\\\\").replace('"', '\\"')
    shown = f'"{_escape(shown)}"'
    return shown if len(name) <= limit else f"{shown}... ({len(name)} characters)"


def one_line(text: str, limit: int = TEXT_LENGTH_MAX) -> str:
    """The text on one line, cut to a length that can be read. Line breaks become spaces.

    What comes out is never longer, so that it stays as it is if somebody does it again. A node id
    at the end stays there: without it nobody knows whose text it is.
    """
    if len(text) <= limit and text.isprintable():
        return text
    line = _escape(" ".join(text[:limit].splitlines()))
    if len(text) <= limit and len(line) <= limit:
        return line
    end = _escape(_end_of(text, limit))
    cut = f"... ({len(text)} characters){end}"
    return f"{line[: max(0, limit - len(cut))]}{cut}"[:limit]


def count(number: int, noun: str, plural: str = "") -> str:
    """So many of them, as people say it: `1 route`, `2 routes`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _end_of(text: str, limit: int) -> str:
    """The node id, if the text ends with one and that leaves room for anything else."""
    at = text.rfind(NODE_ID_NOTE, max(0, len(text) - limit // 2))
    return text[at:] if at >= 0 and text.endswith(")") else ""


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
