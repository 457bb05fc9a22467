"""Unit tests of proxyless.base.environment."""

import pytest

from proxyless.base.environment import read_flag


@pytest.mark.parametrize(
    ("value", "if_off", "if_on"),
    [
        ("true", True, True),
        (" TRUE ", True, True),
        ("false", False, False),
        ("False", False, False),
        ("", False, True),
        ("1", False, True),
        ("no", False, True),
    ],
)
def test_flag_is_the_default_unless_its_text_is_true_or_false(
    value: str, *, if_off: bool, if_on: bool
) -> None:
    assert read_flag({"F": value}, "F", default=False) is if_off
    assert read_flag({"F": value}, "F", default=True) is if_on


def test_flag_is_the_default_when_it_is_unset() -> None:
    assert read_flag({}, "F", default=True)
    assert not read_flag({}, "F", default=False)
