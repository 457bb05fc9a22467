"""Strategies: retry and hedging policies of a running call.

Specs: A6. The decisions are in `retry`; this module starts timers and requests attempts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from proxyless.channel.retry import (
    AttemptEnd,
    GiveUp,
    HedgeState,
    RetryAfter,
    RetryState,
    RetryThrottle,
    Send,
    SendAt,
    choose_hedge,
    choose_retry,
)
from proxyless.runtime import IDLE_TIMER, Clock, Random, Timer

if TYPE_CHECKING:
    from proxyless.base import Metadata, StatusCode
    from proxyless.channel.attempt import Strategy
    from proxyless.channel.service_config import HedgingPolicy, MethodConfig, RetryPolicy
    from proxyless.channel.transparent_retries import TransparentRetries
    from proxyless.wire import StreamEnd

_NO_CODES: Final[frozenset[StatusCode]] = frozenset()


class RetriedCall(Protocol):
    """The methods of a call that a strategy uses."""

    @property
    def is_waiting(self) -> bool: ...
    def request_attempt(self) -> None: ...
    def finish(self, end: StreamEnd) -> None: ...


def choose_strategy(
    call: RetriedCall,
    method_config: MethodConfig,
    throttle: RetryThrottle | None,
    *,
    clock: Clock,
    random: Random,
) -> Strategy | None:
    """The strategy for the method's policy, or for the channel's throttle alone."""
    if method_config.retry_policy is not None:
        return _Retrying(call, method_config.retry_policy, throttle, clock, random)
    if method_config.hedging_policy is not None:
        return _Hedging(call, method_config.hedging_policy, throttle, clock)
    return None if throttle is None else _Counting(throttle)


class _Counting:
    """Counts attempts in the channel's throttle. The strategy of a call without a policy."""

    is_hedging: ClassVar[bool] = False

    def __init__(
        self, throttle: RetryThrottle | None, codes: frozenset[StatusCode] = _NO_CODES
    ) -> None:
        self._throttle = throttle
        self._codes = codes
        # Transparent retries included.
        self._attempts_sent = 0

    @property
    def _is_throttled(self) -> bool:
        return self._throttle is not None and self._throttle.is_throttling

    def on_attempt_sent(self, retries: TransparentRetries) -> Metadata:
        self._attempts_sent += 1
        return retries.count_attempts(self._attempts_sent)

    def on_attempt_end(self, end: StreamEnd) -> None:
        if self._throttle is not None:
            self._throttle.on_attempt_end(AttemptEnd.of(end.status, end.trailers), self._codes)

    def on_failure(self, end: StreamEnd) -> bool:
        return False

    def close(self) -> None:
        return


class _Retrying(_Counting):
    """Retries: one attempt after the other, with backoff."""

    def __init__(
        self,
        call: RetriedCall,
        policy: RetryPolicy,
        throttle: RetryThrottle | None,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(throttle, policy.retryable_codes)
        self._call = call
        self._policy = policy
        self._clock = clock
        self._random = random
        self._state = RetryState()
        self._timer: Timer = IDLE_TIMER

    def on_failure(self, end: StreamEnd) -> bool:
        choice = choose_retry(
            self._policy,
            self._state,
            AttemptEnd.of(end.status, end.trailers),
            self._random,
            is_throttled=self._is_throttled,
        )
        match choice:
            case RetryAfter(delay_s, state):
                self._state = state
                self._timer = self._clock.call_later(delay_s, self._call.request_attempt)
                return True
            case GiveUp():
                return False

    def close(self) -> None:
        self._timer.cancel()


class _Hedging(_Counting):
    """Hedging: concurrent attempts."""

    is_hedging = True

    def __init__(
        self, call: RetriedCall, policy: HedgingPolicy, throttle: RetryThrottle | None, clock: Clock
    ) -> None:
        super().__init__(throttle, policy.non_fatal_codes)
        self._call = call
        self._policy = policy
        self._clock = clock
        # The call itself requests the first attempt.
        self._state = HedgeState().after_requested()
        self._timer: Timer = IDLE_TIMER
        # The end of the RPC if no other attempt succeeds.
        self._last_failure: StreamEnd | None = None

    def on_attempt_sent(self, retries: TransparentRetries) -> Metadata:
        now_s = self._clock.now_s()
        self._state = self._state.after_sent(self._policy, now_s)
        # With a timer, because the attempt has no stream yet.
        self._decide_at(now_s)
        return super().on_attempt_sent(retries)

    def on_failure(self, end: StreamEnd) -> bool:
        now_s = self._clock.now_s()
        attempt_end = AttemptEnd.of(end.status, end.trailers)
        self._state = self._state.after_end(self._policy, attempt_end, now_s)
        if isinstance(self._choose(), GiveUp):
            return False
        self._last_failure = end
        self._decide_at(now_s)
        return True

    def close(self) -> None:
        self._timer.cancel()

    def _choose(self) -> object:
        return choose_hedge(
            self._policy,
            self._state,
            self._clock.now_s(),
            is_waiting=self._call.is_waiting,
            is_throttled=self._is_throttled,
        )

    def _decide_at(self, when_s: float) -> None:
        self._timer.cancel()
        self._timer = self._clock.call_later(when_s - self._clock.now_s(), self._decide)

    def _decide(self) -> None:
        match self._choose():
            case Send():
                self._state = self._state.after_requested()
                self._call.request_attempt()
            case SendAt(at_s):
                self._decide_at(at_s)
            case GiveUp():
                # "The hedged request is cancelled, and if there are no other already-sent hedged
                # RPCs the failure is returned to the client application" - A6
                assert self._last_failure is not None, "the only attempt there was has failed"
                self._call.finish(self._last_failure)
            case _:
                pass
