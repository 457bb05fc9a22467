"""Regular expressions of a control plane: RE2, for linear time, with a memory limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# For the program, of about 40,000 instructions, and the cached states.
MEMORY_BYTES_MAX: Final = 1 << 20

# The pieces of a substitution: an escape of two characters, or literal text.
_REWRITE_PIECES: Final = re.compile(r"\\.?|[^\\]+", re.DOTALL)


class Regex(Protocol):
    """A compiled expression; thread-safe."""

    def fullmatch(self, text: str) -> object | None:
        """A match object if the expression matches the whole text."""
        ...


def compile_regex(source: str) -> Regex:
    """The compiled expression; ValueError if the source is invalid."""
    regex: Regex = _compile(source)
    return regex


def compile_rewrite(source: str, substitution: str) -> Callable[[str], str]:
    r"""A function that replaces every match in a text; \1 is the first group, \0 the match.

    Raises ValueError if the source or the substitution is invalid.
    """
    regex = _compile(source)
    pieces = [_parse_piece(piece, regex.groups) for piece in _REWRITE_PIECES.findall(substitution)]

    def expand(match: Any) -> str:  # noqa: ANN401 - RE2's match has no type
        # A group that did not participate in the match is empty.
        return "".join(
            piece if isinstance(piece, str) else match.group(piece) or "" for piece in pieces
        )

    def rewrite(text: str) -> str:
        return str(regex.sub(expand, text))

    return rewrite


def _parse_piece(piece: str, groups: int) -> str | int:
    """A literal text, or the number of a group."""
    if not piece.startswith("\\"):
        return piece
    escaped = piece[1:]
    if escaped == "\\":
        return escaped
    if not (escaped.isascii() and escaped.isdigit()):
        raise ValueError(f"substitution has {piece!r}, wanted a digit or a backslash after each \\")
    if int(escaped) > groups:
        raise ValueError(f"substitution has {piece!r}, wanted at most group {groups}")
    return int(escaped)


def _compile(source: str) -> Any:  # noqa: ANN401 - RE2's binding has no types
    # Lazy import: most configs have no expressions.
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except re2.error as error:
        raise ValueError(_error_text(error)) from error


def _error_text(error: Exception) -> str:
    """The message of an RE2 error, which is bytes."""
    text = error.args[0] if error.args else b""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
