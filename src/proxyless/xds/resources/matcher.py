"""What does a control plane compare, and with what?

Specs: A28 (paths, headers, fractions), A63 (string matchers).

Values only: `routing` compiles them, `security` compares names of certificates with them. A regular
expression is RE2 source that was compiled once to know that it is valid.
"""

from dataclasses import dataclass
from typing import Literal

StringMatchKind = Literal["exact", "prefix", "suffix", "contains", "regex"]


@dataclass(frozen=True, slots=True)
class StringMatcher:
    """A text is equal to this, starts with it, ends with it, contains it or is described by it."""

    kind: StringMatchKind
    value: str
    # Has no effect on a regex.
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class PathMatcher:
    """Which method paths: exactly this one, those that start so, those a regex describes whole."""

    kind: Literal["path", "prefix", "regex"]
    value: str
    # Has no effect on a regex (A28-09).
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class RangeMatcher:
    """An integer from start up to, but not including, end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PresentMatcher:
    """The header is there; or, if told so, is not."""

    present: bool


@dataclass(frozen=True, slots=True)
class HeaderMatcher:
    """What one request header has to be."""

    # Lower case.
    name: str
    match: StringMatcher | RangeMatcher | PresentMatcher
    invert: bool = False


@dataclass(frozen=True, slots=True)
class Fraction:
    """So many of a million."""

    per_million: int
