"""Retry and hedging policies on a running call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.call_attempts import Station
from proxyless.channel.service_config import HedgingPolicy, MethodConfig, RetryPolicy
from proxyless.lb import QUEUE_PICKER, Drop, Fail
from proxyless.wire import StreamEnd
from tests.worlds.channels import (
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeSelector,
    RecordingPicker,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_FOUND = StreamEnd(Status(StatusCode.NOT_FOUND, "no such thing"))
FAILING = Status(StatusCode.UNAVAILABLE, "nothing to pick")


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


def hedging(delay_s: float = 1.0, attempts_max: int = 3) -> ChannelWorld:
    policy = HedgingPolicy(
        attempts_max=attempts_max,
        hedging_delay_s=delay_s,
        non_fatal_codes=frozenset({StatusCode.UNAVAILABLE}),
    )
    world = ChannelWorld()
    world.connect(FakeSelector(CallConfig(MethodConfig(hedging_policy=policy))))
    return world


def throttled(policy: Mapping[str, object], tokens: int = 10) -> ChannelWorld:
    """A world with policies and a throttle from the service config."""
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "retryThrottling": {"maxTokens": tokens, "tokenRatio": 0.5},
        "methodConfig": [{"name": [{}], **policy}],
    }
    world = ChannelWorld(service_config=config)
    world.connect()
    return world


RETRY_POLICY = {
    "retryPolicy": {
        "maxAttempts": 2,
        "initialBackoff": "1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
}
HEDGING_POLICY = {
    "hedgingPolicy": {
        "maxAttempts": 3,
        "hedgingDelay": "1s",
        "nonFatalStatusCodes": ["UNAVAILABLE"],
    }
}


def tokens_left(world: ChannelWorld) -> float:
    throttle = world.channel.config.throttle
    assert throttle is not None
    return throttle._millitokens / 1000


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
    again.respond()
    assert observer.status == OK
    assert observer.messages == [b"reply"]


def test_rpc_fails_after_the_maximum_of_attempts() -> None:
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


def test_rpc_cancelled_between_attempts_makes_no_further_attempt() -> None:
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
    world.streams[2].respond()
    assert observer.status == OK


def test_hedge_is_sent_after_its_delay_and_the_first_response_wins() -> None:
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


def test_deadline_does_not_name_a_hedge_that_waits_for_a_connection() -> None:
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


def test_trailers_only_response_ends_a_hedged_rpc_and_all_its_attempts() -> None:
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


def test_hedge_has_the_remaining_timeout() -> None:
    world = hedging()
    world.call(timeout_s=50.0)
    world.clock.advance(1.0)
    assert b"49000000u" in world.streams[1].block


def test_a_hedged_rpc_fails_after_as_many_picks_as_it_has_attempts() -> None:
    world = hedging()
    picker = RecordingPicker(Fail(FAILING))
    world.report(State.TRANSIENT_FAILURE, picker)
    _, observer = world.call()
    world.clock.advance(0.0)
    assert observer.status == FAILING
    assert len(picker.picks) == 3


def test_a_pick_that_fails_leaves_the_attempts_in_flight() -> None:
    world = hedging(attempts_max=2)
    _, observer = world.call()
    world.report(State.TRANSIENT_FAILURE, RecordingPicker(Fail(FAILING)))
    world.clock.advance(1.0)
    assert observer.is_running
    world.streams[0].end(UNAVAILABLE)
    assert observer.status == UNAVAILABLE.status


def test_a_transparent_retry_is_not_another_attempt_of_a_hedged_rpc() -> None:
    world = hedging(attempts_max=2)
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].end(UNAVAILABLE)
    world.clock.advance(0.0)
    assert observer.is_running
    world.streams[2].end(UNAVAILABLE)
    assert observer.status == UNAVAILABLE.status
    assert len(world.streams) == 3


@pytest.mark.parametrize("end", [UNAVAILABLE, UNPROCESSED])
def test_at_most_one_hedge_waits_for_its_pick(end: StreamEnd) -> None:
    world = hedging(attempts_max=2)
    _, observer = world.call()
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.clock.advance(1.0)
    world.streams[0].end(end)
    world.clock.advance(5.0)
    world.ready()
    world.clock.advance(5.0)
    assert len(world.streams) == (3 if end.is_unprocessed else 2)
    for stream in world.streams[1:]:
        stream.end(UNAVAILABLE)
    assert observer.status == UNAVAILABLE.status


@pytest.mark.parametrize("what", ["fails", "answer of the other", "too much to keep"])
def test_call_is_writable_when_the_attempt_that_blocked_it_ends(what: str) -> None:
    world = hedging(delay_s=1.0)
    call, observer = world.call(None)
    world.clock.advance(1.0)
    blocked, free = world.streams
    blocked.is_writable = False
    call.send_message(b"message")
    was_writable, writable_calls = call.is_writable, observer.writable
    match what:
        case "fails":
            blocked.end(UNAVAILABLE)
        case "answer of the other":
            free.head()
        case _:
            call.send_message(bytes(world.channel.options.kept_bytes_max))
    assert (was_writable, call.is_writable) == (False, True)
    assert observer.writable > writable_calls
    assert not free.is_ended


def test_rpc_is_not_retried_after_its_backoff_when_it_keeps_too_many_bytes() -> None:
    world = retrying()
    call, observer = world.call(None)
    world.streams[0].end(UNAVAILABLE)
    call.send_message(bytes(world.channel.options.kept_bytes_max + 1))
    world.clock.advance(2.0)
    assert call.station is Station.COMMITTED
    world.streams[1].end(UNAVAILABLE)
    assert observer.status == UNAVAILABLE.status


# Throttling


def test_a_transparent_retry_takes_no_token() -> None:
    world = throttled(RETRY_POLICY)
    _, observer = world.call()
    for _ in range(8):
        world.streams[-1].end(replace(UNPROCESSED, is_retry_free=True))
    world.streams[-1].end(UNPROCESSED)
    assert tokens_left(world) == 10.0
    # The server library saw two of them, so this failure counts for the policy.
    world.streams[-1].end(UNPROCESSED)
    assert tokens_left(world) == 9.0
    world.clock.advance(2.0)
    world.streams[-1].respond()
    assert observer.status == OK
    assert tokens_left(world) == 9.5


@pytest.mark.parametrize("policy", [RETRY_POLICY, HEDGING_POLICY])
def test_a_pick_that_fails_takes_a_token(policy: Mapping[str, object]) -> None:
    world = throttled(policy)
    world.report(State.TRANSIENT_FAILURE, RecordingPicker(Fail(FAILING)))
    _, observer = world.call()
    world.clock.advance(5.0)
    assert observer.status == FAILING
    assert tokens_left(world) == (8.0 if policy is RETRY_POLICY else 7.0)


def test_last_failure_is_the_result_when_the_next_hedge_is_throttled() -> None:
    world = throttled(HEDGING_POLICY, tokens=4)
    _, observer = world.call()
    later = StreamEnd(UNAVAILABLE.status, (("grpc-retry-pushback-ms", "5000"),))
    world.streams[0].end(later)
    _, other = world.call()
    world.streams[1].end(later)
    assert observer.is_running
    assert other.status == UNAVAILABLE.status
    world.clock.advance(5.0)
    assert observer.ends == [later]
    assert len(world.streams) == 2


@pytest.mark.parametrize("successes", [0, 20])
def test_throttling_stops_retries_until_enough_rpcs_succeed(successes: int) -> None:
    world = throttled(RETRY_POLICY, tokens=4)
    for _ in range(4):
        world.call()
        world.streams[-1].end(UNAVAILABLE)
        world.clock.advance(5.0)
        if not world.streams[-1].is_ended:
            world.streams[-1].end(UNAVAILABLE)
    for _ in range(successes):
        world.call()
        world.streams[-1].respond()
    before = len(world.streams)
    world.call()
    world.streams[-1].end(UNAVAILABLE)
    world.clock.advance(5.0)
    assert len(world.streams) - before == (2 if successes else 1)
