"""A62 IDLE_TIMEOUT, and A21 (REG-02): when a channel holds nothing, what a bad config does."""

from math import inf

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel.options import IDLE_TIMEOUT_S, ChannelOptions
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.wire import StreamEnd
from tests.spec.channel_world import ChannelWorld

MINUTE = 60.0
DOWN = Status(StatusCode.UNAVAILABLE, "down")


@pytest.mark.spec("A62-15")
def test_the_idle_timeout_is_on_by_default_and_can_be_set_and_disabled() -> None:
    assert ChannelOptions().idle_timeout_s == IDLE_TIMEOUT_S == 30 * MINUTE
    for timeout_s, is_idle in ((30 * MINUTE, False), (5.0, True), (inf, False)):
        world = ChannelWorld(idle_timeout_s=timeout_s)
        world.connect()
        world.clock.advance(6.0)
        assert (world.channel.state is State.IDLE) is is_idle
    world.clock.advance(24 * 60 * MINUTE)
    world.expect_state(State.READY)


@pytest.mark.spec("A62-16")
def test_without_rpcs_everything_is_released_at_the_timeout_and_not_before() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    world.clock.advance(30 * MINUTE - 1)
    world.expect_released(False)
    world.clock.advance(1)
    world.expect_released(True)
    world.expect_state(State.IDLE)
    # Nothing is left that could try again.
    assert world.clock.timers_pending == 0


@pytest.mark.spec("A62-17")
def test_an_rpc_under_way_or_queued_keeps_the_channel_and_the_time_counts_from_its_end() -> None:
    world = ChannelWorld()
    world.connect()
    world.call(None)
    world.clock.advance(100 * MINUTE)
    world.expect_state(State.READY)
    world.streams[0].end(StreamEnd(OK))
    world.clock.advance(29 * MINUTE)
    world.expect_state(State.READY)
    world.report(State.CONNECTING, QUEUE_PICKER)
    queued, _ = world.call(wait_for_ready=True)
    world.clock.advance(100 * MINUTE)
    world.expect_state(State.CONNECTING)
    queued.cancel()
    world.clock.advance(30 * MINUTE - 1)
    world.expect_state(State.CONNECTING)
    world.clock.advance(1)
    world.expect_state(State.IDLE)


@pytest.mark.spec("A62-17")
def test_a_request_to_connect_counts_as_activity() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.IDLE, QUEUE_PICKER)
    world.clock.advance(29 * MINUTE)
    world.channel.request_connection()
    assert world.policy.exits == 1
    world.clock.advance(29 * MINUTE)
    world.expect_released(False)
    world.clock.advance(1 * MINUTE)
    world.expect_released(True)


@pytest.mark.spec("A62-18")
def test_pitfall_25_the_next_rpc_starts_afresh_and_is_not_failed_by_the_old_picker() -> None:
    """grpc-java#4207."""
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    world.clock.advance(30 * MINUTE)
    _, observer = world.call()
    assert observer.is_running
    assert world.resolver.started == 2
    world.resolve()
    assert not world.policy.is_closed
    world.ready()
    world.streams[0].answer()
    assert observer.status == OK


@pytest.mark.spec("REG-02")
def test_a_rejected_service_config_leaves_the_running_one_in_force() -> None:
    world = ChannelWorld()
    world.connect()
    assert len(world.policy.updates) == 1
    refusal = world.resolve(service_config={"loadBalancingConfig": [{"stub": {"bad": True}}]})
    assert "loadBalancingConfig[0].stub" in refusal.details
    assert len(world.policy.updates) == 1
    world.expect_state(State.READY)
    _, observer = world.call()
    world.streams[0].answer()
    assert observer.status == OK


@pytest.mark.spec("REG-02")
def test_without_a_valid_config_the_channel_fails_until_one_comes() -> None:
    world = ChannelWorld()
    world.channel.request_connection()
    world.resolve(service_config={"loadBalancingConfig": [{"unheard_of": {}}]})
    world.expect_state(State.TRANSIENT_FAILURE)
    _, failed = world.call()
    _, waiting = world.call(wait_for_ready=True)
    assert failed.status.code is StatusCode.UNAVAILABLE
    assert "No known policies in list: unheard_of" in failed.status.details
    assert waiting.is_running
    world.resolve()
    world.ready()
    world.streams[0].answer()
    assert waiting.status == OK
