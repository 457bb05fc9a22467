"""Unit tests of proxyless.base.validation."""

import pytest

from proxyless.base.validation import (
    ERRORS_MAX,
    TEXT_LENGTH_MAX,
    ValidationError,
    ValidationErrors,
)


@pytest.fixture
def errors() -> ValidationErrors:
    return ValidationErrors()


def test_errors_are_rendered_by_field_path(errors: ValidationErrors) -> None:
    with errors.field("lb_policy"):
        errors.add("unsupported value 9")
    with errors.field("ring_hash_lb_config"), errors.field("minimum_ring_size"):
        errors.add("must be at most 8388608, got 9000000")
    with pytest.raises(ValidationError) as caught:
        errors.raise_if_any("cluster 'payments'")
    assert str(caught.value) == (
        "cluster 'payments': [field:lb_policy error:unsupported value 9; "
        "field:ring_hash_lb_config.minimum_ring_size error:must be at most 8388608, got 9000000]"
    )
    assert caught.value.errors is errors


def test_nothing_added_is_ok_and_raises_nothing(errors: ValidationErrors) -> None:
    with errors.field("a"), errors.index(1):
        pass
    errors.raise_if_any("thing")
    assert errors.ok
    assert (errors.count, str(errors)) == (0, "[]")


def test_paths_are_made_of_fields_indexes_and_map_keys(errors: ValidationErrors) -> None:
    with errors.field("endpoints"), errors.index(0), errors.field("locality"):
        errors.add("missing")
    with errors.field("children"), errors.key("a"), errors.field("config"):
        errors.add("missing")
    with errors.index(2):
        errors.add("not a string")
    assert str(errors) == (
        "[field:endpoints[0].locality error:missing; "
        'field:children["a"].config error:missing; '
        "field:[2] error:not a string]"
    )


def test_each_element_of_a_list_is_a_scope(errors: ValidationErrors) -> None:
    with errors.field("endpoints"):
        for element in errors.each(["good", "bad", "bad"]):
            if element == "bad":
                with errors.field("port"):
                    errors.add("is 0")
        errors.add("too many")
    assert str(errors) == (
        "[field:endpoints[1].port error:is 0; "
        "field:endpoints[2].port error:is 0; "
        "field:endpoints error:too many]"
    )


def test_scope_of_an_element_ends_when_the_rest_is_skipped(errors: ValidationErrors) -> None:
    for _ in errors.each("ab"):
        break
    errors.add("has an error")
    assert str(errors) == "[error:has an error]"


def test_an_error_outside_all_fields_has_no_path(errors: ValidationErrors) -> None:
    errors.add("not an object")
    assert str(errors) == "[error:not an object]"


def test_errors_at_one_field_are_joined_even_if_not_consecutive(
    errors: ValidationErrors,
) -> None:
    for name, text in [("a", "one"), ("b", "two"), ("a", "three")]:
        with errors.field(name):
            errors.add(text)
    assert str(errors) == "[field:a errors:[one; three]; field:b error:two]"
    assert errors.count == 3


def test_a_scope_ends_when_its_body_raises(errors: ValidationErrors) -> None:
    with pytest.raises(KeyError), errors.field("a"), errors.index(0):
        raise KeyError
    errors.add("outside")
    assert str(errors) == "[error:outside]"


def test_a_scope_that_is_not_entered_changes_nothing(errors: ValidationErrors) -> None:
    errors.field("a")
    errors.add("outside")
    assert str(errors) == "[error:outside]"


def test_a_map_key_cannot_break_out_of_its_quotes(errors: ValidationErrors) -> None:
    with errors.field("m"), errors.key('x"] error:fake\n'):
        errors.add("bad")
    assert str(errors) == r'[field:m["x\"] error:fake\n"] error:bad]'


@pytest.mark.parametrize(("count", "end"), [(ERRORS_MAX, "99]"), (ERRORS_MAX + 7, "; and more]")])
def test_errors_beyond_the_limit_are_only_counted(
    errors: ValidationErrors, count: int, end: str
) -> None:
    for index in range(count):
        with errors.index(index):
            errors.add(f"bad {index}")
    assert errors.count == count
    assert str(errors).endswith(end)
    assert str(errors).count("field:") == ERRORS_MAX


def test_a_long_text_and_a_long_path_are_truncated(errors: ValidationErrors) -> None:
    with errors.key("k" * 10_000):
        errors.add("v" * TEXT_LENGTH_MAX)
        errors.add("w" * 10_000)
    text = str(errors)
    assert "v" * TEXT_LENGTH_MAX in text
    assert "w" * (TEXT_LENGTH_MAX - 3) + "..." in text
    assert "w" * (TEXT_LENGTH_MAX - 2) not in text
    assert len(text) < 3 * TEXT_LENGTH_MAX + 50


def test_a_validation_error_is_a_value_error(errors: ValidationErrors) -> None:
    assert isinstance(ValidationError("thing", errors), ValueError)


def test_items_yields_each_error_with_its_path() -> None:
    errors = ValidationErrors()
    errors.add("is bad")
    with errors.field("a"), errors.index(1):
        errors.add("is 1")
        errors.add("is odd")
    assert list(errors.items()) == [("", "is bad"), ("a[1]", "is 1"), ("a[1]", "is odd")]
