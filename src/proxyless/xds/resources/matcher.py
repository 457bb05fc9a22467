"""What does a control plane compare, and with what?

Specs: A28 (paths, headers, fractions), A63 (string matchers).

Values only: `routing` compiles them, `security` compares names of certificates with them. A regular
expression is RE2 source that was compiled once to know that it is valid.
"""

from typing import Literal

from proxyless.base.frozen import frozen

StringMatchKind = Literal["exact", "prefix", "suffix", "contains", "regex"]


@frozen
class StringMatcher:
    """A text is equal to this, starts with it, ends with it, contains it or is described by it."""

    kind: StringMatchKind
    value: str
    # Has no effect on a regex.
    ignore_case: bool = False


@frozen
class PathMatcher:
    """Which method paths: exactly this one, those that start so, those a regex describes whole."""

    kind: Literal["path", "prefix", "regex"]
    value: str
    # Has no effect on a regex (A28-09).
    case_sensitive: bool = True


@frozen
class RangeMatcher:
    """An integer from start up to, but not including, end."""

    start: int
    end: int


@frozen
class PresentMatcher:
    """The header is there; or, if told so, is not."""

    present: bool


@frozen
class HeaderMatcher:
    """What one request header has to be."""

    # Lower case.
    name: str
    match: StringMatcher | RangeMatcher | PresentMatcher
    invert: bool = False


@frozen
class Fraction:
    """So many of a million."""

    per_million: int
