"""Parsers of path, header and string matchers; `resources.matching` compiles the results.

Specs: A28 (paths, headers, fractions), A63 (string matchers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.xds.parsing.proto_fields import add_error, check_regex, parse_fraction
from proxyless.xds.resources.matcher import (
    Fraction,
    HeaderMatcher,
    PathMatcher,
    PresentMatcher,
    RangeMatcher,
    StringMatcher,
    StringMatchKind,
)

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto

_STRING_KINDS: Final[dict[str, StringMatchKind]] = {
    "exact": "exact",
    "prefix": "prefix",
    "suffix": "suffix",
    "contains": "contains",
    "exact_match": "exact",
    "prefix_match": "prefix",
    "suffix_match": "suffix",
    "contains_match": "contains",
}

# Slashes of /service/method.
_PATH_SLASHES: Final = 2


def parse_regex(matcher: Proto, errors: ValidationErrors) -> str:
    """The source of a RegexMatcher; adds an error unless RE2 accepts it."""
    source: str = matcher.regex
    with errors.field("regex"):
        check_regex(source, errors)
    return source


def parse_string_matcher(matcher: Proto, errors: ValidationErrors) -> StringMatcher | None:
    """An envoy.type.matcher.v3.StringMatcher. None adds an error."""
    field = matcher.WhichOneof("match_pattern")
    if field == "safe_regex":
        with errors.field(field):
            # "this option is ignored for regex matches" - A63
            return StringMatcher("regex", parse_regex(matcher.safe_regex, errors))
    if field not in _STRING_KINDS:
        kinds = "exact, prefix, suffix, contains or safe_regex"
        errors.add(f"match_pattern is {field or 'unset'}, wanted {kinds}")
        return None
    return StringMatcher(_STRING_KINDS[field], getattr(matcher, field), matcher.ignore_case)


def parse_header_matcher(matcher: Proto, errors: ValidationErrors) -> HeaderMatcher | None:
    """An envoy.config.route.v3.HeaderMatcher. None adds an error."""
    match = _parse_header_match(matcher, errors)
    if match is None:
        return None
    return HeaderMatcher(matcher.name.lower(), match, matcher.invert_match)


def _parse_header_match(
    matcher: Proto, errors: ValidationErrors
) -> StringMatcher | RangeMatcher | PresentMatcher | None:
    field = matcher.WhichOneof("header_match_specifier")
    if field in _STRING_KINDS:
        return StringMatcher(_STRING_KINDS[field], getattr(matcher, field))
    match field:
        case "present_match":
            return PresentMatcher(matcher.present_match)
        case "range_match":
            return _parse_range(matcher.range_match, errors)
        case "safe_regex_match":
            with errors.field(field):
                return StringMatcher("regex", parse_regex(matcher.safe_regex_match, errors))
        case "string_match":
            with errors.field(field):
                return parse_string_matcher(matcher.string_match, errors)
        case _:
            errors.add("header_match_specifier is unset, wanted a way to match")
            return None


def _parse_range(message: Proto, errors: ValidationErrors) -> RangeMatcher:
    if message.end < message.start:
        text = f"ends at {message.end}, wanted at least its start {message.start}"
        add_error(errors, "range_match", text)
    return RangeMatcher(message.start, message.end)


def parse_path_matcher(match: Proto, errors: ValidationErrors) -> PathMatcher | None:
    """The path of an envoy.config.route.v3.RouteMatch. None adds an error."""
    case_sensitive = not match.HasField("case_sensitive") or match.case_sensitive.value
    match field := match.WhichOneof("path_specifier"):
        case "prefix":
            return PathMatcher("prefix", match.prefix, case_sensitive)
        case "path":
            return PathMatcher("path", match.path, case_sensitive)
        case "safe_regex":
            with errors.field(field):
                return PathMatcher("regex", parse_regex(match.safe_regex, errors))
        case _:
            errors.add(f"path_specifier is {field or 'unset'}, wanted prefix, path or safe_regex")
            return None


def can_match_a_method(path: PathMatcher) -> bool:
    """Whether some /service/method matches. A regular expression is assumed to match (A28-02)."""
    value = path.value
    if path.kind == "regex" or (path.kind == "prefix" and not value):
        return True
    if not value.startswith("/") or value.startswith("//"):
        return False
    slashes = value.count("/")
    if path.kind == "prefix":
        return slashes <= _PATH_SLASHES
    return slashes == _PATH_SLASHES and not value.endswith("/")


def parse_runtime_fraction(fraction: Proto, errors: ValidationErrors) -> Fraction | None:
    """The default_value of a RuntimeFractionalPercent: gRPC has no runtime to override it."""
    if not fraction.HasField("default_value"):
        return None
    with errors.field("default_value"):
        return parse_fraction(fraction.default_value, errors)
