"""Unit tests of proxyless.lb.connection_limit."""

import pytest

from proxyless.lb.connection_limit import (
    SERVICE_CONFIG_GUARD,
    XDS_GUARD,
    ConnectionLimit,
    is_scaling_enabled,
)


def test_listener_is_called_once_when_the_limit_is_raised() -> None:
    limit, calls = ConnectionLimit(2), []
    limit.add_listener(lambda: calls.append(limit.value))
    limit.set(2)
    limit.set(1)
    assert calls == []
    limit.set(2)
    limit.set(3)
    assert calls == [2]


def test_listener_that_adds_itself_again_is_called_for_the_next_raise() -> None:
    limit, calls = ConnectionLimit(), []

    def on_raised() -> None:
        calls.append(limit.value)
        limit.add_listener(on_raised)

    limit.add_listener(on_raised)
    for value in (2, 5, 4, 6):
        limit.set(value)
    assert calls == [2, 5, 6]


def test_removed_listener_is_not_called() -> None:
    limit, calls = ConnectionLimit(), [0]
    limit.add_listener(calls.clear)
    for _ in range(2):
        limit.remove_listener(calls.clear)
    limit.set(2)
    assert calls == [0]


@pytest.mark.parametrize("guard", [SERVICE_CONFIG_GUARD, XDS_GUARD])
def test_scaling_is_enabled_by_its_own_variable_only(guard: str) -> None:
    assert not is_scaling_enabled({}, guard)
    assert is_scaling_enabled({guard: "true"}, guard)
    [other] = {SERVICE_CONFIG_GUARD, XDS_GUARD} - {guard}
    assert not is_scaling_enabled({other: "true"}, guard)
