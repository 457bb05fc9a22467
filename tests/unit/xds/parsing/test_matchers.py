"""Parsers of matchers. Invalid matchers are tested in tests/spec."""

import pytest

from proxyless.base import ValidationErrors
from proxyless.xds.parsing.matchers import (
    can_match_a_method,
    parse_header_matcher,
    parse_path_matcher,
    parse_runtime_fraction,
    parse_string_matcher,
)
from proxyless.xds.resources.matcher import (
    Fraction,
    HeaderMatcher,
    PathMatcher,
    PresentMatcher,
    RangeMatcher,
    StringMatcher,
)
from tests.unit.xds.parsing.messages import Json, make

HEADER = "envoy.config.route.v3.HeaderMatcher"
MATCH = "envoy.config.route.v3.RouteMatch"
STRING = "envoy.type.matcher.v3.StringMatcher"


@pytest.fixture
def errors() -> ValidationErrors:
    return ValidationErrors()


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"exact": "a"}, StringMatcher("exact", "a")),
        ({"prefix": "a", "ignore_case": True}, StringMatcher("prefix", "a", ignore_case=True)),
        ({"suffix": "a"}, StringMatcher("suffix", "a")),
        ({"contains": ""}, StringMatcher("contains", "")),
        (
            {"safe_regex": {"regex": "a+"}, "ignore_case": True},
            StringMatcher("regex", "a+", ignore_case=False),
        ),
    ],
)
def test_string_matcher_is_parsed(
    fields: Json, wanted: StringMatcher, errors: ValidationErrors
) -> None:
    assert parse_string_matcher(make(STRING, fields), errors) == wanted
    header = make(HEADER, {"name": "h", "string_match": fields})
    assert parse_header_matcher(header, errors) == HeaderMatcher("h", wanted)
    assert errors.ok


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"exact_match": "a"}, StringMatcher("exact", "a")),
        ({"prefix_match": "a"}, StringMatcher("prefix", "a")),
        ({"suffix_match": "a"}, StringMatcher("suffix", "a")),
        ({"contains_match": "a"}, StringMatcher("contains", "a")),
        ({"safe_regex_match": {"regex": "a+"}}, StringMatcher("regex", "a+")),
        ({"range_match": {"start": -1, "end": 5}}, RangeMatcher(-1, 5)),
        ({"range_match": {}}, RangeMatcher(0, 0)),
        ({"present_match": True}, PresentMatcher(present=True)),
        ({"present_match": False}, PresentMatcher(present=False)),
    ],
)
@pytest.mark.parametrize("invert", [False, True])
def test_header_matcher_is_parsed(
    fields: Json,
    wanted: StringMatcher | RangeMatcher | PresentMatcher,
    invert: bool,
    errors: ValidationErrors,
) -> None:
    message = make(HEADER, {"name": "X-User", "invert_match": invert, **fields})
    assert parse_header_matcher(message, errors) == HeaderMatcher("x-user", wanted, invert)
    assert errors.ok


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"prefix": ""}, PathMatcher("prefix", "")),
        ({"path": "/a/b", "case_sensitive": True}, PathMatcher("path", "/a/b")),
        (
            {"path": "/a/b", "case_sensitive": False},
            PathMatcher("path", "/a/b", case_sensitive=False),
        ),
        ({"safe_regex": {"regex": "/.*"}, "case_sensitive": False}, PathMatcher("regex", "/.*")),
    ],
)
def test_path_matcher_is_parsed(
    fields: Json, wanted: PathMatcher, errors: ValidationErrors
) -> None:
    assert parse_path_matcher(make(MATCH, fields), errors) == wanted
    assert errors.ok


@pytest.mark.parametrize("value", ["", "/", "/svc", "/svc/", "/svc/method"])
def test_prefix_of_at_most_two_slashes_can_match_a_method(value: str) -> None:
    assert can_match_a_method(PathMatcher("prefix", value))


def test_method_path_and_regex_can_match_a_method() -> None:
    assert can_match_a_method(PathMatcher("path", "/svc/method"))
    assert can_match_a_method(PathMatcher("regex", "never"))


def test_runtime_fraction_is_its_default_value(errors: ValidationErrors) -> None:
    name = "envoy.config.core.v3.RuntimeFractionalPercent"
    value = {"numerator": 7, "denominator": "MILLION"}
    assert parse_runtime_fraction(make(name, {"default_value": value}), errors) == Fraction(7)
    assert parse_runtime_fraction(make(name, {"runtime_key": "k"}), errors) is None
    assert errors.ok
