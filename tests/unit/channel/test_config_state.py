"""Unit tests of proxyless.channel.config_state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Status, StatusCode, ValidationError
from proxyless.channel import CallConfig, ChannelOptions
from proxyless.channel.config_state import ConfigState
from proxyless.channel.service_config import MethodConfig, ServiceConfig
from proxyless.lb import PolicyRegistry
from tests.worlds.channels import FakeSelector, StubPolicy

if TYPE_CHECKING:
    from proxyless.wire import StreamEnd

STUB: dict[str, object] = {"loadBalancingConfig": [{"stub": {}}]}
BAD: dict[str, object] = {"loadBalancingConfig": [{"stub": {"bad": True}}]}
THROTTLED: dict[str, object] = {**STUB, "retryThrottling": {"maxTokens": 10, "tokenRatio": 1}}
DOWN = Status(StatusCode.UNAVAILABLE, "down")


def make_state(**options: bool) -> ConfigState:
    channel_options = ChannelOptions(service_config=STUB, **options)  # type: ignore[arg-type]
    return ConfigState("stub:///service", channel_options, PolicyRegistry([StubPolicy()]))


def selector() -> FakeSelector:
    return FakeSelector(CallConfig(MethodConfig()))


class WaitingRpc:
    """An RPC that waits for a selector, and records its calls."""

    path = "/pkg.Service/Method"

    def __init__(self, state: ConfigState, *, wait_for_ready: bool = False) -> None:
        self._state = state
        self.wait_for_ready: bool | None = wait_for_ready
        self.is_ended = False
        self.selected = 0
        self.ends: list[StreamEnd] = []
        state.add(self)

    def advance(self) -> None:
        self.selected += 1

    def finish(self, end: StreamEnd) -> None:
        self.is_ended = True
        self.ends.append(end)
        self._state.remove(self)

    def on_bug(self, source: str, error: Exception) -> None:
        raise AssertionError(source) from error


def parsed(state: ConfigState, json: dict[str, object]) -> ServiceConfig:
    config = state.choose(json)
    assert isinstance(config, ServiceConfig)
    return config


def test_state_is_not_made_when_the_default_service_config_is_bad() -> None:
    with pytest.raises(ValidationError, match="service config of the channel"):
        ConfigState("t", ChannelOptions(service_config=BAD), PolicyRegistry([StubPolicy()]))


def test_choose_returns_the_default_when_the_resolver_has_none_or_is_not_used() -> None:
    state, other = make_state(), make_state(is_resolver_config_used=False)
    assert state.choose(None) is state.choose(STUB)
    assert other.choose(BAD) is other.choose(None)


def test_choose_parses_a_service_config_once_when_it_is_the_same_object() -> None:
    state, found = make_state(), dict(STUB)
    assert state.choose(found) is state.choose(found)
    assert state.choose(found) is not state.choose(dict(STUB))


def test_choose_returns_the_status_when_the_service_config_is_bad() -> None:
    state = make_state()
    error = state.choose(BAD)
    assert isinstance(error, Status)
    assert error.details.startswith("stub:///service: service config: ")
    assert state.choose(DOWN) is DOWN


def test_throttle_is_kept_when_the_channel_is_idle_until_a_config_has_none() -> None:
    state = make_state()
    config = parsed(state, THROTTLED)
    assert (state.use(config), state.use(config)) == (True, False)
    throttle = state.throttle
    assert throttle is not None
    state.release()
    assert state.service_config is None
    assert state.throttle is throttle
    assert state.use(parsed(state, STUB))
    assert state.throttle is None


def test_publish_closes_the_previous_selector_when_it_is_another() -> None:
    state, first, second = make_state(), selector(), selector()
    state.publish(first)
    state.publish(first)
    assert not first.is_closed
    state.publish(second)
    assert (first.is_closed, second.is_closed) == (True, False)


def test_publish_selects_the_calls_that_wait_except_those_that_ended() -> None:
    state = make_state()
    waiting, ended = WaitingRpc(state), WaitingRpc(state)
    ended.is_ended = True
    state.publish(selector())
    assert (waiting.selected, ended.selected, len(state.unselected)) == (1, 0, 0)


def test_release_closes_the_selector_and_keeps_the_calls_that_wait() -> None:
    state, current = make_state(), selector()
    state.publish(current)
    call = WaitingRpc(state)
    state.release()
    assert current.is_closed
    assert state.selector is None
    assert list(state.unselected) == [call]


def test_fail_unselected_ends_the_calls_that_are_not_wait_for_ready() -> None:
    state = make_state()
    call, patient = WaitingRpc(state), WaitingRpc(state, wait_for_ready=True)
    state.fail_unselected(DOWN, lambda status, path: Status(status.code, f"{path}: down"))
    assert [end.status for end in call.ends] == [Status(DOWN.code, f"{call.path}: down")]
    assert (patient.ends, list(state.unselected)) == ([], [patient])


def test_connection_limit_follows_the_service_config_in_use() -> None:
    state = make_state()
    policy = state.choose(STUB)
    assert isinstance(policy, ServiceConfig)
    seen = []
    for maximum in (3, 5, 1):
        assert state.use(replace(policy, connections_max=maximum))
        seen.append(state.connection_limit.value)
    state.release()
    assert seen == [3, 5, 1]
