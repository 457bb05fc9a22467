"""IDLE_TIMEOUT of channels (A62), and rejected service configs (A21, REG-02)."""

from math import inf
from typing import Any

import grpc
import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel.options import IDLE_TIMEOUT_S, ChannelOptions
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.sim import UNARY, pause
from proxyless.sim import World as SimWorld
from proxyless.wire import StreamEnd
from tests.worlds.channels import ChannelWorld

MINUTE = 60.0
DOWN = Status(StatusCode.UNAVAILABLE, "down")


@pytest.mark.spec("A62-15")
def test_idle_timeout_is_30_minutes_by_default_and_can_be_set_and_disabled() -> None:
    assert ChannelOptions().idle_timeout_s == IDLE_TIMEOUT_S == 30 * MINUTE
    for timeout_s, is_idle in ((30 * MINUTE, False), (5.0, True), (inf, False)):
        world = ChannelWorld(idle_timeout_s=timeout_s)
        world.connect()
        world.clock.advance(6.0)
        assert (world.channel.state is State.IDLE) is is_idle
    world.clock.advance(24 * 60 * MINUTE)
    world.expect_state(State.READY)


@pytest.mark.spec("A62-16")
def test_channel_releases_everything_at_the_idle_timeout_when_there_are_no_rpcs() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    world.clock.advance(30 * MINUTE - 1)
    world.expect_released(False)
    world.clock.advance(1)
    world.expect_released(True)
    world.expect_state(State.IDLE)
    # No timer is left that could retry.
    assert world.clock.timers_pending == 0


@pytest.mark.spec("A62-16")
def test_no_connection_is_attempted_when_a_failing_channel_has_become_idle() -> None:
    world = SimWorld(17)
    attempts_s: list[float] = []
    connect = world.fabric.connect

    async def record(*arguments: Any) -> Any:  # noqa: ANN401 - those of connect
        attempts_s.append(world.now_s())
        return await connect(*arguments)

    world.fabric.connect = record  # type: ignore[method-assign, assignment]

    async def story() -> None:
        host = world.host("nothing-listens")
        channel = world.client().channel(f"ipv4:{host.ip}:50051")
        started_s = world.now_s()
        channel.get_state(try_to_connect=True)
        await pause(30 * MINUTE - 1)
        assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        # Attempts are repeated until the timeout, at least once per longest backoff.
        assert len(attempts_s) > 10
        assert attempts_s[-1] > started_s + 30 * MINUTE - 1 - 120 * 1.2
        await pause(1.1)
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        count = len(attempts_s)
        await pause(60 * MINUTE)
        assert len(attempts_s) == count
        # The next RPC starts anew.
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(UNARY)(b"", timeout=5)
        assert len(attempts_s) > count

    world.run(story(), virtual_seconds=3 * 60 * MINUTE)


@pytest.mark.spec("A62-17")
def test_idle_timeout_starts_at_the_end_of_the_last_rpc() -> None:
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
def test_request_to_connect_restarts_the_idle_timeout() -> None:
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
def test_pitfall_25_next_rpc_after_idle_is_not_failed_by_the_old_picker() -> None:
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
    world.streams[0].respond()
    assert observer.status == OK


@pytest.mark.spec("A62-18")
def test_request_to_connect_leaves_idle_with_a_new_resolution_and_policy() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    world.clock.advance(30 * MINUTE)
    world.expect_released(True)
    world.channel.request_connection()
    world.expect_state(State.CONNECTING)
    assert world.resolver.started == 2
    world.resolve()
    world.expect_released(False)
    assert len(world.policy.updates) == 2


@pytest.mark.spec("REG-02")
def test_running_config_is_kept_when_a_service_config_is_rejected() -> None:
    world = ChannelWorld()
    world.connect()
    assert len(world.policy.updates) == 1
    refusal = world.resolve(service_config={"loadBalancingConfig": [{"stub": {"bad": True}}]})
    assert "loadBalancingConfig[0].stub" in refusal.details
    assert len(world.policy.updates) == 1
    world.expect_state(State.READY)
    _, observer = world.call()
    world.streams[0].respond()
    assert observer.status == OK


@pytest.mark.spec("REG-02")
def test_channel_fails_until_it_has_a_valid_config() -> None:
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
    world.streams[0].respond()
    assert waiting.status == OK
