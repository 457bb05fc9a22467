"""Unit tests of proxyless.sim.rehearsal.fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.base.durations import parse_seconds
from proxyless.sim.rehearsal.fields import Fields, show_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (30, "0:30"), (90.25, "1:30.250"), (3723, "1:02:03"), (59.9999, "1:00")],
)
def test_time_is_shown(seconds: float, text: str) -> None:
    assert show_time(seconds) == text


@given(st.integers(min_value=0, max_value=10**8))
def test_shown_time_can_be_parsed(milliseconds: int) -> None:
    assert parse_seconds(show_time(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


def test_valid_values_are_returned() -> None:
    errors = ValidationErrors()
    fields = Fields(
        {
            "a": "x",
            "b": ["x", "y", "x"],
            "c": "x",
            "d": True,
            "e": 3,
            "f": 0.5,
            "g": "1m",
            "h": "5%",
        },
        errors,
    )
    assert fields.text("a", "") == "x"
    assert fields.texts("b") == ("x", "y")
    assert fields.texts("c") == ("x",)
    assert fields.flag("d", default=False) is True
    assert fields.integer("e", 0, low=0, high=3) == 3
    assert fields.number("f", 1.0, high=1.0) == 0.5
    assert fields.seconds("g", 0.0, high=60.0) == 60.0
    assert fields.share("h", 1.0) == 0.05
    fields.refuse_others()
    assert errors.ok


def test_missing_values_have_defaults() -> None:
    fields = Fields({}, errors := ValidationErrors())
    assert fields.text("a", "x") == "x"
    assert fields.texts("a", ("x",)) == ("x",)
    assert fields.flag("a", default=True) is True
    assert fields.integer("a", 7, low=0, high=1) == 7
    assert fields.number("a", 7.0, high=1.0) == 7.0
    assert fields.seconds("a", 7.0, high=1.0) == 7.0
    assert fields.share("a", 1.0) == 1.0
    assert errors.ok


@pytest.mark.parametrize("bad", [None, 1.5, {}, "", ["x", 1], [[]], "9h"])
def test_invalid_value_is_an_error_and_the_default(bad: object) -> None:
    fields = Fields(dict.fromkeys("abcdefg", bad), errors := ValidationErrors())
    given = [
        fields.text("a", "default"),
        fields.texts("b", ("default",)),
        fields.flag("c", default=True),
        fields.integer("d", 1, low=1, high=1),
        fields.number("e", 1.0, high=1.0),
        fields.seconds("f", 1.0, high=1.0),
        fields.share("g", 1.0),
    ]
    paths = [path for path, _ in errors.items()]
    # Only a non-empty string is a valid text.
    texts = {"a", "b"} if bad == "9h" else set()
    assert set(paths) == set("abcdefg") - texts
    assert given[2:] == [True, 1, 1.0, 1.0, 1.0]


def test_errors_have_the_value_and_the_expected_type() -> None:
    fields = Fields({"rate": -1, "at": "2m"}, errors := ValidationErrors())
    fields.number("rate", 1.0, high=10.0)
    fields.seconds("at", 0.0, high=60.0)
    assert list(errors.items()) == [
        ("rate", "is -1, wanted a number above 0, at most 10"),
        ("at", "is '2m', which is 2:00, wanted 0:00 to 1:00"),
    ]


def test_unknown_key_is_an_error() -> None:
    fields = Fields({"rat": 1, 5: 6}, errors := ValidationErrors())
    assert "rate" not in fields
    fields.refuse_others()
    assert list(errors.items()) == [
        ("rat", "is not known, wanted one of rate"),
        ("5", "is not known, wanted one of rate"),
    ]


def test_value_that_is_no_mapping_is_an_error() -> None:
    fields = Fields([1], errors := ValidationErrors())
    assert fields.text("a", "x") == "x"
    assert list(errors.items()) == [("", "is a list, wanted a mapping")]
