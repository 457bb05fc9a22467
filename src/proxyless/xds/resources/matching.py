"""Compiler of matchers to plain functions, called once per route table.

Specs: A28-02, A28-03, A28-09 (paths and headers), A63 (string matchers).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, assert_never

from proxyless.xds.resources.matcher import PresentMatcher, RangeMatcher, StringMatcher

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.xds.resources import HeaderMatcher, PathMatcher
    from proxyless.xds.resources.matcher import StringMatchKind

TextTest = Callable[[str], bool]
HeaderTest = Callable[["Metadata"], bool]

_COMPARISONS: Final[dict[str, Callable[[str, str], bool]]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}


def compile_string(matcher: StringMatcher) -> TextTest:
    if matcher.kind == "regex":
        from proxyless.xds.resources.regex import compile_regex  # noqa: PLC0415 - few have any

        regex = compile_regex(matcher.value)
        return lambda text: regex.fullmatch(text) is not None
    compare = _COMPARISONS[matcher.kind]
    if matcher.ignore_case:
        folded = matcher.value.lower()
        return lambda text: compare(text.lower(), folded)
    value = matcher.value
    return lambda text: compare(text, value)


def compile_path(matcher: PathMatcher) -> TextTest:
    if matcher.kind == "regex":
        return compile_string(StringMatcher("regex", matcher.value))
    kind: StringMatchKind = "exact" if matcher.kind == "path" else "prefix"
    ignore_case = not matcher.case_sensitive
    return compile_string(StringMatcher(kind, matcher.value, ignore_case))


def compile_header(matcher: HeaderMatcher) -> HeaderTest:
    name, match, invert = matcher.name, matcher.match, matcher.invert
    if isinstance(match, PresentMatcher):
        must_be_present = match.present is not invert
        return lambda metadata: (header_value(metadata, name) is not None) is must_be_present
    test = _compile_value(match)

    def matches(metadata: Metadata) -> bool:
        value = header_value(metadata, name)
        # "A header that is absent never matches …, not even with invert_match" (A28-09)
        return value is not None and test(value) is not invert

    return matches


def _compile_value(matcher: StringMatcher | RangeMatcher) -> TextTest:
    match matcher:
        case StringMatcher():
            return compile_string(matcher)
        case RangeMatcher(start, end):
            return lambda text: (
                (number := _parse_integer(text)) is not None and start <= number < end
            )
        case _:
            assert_never(matcher)


# The syntax of absl::SimpleAtoi, which C-core and Envoy use: blanks on either side, one sign,
# digits. A 64-bit integer has at most 19 digits.
_INTEGER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,19})[ \t\n\v\f\r]*")


def _parse_integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    return None if found is None else int(found[1] + found[2])


def header_value(metadata: Metadata, name: str) -> str | None:
    """The joined values of a header; None for binary headers (A28-03)."""
    if name.endswith("-bin"):
        return None
    if name == "content-type":
        return "application/grpc"
    values = [value for key, value in metadata if key == name]
    if not values:
        return None
    return ",".join(
        value.decode("latin-1") if isinstance(value, bytes) else value for value in values
    )
