"""Unit tests of proxyless.base.durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base.durations import parse_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30.0),
        (0.5, 0.5),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("1h2m3s", 3723.0),
        ("00:30", 30.0),
        ("01:30.5", 90.5),
        ("1:00:00", 3600.0),
    ],
)
def test_time_is_parsed(value: object, seconds: float) -> None:
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "s", "x", "30", "30 s", "-1s", "1:60", "1s2m", True, None, [], -1, 10**400, float("nan")],
)
def test_invalid_time_is_none(value: object) -> None:
    assert parse_seconds(value) is None


@given(st.text(alphabet="0123456789:.hms ") | st.integers() | st.floats())
def test_any_value_is_a_number_of_seconds_or_none(value: object) -> None:
    seconds = parse_seconds(value)
    assert seconds is None or 0 <= seconds < float("inf")
