"""Percent-encoding: the results of `urllib.parse`, with and without anything to encode."""

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base.percent import quote, quote_from_bytes, unquote, unquote_to_bytes

SAFE = st.sampled_from(["", "/", "!$&'()*+,;=:@/", " %"])


@given(st.text(), SAFE)
def test_quote_equals_that_of_urllib(text: str, safe: str) -> None:
    assert quote(text, safe) == urllib.parse.quote(text, safe)


@given(st.binary(), SAFE)
def test_quote_from_bytes_equals_that_of_urllib(data: bytes, safe: str) -> None:
    assert quote_from_bytes(data, safe) == urllib.parse.quote_from_bytes(data, safe)


@given(st.text())
def test_unquote_is_the_inverse_of_quote(text: str) -> None:
    assert unquote(urllib.parse.quote(text)) == text


@pytest.mark.parametrize("text", ["", "plain", "100%", "%4", "%zz", "a%20b", "é%C3%A9"])
def test_unquote_equals_that_of_urllib(text: str) -> None:
    assert unquote(text) == urllib.parse.unquote(text)


@given(st.binary())
def test_unquote_to_bytes_equals_that_of_urllib(data: bytes) -> None:
    assert unquote_to_bytes(data) == urllib.parse.unquote_to_bytes(data)


def test_unquote_raises_for_bytes_that_are_not_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        unquote("%ff")
