"""Unit tests of proxyless.base.json_fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.base.json_fields import (
    BOOLEAN,
    DEPTH_MAX,
    DURATION_MAX_S,
    LIST,
    POSITIVE_DURATION,
    JsonObject,
    show_value,
    to_integer,
    to_seconds,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


def test_null_is_absent_for_every_kind_of_field() -> None:
    errors = ValidationErrors()
    reader = JsonObject({"f": None}, errors)
    assert not reader.has("f")
    assert reader.text("f") == ""
    assert reader.read_or("f", BOOLEAN, default=False) is False
    assert reader.read_or("f", POSITIVE_DURATION, 7.0) == 7.0
    assert reader.read_or("f", LIST, []) == []
    assert list(reader.objects("f", 1)) == []
    assert list(reader.entries("f", 1)) == []
    assert reader.nested("f", lambda _: 1) is None
    assert reader.tree("f") == {}
    assert errors.ok


@pytest.mark.parametrize("value", ["", 0, False, [], {}])
def test_a_value_that_is_present_may_be_empty(value: object) -> None:
    assert JsonObject({"f": value}, ValidationErrors()).has("f")


@pytest.mark.parametrize(
    ("value", "seconds"), [("600s", 600.0), ("0.5s", 0.5), ("1.000000001s", 1.000000001)]
)
def test_a_duration_is_read_in_seconds(value: str, seconds: float) -> None:
    errors = ValidationErrors()
    assert JsonObject({"f": value}, errors).read_or("f", POSITIVE_DURATION, 7.0) == seconds
    assert errors.ok


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0s", "'0s'"),
        ("-1s", "'-1s'"),
        ("1", "'1'"),
        ("1m", "'1m'"),
        ("315576000001s", "'315576000001s'"),
        ("\u0661s", "'\u0661s'"),
        (5, "5"),
        ([], "a list"),
    ],
)
def test_an_invalid_duration_is_an_error_and_reads_as_the_default(
    value: object, shown: str
) -> None:
    errors = ValidationErrors()
    assert JsonObject({"f": value}, errors).read_or("f", POSITIVE_DURATION, 7.0) == 7.0
    assert str(errors) == f"[field:f error:is {shown}, wanted a duration above 0 such as '1.5s']"


@pytest.mark.parametrize("value", ["true", 1, 0, []])
def test_only_a_boolean_is_a_flag(value: object) -> None:
    errors = ValidationErrors()
    assert JsonObject({"f": value}, errors).read_or("f", BOOLEAN, default=False) is False
    assert "wanted a boolean" in str(errors)


def test_errors_are_at_the_path_of_the_current_element() -> None:
    errors = ValidationErrors()
    root = JsonObject({"list": [{}, {"t": 3}, "x"], "map": {"k": {"t": []}, "l": 1}}, errors)
    assert [each.text("t") for each in root.objects("list", 3)] == ["", ""]
    assert [(key, each.text("t")) for key, each in root.entries("map", 2)] == [("k", "")]
    assert str(errors) == (
        "[field:list[1].t error:is 3, wanted a string; "
        "field:list[2] error:is 'x', wanted an object; "
        'field:map["k"].t error:is a list, wanted a string; '
        'field:map["l"] error:is 1, wanted an object]'
    )


def test_a_list_or_map_that_is_too_long_is_not_read() -> None:
    errors = ValidationErrors()
    root = JsonObject({"list": [{}, {}], "map": {"a": {}, "b": {}}}, errors)
    assert list(root.objects("list", 1)) == []
    assert list(root.entries("map", 1)) == []
    assert str(errors) == (
        "[field:list error:has 2 elements, wanted at most 1; "
        "field:map error:has 2 entries, wanted at most 1]"
    )


def nest(levels: int) -> dict[str, object]:
    """A tree of nested objects of this depth."""
    tree: dict[str, object] = {}
    for _ in range(levels - 1):
        tree = {"x": tree}
    return tree


def test_a_tree_deeper_than_the_limit_is_an_error() -> None:
    errors = ValidationErrors()
    assert JsonObject({"f": nest(DEPTH_MAX)}, errors).tree("f") == nest(DEPTH_MAX)
    assert errors.ok
    JsonObject({"f": nest(DEPTH_MAX + 1)}, errors).tree("f")
    assert f"is more than {DEPTH_MAX} levels deep" in str(errors)


def test_a_tree_that_contains_itself_ends() -> None:
    tree: dict[str, object] = {}
    tree["f"] = [tree]
    errors = ValidationErrors()
    JsonObject({"f": tree}, errors).tree("f")
    assert "levels deep" in str(errors)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("\ud800", "is '\\ud800', wanted valid Unicode"),
        (10**400, "is a number beyond what JSON can carry, wanted a finite one"),
        (float("inf"), "is a number beyond what JSON can carry, wanted a finite one"),
        (float("nan"), "is a number beyond what JSON can carry, wanted a finite one"),
        (b"x", "is of type bytes, wanted a JSON value"),
    ],
)
def test_values_that_are_not_valid_in_protobuf_are_errors(value: object, error: str) -> None:
    errors = ValidationErrors()
    JsonObject({"f": {"a": [value]}}, errors).tree("f")
    assert str(errors) == f'[field:f["a"][0] error:{error}]'


def test_keys_of_a_tree_are_strings() -> None:
    errors = ValidationErrors()
    JsonObject({"f": {3: 1}}, errors).tree("f")
    assert str(errors) == '[field:f["3"] error:is 3, wanted a string]'


@given(st.dictionaries(st.text(), JSON))
def test_a_tree_is_an_equal_copy(document: dict[str, object]) -> None:
    errors = ValidationErrors()
    copy = JsonObject({"f": document}, errors).tree("f")
    assert errors.ok
    assert copy == document
    assert copy is not document


TOO_LONG = f"{DURATION_MAX_S + 1}s"


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2), (2.0, 2), ("2", 2), ("-2", -2), (0, 0), (2**64, 2**64), ("007", 7)],
)
def test_to_integer_accepts_numbers_and_numeric_strings(value: object, number: int) -> None:
    assert to_integer(value) == number


@pytest.mark.parametrize(
    "value", [True, 2.5, float("inf"), float("nan"), "", "2.0", " 2", "\u0662", "9" * 21, None, [2]]
)
def test_other_values_are_not_integers(value: object) -> None:
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
def test_duration_is_read_in_seconds(value: str, seconds: float) -> None:
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
def test_other_values_are_not_durations(value: object) -> None:
    assert to_seconds(value) is None


@given(st.integers(0, DURATION_MAX_S), st.integers(0, 999_999_999))
def test_nanoseconds_are_kept(seconds: int, nanos: int) -> None:
    assert to_seconds(f"{seconds}.{nanos:09}s") == seconds + nanos / 1e9


@pytest.mark.parametrize(
    ("value", "shown"), [("x", "'x'"), (2, "2"), (True, "a boolean"), ([1], "a list")]
)
def test_show_value_shows_strings_and_numbers_and_the_type_of_others(
    value: object, shown: str
) -> None:
    assert show_value(value) == shown
