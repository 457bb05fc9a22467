"""Compiled matchers: cases that the tests of the specification do not cover."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.resources import HeaderMatcher, PathMatcher, StringMatcher
from proxyless.xds.resources.matcher import RangeMatcher
from proxyless.xds.resources.matching import (
    compile_header,
    compile_path,
    compile_string,
    header_value,
)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers())
def test_range_matches_start_and_not_end(start: int, end: int, value: int) -> None:
    matches = compile_header(HeaderMatcher("n", RangeMatcher(start, end)))
    assert matches((("n", str(value)),)) is (start <= value < end)


# The syntax of absl::SimpleAtoi, which C-core and Envoy use: blanks around it, one sign, digits.
INTEGERS = {
    "3": 3,
    "+3": 3,
    "-3": -3,
    " 3": 3,
    "3 ": 3,
    "  -3  ": -3,
    " +3 ": 3,
    "\t\n\v\f\r 3\t\n\v\f\r ": 3,
    "0003": 3,
    "-" + "0" * 5000 + "3": -3,
    "-0": 0,
    str(2**63 - 2): 2**63 - 2,
    str(-(2**63)): -(2**63),
}
NO_INTEGERS = [
    *("", " ", "-", "+", " - ", "- 3", "+ 3", "--3", "+-3", "3-", "1 1", "1,1", "1, 1"),
    *("1_0", "1e0", "0x1", "1.0", "\u0661", "\xa03", "3\xa0", "\x1c3", "3\0"),
    *(str(2**63), str(-(2**63) - 1), "9" * 5000),
]


def test_range_parses_integers_as_c_core_does() -> None:
    for text, value in INTEGERS.items():
        matches = compile_header(HeaderMatcher("n", RangeMatcher(value, value + 1)))
        assert matches((("n", text),)), text[:20]


@pytest.mark.parametrize("text", NO_INTEGERS, ids=lambda text: repr(text[:8]))
def test_range_does_not_match_when_the_text_is_no_64_bit_integer(text: str) -> None:
    assert not compile_header(HeaderMatcher("n", RangeMatcher(-(2**63), 2**63 - 1)))((("n", text),))


@given(st.text(), st.text())
def test_contains_and_suffix_match_as_python_does(wanted: str, text: str) -> None:
    assert compile_string(StringMatcher("contains", wanted))(text) is (wanted in text)
    assert compile_string(StringMatcher("suffix", wanted))(text) is text.endswith(wanted)


def test_header_values_are_joined_in_order_and_decoded() -> None:
    metadata = (("x", "1"), ("y", "2"), ("x", b"\xe4"), ("x", ""))
    assert header_value(metadata, "x") == "1,ä,"
    assert header_value(metadata, "z") is None
    assert header_value((("z", ""),), "z") == ""


def test_content_type_of_the_application_is_ignored() -> None:
    assert header_value((("content-type", "text/plain"),), "content-type") == "application/grpc"


def test_regex_must_match_the_whole_path() -> None:
    matches = compile_path(PathMatcher("regex", "/a|/b/c"))
    assert matches("/a")
    assert matches("/b/c")
    assert not matches("/a/c")
