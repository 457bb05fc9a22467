"""Which regular expressions of a control plane do we run?

Those that RE2 accepts within a bound on its memory: RE2 matches in linear time, and the bound keeps
one expression from taking more of the process than it is worth. `parsing` asks whether a source is
valid; `routing` and the filters compile it again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# For the program and the states that matching remembers: about 40,000 instructions.
MEMORY_BYTES_MAX: Final = 1 << 20

# The pieces of a substitution: a backslash and what follows it, or text without any.
_REWRITE_PIECES: Final = re.compile(r"\\.?|[^\\]+", re.DOTALL)


class Regex(Protocol):
    """What we use of a compiled expression. It never changes; any thread may match with it."""

    def fullmatch(self, text: str) -> object | None:
        """Something if the expression describes the whole text."""
        ...


def compile_regex(source: str) -> Regex:
    """The compiled expression. ValueError says what is wrong with the source."""
    regex: Regex = _compile(source)
    return regex


def compile_rewrite(source: str, substitution: str) -> Callable[[str], str]:
    r"""A function that replaces every match in a text, as RE2 does: \1 is the first group, \0 all.

    ValueError says what is wrong with the source or the substitution.
    """
    regex = _compile(source)
    pieces = [_parse_piece(piece, regex.groups) for piece in _REWRITE_PIECES.findall(substitution)]

    def expand(match: Any) -> str:  # noqa: ANN401 - RE2's match has no type
        # A group that took no part in the match is empty.
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
    # Few configs have expressions, so few processes load the library.
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except re2.error as error:
        raise ValueError(_error_text(error)) from error


def _error_text(error: Exception) -> str:
    """What RE2 says, which is bytes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
