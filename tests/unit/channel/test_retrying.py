"""Retry and hedging policies on a running call."""

from __future__ import annotations

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.service_config import HedgingPolicy, MethodConfig, RetryPolicy
from proxyless.lb import QUEUE_PICKER, Drop
from proxyless.wire import StreamEnd
from tests.spec.channel_world import (
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeSelector,
    RecordingPicker,
)

NOT_FOUND = StreamEnd(Status(StatusCode.NOT_FOUND, "no such thing"))


def retrying(attempts_max: int = 3) -> ChannelWorld:
    policy = RetryPolicy(
        attempts_max=attempts_max,
        initial_backoff_s=1.0,
        max_backoff_s=10.0,
        backoff_multiplier=2.0,
        retryable_codes=frozenset({StatusCode.UNAVAILABLE}),
    )
    world = ChannelWorld()
    world.connect(FakeSelector(CallConfig(MethodConfig(retry_policy=policy))))
    return world


def hedging(delay_s: float = 1.0) -> ChannelWorld:
    policy = HedgingPolicy(
        attempts_max=3,
        hedging_delay_s=delay_s,
        non_fatal_codes=frozenset({StatusCode.UNAVAILABLE}),
    )
    world = ChannelWorld()
    world.connect(FakeSelector(CallConfig(MethodConfig(hedging_policy=policy))))
    return world


def test_a_retry_sends_the_same_messages_again_after_its_backoff() -> None:
    world = retrying()
    call, observer = world.call(None)
    call.send_message(b"one")
    call.send_message(b"two")
    call.close_sending()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(0.79)
    assert len(world.streams) == 1
    world.clock.advance(0.42)
    again = world.streams[1]
    assert again.messages == [b"one", b"two"]
    assert again.is_half_closed
    assert b"grpc-previous-rpc-attempts\x011" in again.block
    again.answer()
    assert observer.status == OK
    assert observer.messages == [b"reply"]


def test_attempts_end_when_the_policy_says_so() -> None:
    world = retrying(attempts_max=2)
    _, observer = world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    world.streams[1].end(UNAVAILABLE)
    world.clock.advance(100.0)
    assert len(world.streams) == 2
    assert observer.status == UNAVAILABLE.status


def test_pushback_sets_the_delay() -> None:
    world = retrying()
    world.call()
    trailers = (("grpc-retry-pushback-ms", "5000"),)
    world.streams[0].end(StreamEnd(UNAVAILABLE.status, trailers))
    world.clock.advance(4.9)
    assert len(world.streams) == 1
    world.clock.advance(0.2)
    assert len(world.streams) == 2


def test_an_rpc_cancelled_between_attempts_makes_no_other() -> None:
    world = retrying()
    call, observer = world.call()
    world.streams[0].end(UNAVAILABLE)
    call.cancel()
    assert observer.status.code is StatusCode.CANCELLED
    world.clock.advance(100.0)
    assert len(world.streams) == 1


def test_transparent_retries_do_not_count_as_attempts() -> None:
    world = retrying(attempts_max=2)
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    assert len(world.streams) == 2
    assert b"previous-rpc-attempts" not in world.streams[1].block
    world.streams[1].end(UNAVAILABLE)
    world.clock.advance(2.0)
    assert b"grpc-previous-rpc-attempts\x011" in world.streams[2].block
    world.streams[2].answer()
    assert observer.status == OK


def test_a_hedge_goes_out_after_its_delay_and_the_first_answer_wins() -> None:
    world = hedging()
    _, observer = world.call()
    assert len(world.streams) == 1
    world.clock.advance(1.0)
    assert len(world.streams) == 2
    assert world.streams[1].messages == [b"request"]
    world.streams[1].head()
    assert world.streams[0].cancelled_with is not None
    world.streams[1].listener.on_message(b"reply")
    world.streams[1].end(StreamEnd(OK))
    assert observer.status == OK
    world.clock.advance(100.0)
    assert len(world.streams) == 2


def test_a_hedge_that_waits_for_a_connection_is_not_what_the_rpc_waited_for() -> None:
    world = hedging()
    _, observer = world.call(timeout_s=5.0)
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.clock.advance(5.0)
    assert observer.status == Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def test_a_failed_hedge_brings_the_next_one_forward() -> None:
    world = hedging(delay_s=10.0)
    _, observer = world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(0.0)
    assert len(world.streams) == 2
    assert observer.is_running


def test_a_fatal_code_ends_a_hedged_rpc_and_all_its_attempts() -> None:
    world = hedging()
    _, observer = world.call()
    world.clock.advance(1.0)
    world.streams[0].end(NOT_FOUND)
    assert observer.status == NOT_FOUND.status
    assert world.streams[1].is_ended


def test_trailers_alone_end_a_hedged_rpc_and_all_its_attempts() -> None:
    world = hedging()
    _, observer = world.call()
    world.clock.advance(1.0)
    world.streams[0].end(StreamEnd(OK))
    assert observer.status == OK
    assert world.streams[1].is_ended


def test_a_drop_ends_a_hedged_rpc_and_all_its_attempts() -> None:
    world = hedging()
    _, observer = world.call()
    dropped = Status(StatusCode.UNAVAILABLE, "dropped")
    world.report(State.READY, RecordingPicker(Drop(dropped)))
    world.clock.advance(1.0)
    assert observer.status == dropped
    assert world.streams[0].is_ended


def test_a_hedged_rpc_fails_only_with_its_last_attempt() -> None:
    world = hedging()
    _, observer = world.call()
    world.clock.advance(2.0)
    assert len(world.streams) == 3
    for stream in world.streams[:2]:
        stream.end(UNAVAILABLE)
        assert observer.is_running
    world.streams[2].end(UNAVAILABLE)
    assert observer.status == UNAVAILABLE.status


@pytest.mark.parametrize("successes", [0, 20])
def test_throttling_stops_retries_until_enough_rpcs_succeed(successes: int) -> None:
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "retryThrottling": {"maxTokens": 4, "tokenRatio": 0.5},
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 2,
                    "initialBackoff": "1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
    world = ChannelWorld(service_config=config)
    world.connect()
    for _ in range(4):
        world.call()
        world.streams[-1].end(UNAVAILABLE)
        world.clock.advance(5.0)
        if not world.streams[-1].is_ended:
            world.streams[-1].end(UNAVAILABLE)
    for _ in range(successes):
        world.call()
        world.streams[-1].answer()
    before = len(world.streams)
    world.call()
    world.streams[-1].end(UNAVAILABLE)
    world.clock.advance(5.0)
    assert len(world.streams) - before == (2 if successes else 1)
