"""Does this text, header or path match?

Specs: A28-02, A28-03, A28-09 (paths and headers), A63 (string matchers).

Matchers are compiled once per route table into plain functions: an RPC only calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, assert_never

from proxyless.xds.resources.matcher import PresentMatcher, RangeMatcher, StringMatcher
from proxyless.xds.resources.regex import compile_regex

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.xds.resources import HeaderMatcher, PathMatcher
    from proxyless.xds.resources.matcher import StringMatchKind

TextTest = Callable[[str], bool]
HeaderTest = Callable[["Metadata"], bool]


def compile_string(matcher: StringMatcher) -> TextTest:
    """Whether a text is what the matcher describes."""
    if matcher.kind == "regex":
        regex = compile_regex(matcher.value)
        return lambda text: regex.fullmatch(text) is not None
    compare = _comparison(matcher.kind)
    if matcher.ignore_case:
        folded = matcher.value.lower()
        return lambda text: compare(text.lower(), folded)
    value = matcher.value
    return lambda text: compare(text, value)


def _comparison(kind: str) -> Callable[[str, str], bool]:
    match kind:
        case "exact":
            return str.__eq__
        case "prefix":
            return str.startswith
        case "suffix":
            return str.endswith
        case _:
            return str.__contains__


def compile_path(matcher: PathMatcher) -> TextTest:
    """Whether a method path is one of the matcher's."""
    if matcher.kind == "regex":
        return compile_string(StringMatcher("regex", matcher.value))
    kind: StringMatchKind = "exact" if matcher.kind == "path" else "prefix"
    ignore_case = not matcher.case_sensitive
    return compile_string(StringMatcher(kind, matcher.value, ignore_case))


def compile_header(matcher: HeaderMatcher) -> HeaderTest:
    """Whether an RPC's headers are as the matcher wants them."""
    name, wanted, invert = matcher.name, matcher.match, matcher.invert
    if isinstance(wanted, PresentMatcher):
        is_wanted = wanted.present is not invert
        return lambda metadata: (header_value(metadata, name) is not None) is is_wanted
    test = _compile_value(wanted)

    def matches(metadata: Metadata) -> bool:
        value = header_value(metadata, name)
        # "A header that is absent never matches …, not even with invert_match" (A28-09)
        return value is not None and test(value) is not invert

    return matches


def _compile_value(wanted: StringMatcher | RangeMatcher) -> TextTest:
    match wanted:
        case StringMatcher():
            return compile_string(wanted)
        case RangeMatcher(start, end):
            return lambda text: (
                (number := _parse_integer(text)) is not None and start <= number < end
            )
        case _:
            assert_never(wanted)


# What absl::SimpleAtoi takes, which C-core and Envoy use: blanks on either side, one sign, digits.
# Those of the longest 64-bit integer are 19; a longer one is in no range.
_INTEGER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,19})[ \t\n\v\f\r]*")


def _parse_integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    return None if found is None else int(found[1] + found[2])


def header_value(metadata: Metadata, name: str) -> str | None:
    """A request header as a matcher sees it: values joined, binary ones invisible (A28-03)."""
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
