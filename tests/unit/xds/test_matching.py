"""Matchers: what the tables of the specification's tests leave out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.matching import compile_header, compile_path, compile_string, header_value
from proxyless.xds.resources import HeaderMatcher, PathMatcher, StringMatcher
from proxyless.xds.resources.matcher import RangeMatcher


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers())
def test_range_is_half_open(start: int, end: int, value: int) -> None:
    matches = compile_header(HeaderMatcher("n", RangeMatcher(start, end)))
    assert matches((("n", str(value)),)) is (start <= value < end)


@pytest.mark.parametrize(
    "text", ["", "-", "+", "1_0", " 1", "1 ", "\u0661", "1e0", "0x1", "--1", "1,1"]
)
def test_what_is_no_integer_is_in_no_range(text: str) -> None:
    assert not compile_header(HeaderMatcher("n", RangeMatcher(-10, 10)))((("n", text),))


def test_sign_is_accepted() -> None:
    matches = compile_header(HeaderMatcher("n", RangeMatcher(-10, 10)))
    assert matches((("n", "+3"),))
    assert matches((("n", "-3"),))


@given(st.text(), st.text())
def test_contains_does_not_depend_on_which_text_is_which(wanted: str, text: str) -> None:
    assert compile_string(StringMatcher("contains", wanted))(text) is (wanted in text)
    assert compile_string(StringMatcher("suffix", wanted))(text) is text.endswith(wanted)


def test_values_are_joined_in_order_and_bytes_are_text() -> None:
    metadata = (("x", "1"), ("y", "2"), ("x", b"\xe4"), ("x", ""))
    assert header_value(metadata, "x") == "1,ä,"
    assert header_value(metadata, "z") is None
    assert header_value((("z", ""),), "z") == ""


def test_application_s_own_content_type_is_not_looked_at() -> None:
    assert header_value((("content-type", "text/plain"),), "content-type") == "application/grpc"


def test_regular_expression_describes_the_whole_path() -> None:
    matches = compile_path(PathMatcher("regex", "/a|/b/c"))
    assert matches("/a")
    assert matches("/b/c")
    assert not matches("/a/c")
