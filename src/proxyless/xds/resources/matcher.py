"""Matchers of paths, headers and strings, as values; `matching` compiles them.

Specs: A28 (paths, headers, fractions), A63 (string matchers). A regex is valid RE2 source.
"""

from typing import Literal

from proxyless.base.frozen import frozen

StringMatchKind = Literal["exact", "prefix", "suffix", "contains", "regex"]


@frozen
class StringMatcher:
    """Matches a string with a value or a regex. A regex must match the whole string."""

    kind: StringMatchKind
    value: str
    # Not used for a regex.
    ignore_case: bool = False


@frozen
class PathMatcher:
    """Matches method paths by equality, prefix or a regex for the whole path."""

    kind: Literal["path", "prefix", "regex"]
    value: str
    # Not used for a regex (A28-09).
    case_sensitive: bool = True


@frozen
class RangeMatcher:
    """Matches integers in [start, end)."""

    start: int
    end: int


@frozen
class PresentMatcher:
    """Matches if the header is present, or absent if `present` is False."""

    present: bool


@frozen
class HeaderMatcher:
    """Matches one header of a request."""

    # Lower case.
    name: str
    match: StringMatcher | RangeMatcher | PresentMatcher
    invert: bool = False


@frozen
class Fraction:
    """A fraction in parts per million."""

    per_million: int
