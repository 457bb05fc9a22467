"""Unit tests of proxyless.channel.lame_channel."""

from typing import Any, cast

import pytest

from proxyless.base import State, Status, StatusCode
from proxyless.channel import CHANNEL_CLOSED, Call, ChannelOptions, LameChannel, LoopStack
from proxyless.lb import PolicyRegistry
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock, seeded_random
from tests.worlds.channels import PATH, CallObserver, EmptyPool, StubPolicy

REASON = Status(StatusCode.UNKNOWN, "target is malformed")
CONFIG: dict[str, object] = {"loadBalancingConfig": [{"stub": {}}]}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def channel(clock: VirtualClock) -> LameChannel:
    return LameChannel(
        "ipv4:1",
        ChannelOptions(service_config=CONFIG),
        LoopStack(
            clock,
            seeded_random(1),
            AsyncioNetwork(),
            DeadlineQueue(clock),
            cast("Any", EmptyPool()),
        ),
        policies=PolicyRegistry([StubPolicy()]),
        reason=REASON,
    )


def call(channel: LameChannel, *, wait_for_ready: bool) -> CallObserver:
    observer = CallObserver()
    Call(channel, channel.method(PATH), observer, wait_for_ready=wait_for_ready).start()
    return observer


@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_rpc_fails_at_once_with_the_reason(channel: LameChannel, wait_for_ready: bool) -> None:
    for _ in range(2):
        assert call(channel, wait_for_ready=wait_for_ready).status == REASON
    assert channel.calls == 0


def test_state_is_transient_failure_until_the_channel_is_closed(
    channel: LameChannel, clock: VirtualClock
) -> None:
    states: list[State] = [channel.state]
    channel.watch_state(states.append)
    channel.request_connection()
    call(channel, wait_for_ready=False)
    clock.advance(24 * 3600.0)
    assert states == [State.TRANSIENT_FAILURE]
    channel.close()
    assert states == [State.TRANSIENT_FAILURE, State.SHUTDOWN]
    assert call(channel, wait_for_ready=True).status == CHANNEL_CLOSED


def test_view_shows_the_reason(channel: LameChannel) -> None:
    view = channel.view()
    assert (view.unroutable, view.lb_tree()) == (REASON, None)
    assert view.resolver is not None, "it is not idle"
