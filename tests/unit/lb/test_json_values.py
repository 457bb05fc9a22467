"""Unit tests of proxyless.lb.json_values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.lb.json_values import DURATION_MAX_S, show_value, to_integer, to_seconds

TOO_LONG = f"{DURATION_MAX_S + 1}s"


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2), (2.0, 2), ("2", 2), ("-2", -2), (0, 0), (2**64, 2**64), ("007", 7)],
)
def test_integers_in_all_their_forms(value: object, number: int) -> None:
    assert to_integer(value) == number


@pytest.mark.parametrize(
    "value", [True, 2.5, float("inf"), float("nan"), "", "2.0", " 2", "\u0662", "9" * 21, None, [2]]
)
def test_what_is_no_integer(value: object) -> None:
    assert to_integer(value) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1s", 1.0),
        ("1.5s", 1.5),
        ("0s", 0.0),
        ("0.000000001s", 1e-9),
        (f"{DURATION_MAX_S}s", float(DURATION_MAX_S)),
    ],
)
def test_durations(value: str, seconds: float) -> None:
    assert to_seconds(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1",
        "s",
        "-1s",
        "1.s",
        ".5s",
        "1e3s",
        "1.0000000001s",
        " 1s",
        "\u0661s",
        1,
        None,
        TOO_LONG,
    ],
)
def test_what_is_no_duration(value: object) -> None:
    assert to_seconds(value) is None


@given(st.integers(0, DURATION_MAX_S), st.integers(0, 999_999_999))
def test_nanoseconds_are_kept(seconds: int, nanos: int) -> None:
    assert to_seconds(f"{seconds}.{nanos:09}s") == seconds + nanos / 1e9


@pytest.mark.parametrize(
    ("value", "shown"), [("x", "'x'"), (2, "2"), (True, "a boolean"), ([1], "a list")]
)
def test_a_wrong_value_is_shown_whole_only_if_it_is_plain(value: object, shown: str) -> None:
    assert show_value(value) == shown
