"""Regular expressions of a control plane: RE2, for linear time, with limits and a cache.

Matching is linear in the text. Compiling is not cheap: a pattern of 600 characters can take 20 ms.
So patterns are limited before they are compiled, and each is compiled once per process.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# Memory for the program, of about 40,000 instructions, and for cached states.
MEMORY_BYTES_MAX: Final = 1 << 20
# RE2 parses a pattern before it checks the memory. A Unicode class such as \pL has hundreds of
# ranges, and takes as long as 300 other characters.
PATTERN_CHARACTERS_MAX: Final = 4_096
UNICODE_CLASSES_MAX: Final = 64
# A substitution may replace each character of a header, in each RPC.
SUBSTITUTION_CHARACTERS_MAX: Final = 256

# Limits of the cache: patterns, and the RE2 instructions of all of them (16 bytes each).
CACHED_PATTERNS_MAX: Final = 4_096
CACHED_INSTRUCTIONS_MAX: Final = 1_000_000

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
    if (size := len(substitution)) > SUBSTITUTION_CHARACTERS_MAX:
        limit = SUBSTITUTION_CHARACTERS_MAX
        raise ValueError(f"substitution has {size} characters, wanted at most {limit}")
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


def is_compiled(source: str) -> bool:
    """Whether the result for this source is cached, so that compiling it costs nothing."""
    return source in _CACHE


def _compile(source: str) -> Any:  # noqa: ANN401 - RE2's binding has no types
    result = _CACHE.get(source)
    if result is None:
        result = _CACHE.put(source, _compile_new(source))
    if isinstance(result, ValueError):
        raise ValueError(*result.args)
    return result


class RegexCache:
    """Compiled expressions, and the errors of invalid ones, by source. Thread-safe.

    Evicts the least recently used ones.
    """

    def __init__(self, patterns_max: int, instructions_max: int) -> None:
        self._patterns_max = patterns_max
        self._instructions_max = instructions_max
        self._lock = Lock()
        self._results: OrderedDict[str, Any] = OrderedDict()
        self.instructions = 0

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, source: str) -> bool:
        return source in self._results

    def get(self, source: str) -> Any:  # noqa: ANN401
        """An expression, a ValueError, or None if the source is not cached."""
        with self._lock:
            result = self._results.get(source)
            if result is not None:
                self._results.move_to_end(source)
            return result

    def put(self, source: str, result: Any) -> Any:  # noqa: ANN401
        """Add the result. Return it, or that of another thread that was faster."""
        with self._lock:
            present = self._results.setdefault(source, result)
            if present is result:
                self.instructions += count_instructions(result)
                while self._is_over_limit():
                    _, evicted = self._results.popitem(last=False)
                    self.instructions -= count_instructions(evicted)
            return present

    def _is_over_limit(self) -> bool:
        is_large = self.instructions > self._instructions_max and len(self._results) > 1
        return is_large or len(self._results) > self._patterns_max


_CACHE: Final = RegexCache(CACHED_PATTERNS_MAX, CACHED_INSTRUCTIONS_MAX)


def count_instructions(regex: object) -> int:
    """The size of the RE2 program; 0 for an error."""
    size: int = getattr(regex, "programsize", 0)
    return size


def _compile_new(source: str) -> Any:  # noqa: ANN401
    """The expression, or a ValueError as a value."""
    if len(source) > PATTERN_CHARACTERS_MAX:
        return ValueError(f"has {len(source)} characters, wanted at most {PATTERN_CHARACTERS_MAX}")
    classes = source.count("\\p") + source.count("\\P")
    if classes > UNICODE_CLASSES_MAX:
        return ValueError(f"has {classes} Unicode classes, wanted at most {UNICODE_CLASSES_MAX}")
    # Lazy import: most configs have no expressions.
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except re2.error as error:
        return ValueError(_error_text(error))


def _error_text(error: Exception) -> str:
    """The message of an RE2 error, which is bytes."""
    text = error.args[0] if error.args else b""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
