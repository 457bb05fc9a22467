"""Unit tests of proxyless.base.texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import one_line, quote
from proxyless.base.texts import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, count


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", '""'),
        ("orders", '"orders"'),
        ("größe 注文", '"größe 注文"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a\\b", r'"a\\b"'),
        ("a\nERROR forged", r'"a\nERROR forged"'),
        ("\x1b[31mred", r'"\x1b[31mred"'),
        ("a\u2028b\u202ec", r'"a\u2028b\u202ec"'),
        ("\ud800", r'"\ud800"'),
    ],
)
def test_a_name_stays_inside_its_quotes_and_its_line(name: str, shown: str) -> None:
    assert quote(name) == shown


def test_a_long_name_is_truncated_with_its_length() -> None:
    assert quote("x" * NAME_LENGTH_MAX) == f'"{"x" * NAME_LENGTH_MAX}"'
    assert quote("x" * 5_000) == f'"{"x" * NAME_LENGTH_MAX}"... (5000 characters)'
    assert quote("abcdef", 3) == '"abc"... (6 characters)'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("connection refused", "connection refused"),
        ("a\nb\r\nc", "a b c"),
        ("a\x85b\u2028c", "a b c"),
        ("a\tb\x00c", r"a\tb\x00c"),
        ("it's \x1b[0m", r"it's \x1b[0m"),
    ],
)
def test_a_text_is_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_long_text_is_truncated_even_if_escaping_makes_it_longer() -> None:
    assert one_line("x" * TEXT_LENGTH_MAX) == "x" * TEXT_LENGTH_MAX
    cut = "... (5000 characters)"
    assert one_line("x" * 5_000) == f"{'x' * (TEXT_LENGTH_MAX - len(cut))}{cut}"
    assert one_line("\x00" * 12, 39) == r"\x00\x00\x00\x00\x00... (12 characters)"
    assert one_line("abc" * 5, 4) == "... "


@pytest.mark.parametrize("length", [1, TEXT_LENGTH_MAX - 10, TEXT_LENGTH_MAX, 100_000])
def test_the_node_id_is_kept_however_often_a_text_is_truncated(length: int) -> None:
    node = ' (node id "edge-7")'
    once = one_line(f"{'x' * length}{node}")
    twice = one_line(f'cluster "web": {once}')
    for text in (once, twice, one_line(twice)):
        assert text.endswith(node)
        assert len(text) <= TEXT_LENGTH_MAX


def test_a_node_id_that_is_not_at_the_end_is_truncated() -> None:
    for text in (f'a (node id "edge-7") {"x" * 5_000}', f'a (node id "{"x" * 5_000}")'):
        assert one_line(text).endswith(f"... ({len(text)} characters)")


@given(st.text(max_size=300), st.integers(min_value=0, max_value=300))
def test_one_line_is_idempotent(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert one_line(line, limit) == line


@given(st.text(max_size=300))
def test_results_are_printable(text: str) -> None:
    for shown in (quote(text), one_line(text)):
        assert shown.isprintable()
        assert len(shown.splitlines()) <= 1


@given(st.text(alphabet=st.characters(codec="ascii", min_codepoint=32, max_codepoint=126)))
def test_a_quoted_name_can_be_parsed(name: str) -> None:
    assert json.loads(quote(name, 10_000)) == name


def test_count_uses_singular_and_plural() -> None:
    assert [count(each, "route") for each in (0, 1, 2)] == ["0 routes", "1 route", "2 routes"]
    assert count(1, "leaf", "leaves") == "1 leaf"
    assert count(3, "leaf", "leaves") == "3 leaves"
