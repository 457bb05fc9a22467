"""Unit tests of proxyless.channel.retry."""

import itertools
from dataclasses import replace
from math import inf

import pytest

from proxyless.base import EMPTY_METADATA, OK, Metadata, Status, StatusCode
from proxyless.channel.options import KEPT_BYTES_MAX
from proxyless.channel.retry import (
    NO_MORE,
    AttemptEnd,
    Await,
    GiveUp,
    HedgeState,
    Pushback,
    RetryAfter,
    RetryState,
    RetryThrottle,
    Send,
    SendAt,
    choose_hedge,
    choose_retry,
    parse_pushback,
)
from proxyless.channel.service_config import (
    HedgingPolicy,
    RetryPolicy,
    RetryThrottling,
)
from proxyless.channel.transparent_retries import (
    NO_RETRIES,
    TRANSPARENT_RETRIES_MAX,
    TransparentRetries,
)
from proxyless.runtime import seeded_random

RETRYABLE = frozenset({StatusCode.UNAVAILABLE, StatusCode.ABORTED})
POLICY = RetryPolicy(
    attempts_max=4,
    initial_backoff_s=0.1,
    max_backoff_s=0.3,
    backoff_multiplier=2,
    retryable_codes=RETRYABLE,
)
HEDGING = HedgingPolicy(attempts_max=3, hedging_delay_s=0.5, non_fatal_codes=RETRYABLE)

SUCCESS = AttemptEnd(OK)
FAILURE = AttemptEnd(Status(StatusCode.UNAVAILABLE, "gone"))
FATAL = AttemptEnd(Status(StatusCode.INVALID_ARGUMENT, "no"))
LATER = replace(FAILURE, pushback=Pushback(0.75))
NEVER = replace(FAILURE, pushback=NO_MORE)


class Fraction:
    """A random generator that always returns the same fraction of the range."""

    def __init__(self, fraction: float = 0.5) -> None:
        self.fraction = fraction

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self.fraction


# Metadata


@pytest.mark.parametrize(
    ("values", "pushback"),
    [
        ([], None),
        (["0"], Pushback(0)),
        (["1"], Pushback(0.001)),
        (["1500"], Pushback(1.5)),
        (["2147483647"], Pushback(2147483.647)),
        (["2147483648"], NO_MORE),
        (["99999999999"], NO_MORE),
        (["-1"], NO_MORE),
        (["-2147483648"], NO_MORE),
        (["-0"], NO_MORE),
        (["01"], NO_MORE),
        (["+1"], NO_MORE),
        (["1.5"], NO_MORE),
        ([" 1"], NO_MORE),
        (["1\n"], NO_MORE),
        ([""], NO_MORE),
        (["soon"], NO_MORE),
        (["٣"], NO_MORE),
        (["1", "2"], NO_MORE),
        (["1", "1"], NO_MORE),
    ],
)
def test_pushback_is_a_number_of_milliseconds_or_a_refusal(
    values: list[str], pushback: Pushback | None
) -> None:
    trailers: Metadata = (
        ("a", "1"),
        *(("grpc-retry-pushback-ms", value) for value in values),
        ("grpc-retry-pushback", "3"),
    )
    assert parse_pushback(trailers) == pushback
    assert AttemptEnd.of(OK, trailers) == AttemptEnd(OK, pushback)


def test_only_a_pushback_without_a_delay_is_a_refusal() -> None:
    assert NEVER.is_refusal
    assert not LATER.is_refusal
    assert not FAILURE.is_refusal


@pytest.mark.parametrize(
    ("attempts", "metadata"),
    [
        (0, EMPTY_METADATA),
        (1, (("grpc-previous-rpc-attempts", "1"),)),
        (4, (("grpc-previous-rpc-attempts", "4"),)),
    ],
)
def test_previous_attempts_are_sent_from_the_second_attempt_on(
    attempts: int, metadata: Metadata
) -> None:
    assert NO_RETRIES.count_attempts(attempts + 1) == metadata


def test_streams_that_the_server_never_saw_do_not_count_as_previous_attempts() -> None:
    replaced = NO_RETRIES.following(is_retry_free=True)
    assert replaced is not None
    assert NO_RETRIES.count_attempts(1) == EMPTY_METADATA
    assert replaced.count_attempts(2) == EMPTY_METADATA
    assert replaced.count_attempts(3) == (("grpc-previous-rpc-attempts", "1"),)


def test_rpc_keeps_at_most_256_kib() -> None:
    assert KEPT_BYTES_MAX == 262_144


# Transparent retries


def test_stream_that_reached_a_server_is_retried_transparently_once() -> None:
    once = NO_RETRIES.following(is_retry_free=False)
    assert once == TransparentRetries(1, had_reached=True)
    assert once.following(is_retry_free=False) is None
    free = once.following(is_retry_free=True)
    assert free == TransparentRetries(2, had_reached=True)
    assert free.following(is_retry_free=False) is None


def test_stream_that_was_never_sent_is_retried_up_to_the_maximum() -> None:
    retries: TransparentRetries | None = NO_RETRIES
    for count in range(TRANSPARENT_RETRIES_MAX):
        assert retries == TransparentRetries(count)
        retries = retries.following(is_retry_free=True)
    assert retries is not None
    assert retries.following(is_retry_free=True) is None
    assert retries.following(is_retry_free=False) is not None


# Throttling


def throttle_of(tokens: int = 10, ratio: float = 0.1) -> RetryThrottle:
    return RetryThrottle(RetryThrottling(tokens * 1000, round(ratio * 1000)))


def tokens_of(throttle: RetryThrottle) -> float:
    return throttle._millitokens / 1000


def test_throttle_acts_at_half_of_its_tokens_or_below() -> None:
    throttle = throttle_of(10)
    seen = []
    for _ in range(6):
        seen.append((tokens_of(throttle), throttle.is_throttling))
        throttle.on_attempt_end(FAILURE, RETRYABLE)
    assert seen == [(10, False), (9, False), (8, False), (7, False), (6, False), (5, True)]


def test_throttle_ends_above_half_of_its_tokens() -> None:
    throttle = throttle_of(10, ratio=0.001)
    for _ in range(5):
        throttle.on_attempt_end(FAILURE, RETRYABLE)
    assert throttle.is_throttling
    throttle.on_attempt_end(SUCCESS, RETRYABLE)
    assert (tokens_of(throttle), throttle.is_throttling) == (5.001, False)


def test_tokens_stay_between_zero_and_the_maximum() -> None:
    throttle = throttle_of(2, ratio=1.5)
    throttle.on_attempt_end(SUCCESS, RETRYABLE)
    assert tokens_of(throttle) == 2
    for _ in range(5):
        throttle.on_attempt_end(FAILURE, RETRYABLE)
    assert tokens_of(throttle) == 0
    throttle.on_attempt_end(SUCCESS, RETRYABLE)
    assert tokens_of(throttle) == 1.5


@pytest.mark.parametrize(
    ("end", "codes", "tokens"),
    [
        (SUCCESS, RETRYABLE, 5.5),
        (replace(SUCCESS, pushback=NO_MORE), RETRYABLE, 5.5),
        (FAILURE, RETRYABLE, 4.0),
        (LATER, RETRYABLE, 4.0),
        (NEVER, RETRYABLE, 4.0),
        (FATAL, RETRYABLE, 5.0),
        (replace(FATAL, pushback=NO_MORE), RETRYABLE, 4.0),
        (replace(FATAL, pushback=Pushback(1)), RETRYABLE, 5.0),
        # An RPC without a policy.
        (SUCCESS, frozenset(), 5.5),
        (FAILURE, frozenset(), 5.0),
        (NEVER, frozenset(), 4.0),
    ],
)
def test_token_is_taken_for_retryable_codes_and_refusals(
    end: AttemptEnd, codes: frozenset[StatusCode], tokens: float
) -> None:
    throttle = RetryThrottle(RetryThrottling(10_000, 500), 5000)
    throttle.on_attempt_end(end, codes)
    assert tokens_of(throttle) == tokens


def test_throttle_is_kept_when_the_new_config_is_equal() -> None:
    first = RetryThrottle.following(None, RetryThrottling(10_000, 100))
    assert tokens_of(first) == 10
    assert RetryThrottle.following(first, RetryThrottling(10_000, 100)) is first


@pytest.mark.parametrize(("tokens", "left"), [(20, 14.0), (10, 7.0), (1, 0.7)])
def test_new_throttle_has_the_same_share_of_tokens(tokens: int, left: float) -> None:
    before = RetryThrottle(RetryThrottling(10_000, 100), 7000)
    after = RetryThrottle.following(before, RetryThrottling(tokens * 1000, 200))
    assert after is not before
    assert (tokens_of(after), tokens_of(before)) == (left, 7.0)


# Retries


def test_delays_grow_from_the_initial_to_the_maximum() -> None:
    state, delays_s = RetryState(), []
    for _ in range(3):
        choice = choose_retry(POLICY, state, FAILURE, Fraction())
        assert isinstance(choice, RetryAfter)
        delays_s.append(choice.delay_s)
        state = choice.state
    assert delays_s == pytest.approx([0.1, 0.2, 0.3])
    assert choose_retry(POLICY, state, FAILURE, Fraction()) == GiveUp()


@pytest.mark.parametrize(("fraction", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_each_delay_is_jittered_by_a_fifth(fraction: float, factor: float) -> None:
    for backoffs, base_s in enumerate((0.1, 0.2, 0.3, 0.3)):
        policy = replace(POLICY, attempts_max=9)
        choice = choose_retry(policy, RetryState(0, backoffs), FAILURE, Fraction(fraction))
        assert isinstance(choice, RetryAfter)
        assert choice.delay_s == pytest.approx(base_s * factor)


def test_real_draws_fill_the_jitter_range() -> None:
    random = seeded_random(1)
    draws_s = [
        choice.delay_s
        for _ in range(1000)
        if isinstance(choice := choose_retry(POLICY, RetryState(), FAILURE, random), RetryAfter)
    ]
    assert len(draws_s) == 1000
    assert 0.08 <= min(draws_s) < 0.081
    assert 0.119 < max(draws_s) <= 0.12


@pytest.mark.parametrize(
    ("changed", "delays_s"),
    [
        ({"initial_backoff_s": 1.0}, [0.3, 0.3, 0.3]),
        ({"backoff_multiplier": 0.5}, [0.1, 0.05, 0.025]),
        ({"backoff_multiplier": 1e308}, [0.1, 0.3, 0.3]),
    ],
)
def test_delays_of_unusual_policies(changed: dict[str, float], delays_s: list[float]) -> None:
    policy = replace(POLICY, **changed)  # type: ignore[arg-type]
    for backoffs, delay_s in enumerate(delays_s):
        choice = choose_retry(policy, RetryState(0, backoffs), FAILURE, Fraction())
        assert isinstance(choice, RetryAfter)
        assert choice.delay_s == pytest.approx(delay_s)


def test_pushback_delay_is_exact_and_resets_the_backoff() -> None:
    first = choose_retry(POLICY, RetryState(1, 1), LATER, Fraction(0.9))
    assert first == RetryAfter(0.75, RetryState(2, 0))
    second = choose_retry(POLICY, first.state, FAILURE, Fraction())
    assert second == RetryAfter(0.1, RetryState(3, 1))


def test_pushback_of_zero_retries_at_once() -> None:
    end = replace(FAILURE, pushback=Pushback(0.0))
    assert choose_retry(POLICY, RetryState(), end, Fraction()) == RetryAfter(0.0, RetryState(1, 0))


CODES = [*StatusCode]
PUSHBACKS = [None, Pushback(0.0), Pushback(2.0), NO_MORE]


@pytest.mark.parametrize("attempts_max", [2, 4])
def test_an_attempt_is_retried_only_if_nothing_forbids_it(attempts_max: int) -> None:
    policy = replace(POLICY, attempts_max=attempts_max)
    cases = itertools.product(CODES, PUSHBACKS, range(5), (False, True))
    for code, pushback, attempts, is_throttled in cases:
        choice = choose_retry(
            policy,
            RetryState(attempts),
            AttemptEnd(Status(code), pushback),
            Fraction(),
            is_throttled=is_throttled,
        )
        is_allowed = (
            code in RETRYABLE
            and pushback is not NO_MORE
            and not is_throttled
            and attempts + 1 < attempts_max
        )
        assert isinstance(choice, RetryAfter) is is_allowed
        if isinstance(choice, RetryAfter):
            assert choice.state.attempts == attempts + 1


# Hedging


def sent(*times_s: float, policy: HedgingPolicy = HEDGING) -> HedgeState:
    """An RPC whose attempts were sent at these times and are all in flight."""
    state = HedgeState()
    for now_s in times_s:
        state = state.after_requested().after_sent(policy, now_s)
    return state


def test_attempts_are_sent_at_intervals_up_to_the_maximum() -> None:
    state, now_s, sent_s = HedgeState(), 10.0, []
    while not isinstance(choice := choose_hedge(HEDGING, state, now_s), Await):
        if isinstance(choice, SendAt):
            now_s = choice.at_s
        else:
            assert choice == Send()
            sent_s.append(now_s)
            state = state.after_requested().after_sent(HEDGING, now_s)
    assert sent_s == [10.0, 10.5, 11.0]
    assert choice == Await()
    assert state.unended == 3


def test_without_a_delay_all_attempts_are_sent_at_once() -> None:
    policy = HedgingPolicy(attempts_max=4)
    state = HedgeState()
    for _ in range(4):
        assert choose_hedge(policy, state, 10.0) == Send()
        state = state.after_requested().after_sent(policy, 10.0)
    assert choose_hedge(policy, state, 10.0) == Await()


def test_a_timer_that_is_early_by_a_rounding_error_sends() -> None:
    assert choose_hedge(HEDGING, sent(10.0), 10.5 - 1e-9) == Send()
    assert choose_hedge(HEDGING, sent(10.0), 10.4) == SendAt(10.5)


@pytest.mark.parametrize("end", [SUCCESS, FATAL, replace(FATAL, pushback=Pushback(1))])
def test_success_or_fatal_code_is_the_result_while_others_are_in_flight(end: AttemptEnd) -> None:
    state = sent(10.0, 10.5).after_end(HEDGING, end, 10.6)
    assert state.unended == 1
    assert choose_hedge(HEDGING, state, 10.6) == GiveUp()


def test_a_non_fatal_code_brings_the_next_attempt_forward() -> None:
    state = sent(10.0).after_end(HEDGING, FAILURE, 10.1)
    assert choose_hedge(HEDGING, state, 10.1) == Send()
    state = state.after_requested().after_sent(HEDGING, 10.1)
    assert choose_hedge(HEDGING, state, 10.1) == SendAt(10.6)


def test_pushback_delays_the_next_attempt_and_all_after_it() -> None:
    state = sent(10.0).after_end(HEDGING, LATER, 10.25)
    assert choose_hedge(HEDGING, state, 10.25) == SendAt(11.0)
    state = state.after_requested().after_sent(HEDGING, 11.0)
    assert choose_hedge(HEDGING, state, 11.0) == SendAt(11.5)


def test_no_attempt_is_requested_while_one_waits_for_its_pick() -> None:
    state = sent(10.0).after_requested()
    assert choose_hedge(HEDGING, state, 10.5, is_waiting=True) == Await()
    state = state.after_end(HEDGING, FAILURE, 10.6)
    assert choose_hedge(HEDGING, state, 10.6, is_waiting=True) == Await()
    state = state.after_sent(HEDGING, 10.7)
    assert choose_hedge(HEDGING, state, 10.7) == SendAt(11.2)


def test_a_pick_that_fails_is_the_end_of_an_attempt() -> None:
    state = HedgeState()
    for _ in range(3):
        assert choose_hedge(HEDGING, state, 10.0) == Send()
        state = state.after_requested().after_end(HEDGING, FAILURE, 10.0)
    assert choose_hedge(HEDGING, state, 10.0) == GiveUp()


def test_pushback_applies_while_an_attempt_waits_for_its_pick() -> None:
    state = sent(10.0).after_requested().after_end(HEDGING, LATER, 10.6)
    state = state.after_sent(HEDGING, 10.7)
    assert choose_hedge(HEDGING, state, 10.7) == SendAt(10.6 + 0.75)


def test_refusal_stops_hedging_and_keeps_attempts_in_flight() -> None:
    state = sent(10.0, 10.5).after_end(HEDGING, NEVER, 10.6)
    assert choose_hedge(HEDGING, state, 100.0) == Await()
    state = state.after_end(HEDGING, FAILURE, 10.7)
    assert choose_hedge(HEDGING, state, 100.0) == GiveUp()


def test_a_success_after_a_refusal_is_the_result() -> None:
    state = sent(10.0, 10.5).after_end(HEDGING, NEVER, 10.6).after_end(HEDGING, SUCCESS, 10.7)
    assert choose_hedge(HEDGING, state, 10.7) == GiveUp()


def test_when_all_attempts_failed_the_last_one_is_the_result() -> None:
    state = sent(10.0, 10.5, 11.0)
    for left in (2, 1):
        state = state.after_end(HEDGING, FAILURE, 11.1)
        assert state.unended == left
        assert choose_hedge(HEDGING, state, 11.1) == Await()
    state = state.after_end(HEDGING, FAILURE, 11.1)
    assert choose_hedge(HEDGING, state, 11.1) == GiveUp()


def test_the_first_attempt_is_sent_even_if_too_many_fail() -> None:
    assert choose_hedge(HEDGING, HedgeState(), 10.0, is_throttled=True) == Send()
    choice = choose_hedge(HEDGING, sent(10.0), 10.5, is_throttled=True)
    assert choice == Await()
    state = sent(10.0).after_end(HEDGING, FAILURE, 10.1)
    choice = choose_hedge(HEDGING, state, 10.1, is_throttled=True)
    assert choice == GiveUp()


def test_every_hedge_has_an_end() -> None:
    """Any ends of attempts and failures of picks lead to one result."""
    ends = (SUCCESS, FATAL, FAILURE, LATER, NEVER)
    for answers, is_throttled, is_picked in itertools.product(
        itertools.product(ends, repeat=3), (False, True), (False, True)
    ):
        state, now_s, left = HedgeState(), 0.0, list(answers)
        for _ in range(20):
            match choose_hedge(HEDGING, state, now_s, is_throttled=is_throttled):
                case Send() if is_picked or not state.unended:
                    assert state.requested < 3
                    state = state.after_requested()
                    if is_picked:
                        state = state.after_sent(HEDGING, now_s)
                case SendAt(at_s) if not state.unended:
                    assert now_s < at_s < inf
                    now_s = at_s
                case Send() | SendAt() | Await():
                    assert state.unended
                    state = state.after_end(HEDGING, left.pop(), now_s)
                case GiveUp():
                    break
        else:
            pytest.fail(f"no result after {answers}")
