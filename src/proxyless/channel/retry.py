"""Decisions about further attempts of an RPC (pure), and the throttle that RPCs share.

Specs: A6 (retries, hedging, throttling, pushback).

What a policy counts as one attempt may be several streams: those that the server never saw are
replaced by transparent retries (`transparent_retries`), and only the end of the last one is the
attempt's. Imported with the first config that has a policy or a throttle.
"""

import re
from dataclasses import replace
from math import inf
from typing import Final

from proxyless.base import Metadata, Status, StatusCode
from proxyless.base.backoff import UniformSource
from proxyless.base.frozen import frozen
from proxyless.channel.service_config import (
    MILLITOKENS,
    HedgingPolicy,
    RetryPolicy,
    RetryThrottling,
)
from proxyless.runtime.clock import ROUNDING_S

PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"

# "Jitter of plus or minus 0.2 is applied to the backoff delay" - A6
_JITTER: Final = 0.2

# "an ASCII encoded signed 32-bit integer with no unnecessary leading zeros" - A6
_PUSHBACK: Final = re.compile(r"0|-?[1-9][0-9]{0,9}").fullmatch
_INT32_MAX: Final = 2**31 - 1


@frozen
class Pushback:
    """The server's pushback: the delay of the next attempt; None forbids it."""

    delay_s: float | None


NO_MORE: Final = Pushback(None)


def parse_pushback(trailers: Metadata) -> Pushback | None:
    values = [value for key, value in trailers if key == PUSHBACK_KEY]
    if not values:
        return None
    match values:
        # "negative or unparseble … the server asking the client not to retry at all" - A6
        case [str(text)] if _PUSHBACK(text) and 0 <= int(text) <= _INT32_MAX:
            return Pushback(int(text) / 1000)
        case _:
            return NO_MORE


@frozen
class AttemptEnd:
    """End of an attempt: status and pushback."""

    status: Status
    pushback: Pushback | None = None

    @classmethod
    def of(cls, status: Status, trailers: Metadata) -> "AttemptEnd":
        return cls(status, parse_pushback(trailers))

    def has_code(self, codes: frozenset[StatusCode]) -> bool:
        return not self.status.is_ok and self.status.code in codes

    @property
    def is_refusal(self) -> bool:
        """Whether the server forbids further attempts."""
        return self.pushback is not None and self.pushback.delay_s is None


class RetryThrottle:
    """Tokens of one server name, counted by the ends of all attempts of all its RPCs."""

    __slots__ = ("_config", "_millitokens")

    def __init__(self, config: RetryThrottling, millitokens: int | None = None) -> None:
        self._config = config
        # It starts at the maximum.
        self._millitokens = config.max_millitokens if millitokens is None else millitokens

    @classmethod
    def following(
        cls, previous: "RetryThrottle | None", config: RetryThrottling
    ) -> "RetryThrottle":
        """The throttle for a new config, with the same share of tokens as the previous one."""
        return cls(config) if previous is None else previous.scaled_to(config)

    def scaled_to(self, config: RetryThrottling) -> "RetryThrottle":
        if config == self._config:
            return self
        share = self._millitokens * config.max_millitokens // self._config.max_millitokens
        return RetryThrottle(config, share)

    @property
    def is_throttling(self) -> bool:
        # "If token_count is less than or equal to the threshold", half of the maximum - A6
        return 2 * self._millitokens <= self._config.max_millitokens

    def on_attempt_end(self, end: AttemptEnd, codes: frozenset[StatusCode]) -> None:
        """Count one attempt. `codes`: retryable or non-fatal codes of the RPC's policy."""
        if end.status.is_ok:
            gained = self._millitokens + self._config.millitoken_ratio
            self._millitokens = min(gained, self._config.max_millitokens)
        elif end.status.code in codes or end.is_refusal:
            # "RPCs that fail with a status code that qualifies as a retryable or non-fatal status
            # code, or that receive a pushback response indicating not to retry" - A6
            self._millitokens = max(self._millitokens - MILLITOKENS, 0)


@frozen
class RetryState:
    """Retry state of one RPC. Replaced after each attempt."""

    # Attempts that have ended; transparent retries do not count.
    attempts: int = 0
    # Backoff delays used since the start, or since the last pushback.
    backoffs: int = 0


@frozen
class RetryAfter:
    """Make another attempt after this delay, with this state."""

    delay_s: float
    state: RetryState


@frozen
class GiveUp:
    """No further attempt: the one that ended is the RPC's result."""


def choose_retry(
    policy: RetryPolicy,
    state: RetryState,
    end: AttemptEnd,
    random: UniformSource,
    *,
    is_throttled: bool = False,
) -> RetryAfter | GiveUp:
    """Decide after an attempt whose end the throttle has counted."""
    attempts = state.attempts + 1
    is_retryable = end.has_code(policy.retryable_codes) and not end.is_refusal
    if not is_retryable or is_throttled or attempts >= policy.attempts_max:
        return GiveUp()
    if end.pushback is not None and end.pushback.delay_s is not None:
        # "it will retry after exactly that delay. For subsequent retries, the delay period will
        # be reset to the initialBackoff" - A6
        return RetryAfter(end.pushback.delay_s, RetryState(attempts))
    delay_s = _backoff_s(policy, state.backoffs) * random.uniform(1 - _JITTER, 1 + _JITTER)
    return RetryAfter(delay_s, RetryState(attempts, state.backoffs + 1))


def _backoff_s(policy: RetryPolicy, backoffs: int) -> float:
    delay_s = min(policy.initial_backoff_s, policy.max_backoff_s)
    for _ in range(backoffs):  # Not a power: that may overflow.
        delay_s = min(delay_s * policy.backoff_multiplier, policy.max_backoff_s)
    return delay_s


@frozen
class HedgeState:
    """State of one hedged RPC. Replaced when an attempt is requested, sent or ends."""

    # Attempts requested, before their pick, and how many of them have not ended.
    requested: int = 0
    unended: int = 0
    # When the next one is due.
    next_s: float = -inf
    # The server forbade further attempts; or an attempt ended with the result of the RPC.
    is_stopped: bool = False
    has_result: bool = False

    def after_requested(self) -> "HedgeState":
        return replace(self, requested=self.requested + 1, unended=self.unended + 1)

    def after_sent(self, policy: HedgingPolicy, now_s: float) -> "HedgeState":
        """The state after an attempt or a transparent retry got a stream."""
        # A pushback during its pick may have set a later time.
        return replace(self, next_s=max(self.next_s, now_s + policy.hedging_delay_s))

    def after_end(self, policy: HedgingPolicy, end: AttemptEnd, now_s: float) -> "HedgeState":
        """The state after an attempt ended or its pick failed."""
        state = replace(self, unended=self.unended - 1)
        if not end.has_code(policy.non_fatal_codes):
            return replace(state, has_result=True)
        if end.is_refusal:
            return replace(state, is_stopped=True)
        # "the next hedged request in line is sent immediately, shortcutting its hedging delay",
        # or "will be issued after the given delay has elapsed" - A6
        delay_s = end.pushback.delay_s if end.pushback is not None else None
        return replace(state, next_s=now_s + (delay_s or 0.0))


@frozen
class Send:
    """Request the next attempt now, and choose again when it has been sent or has ended."""


@frozen
class SendAt:
    """Request nothing before this time; then choose again."""

    at_s: float


@frozen
class Await:
    """Request nothing before an attempt that is under way is sent or ends."""


def choose_hedge(
    policy: HedgingPolicy,
    state: HedgeState,
    now_s: float,
    *,
    is_waiting: bool = False,
    is_throttled: bool = False,
) -> Send | SendAt | Await | GiveUp:
    """Decide after each attempt that was sent or ended, and when the next one is due.

    `is_waiting`: the pick of an attempt or of a transparent retry is queued.
    """
    # "The first outgoing RPC will always be sent" - A6
    is_throttled = is_throttled and state.requested > 0
    is_exhausted = state.requested >= policy.attempts_max
    # If an attempt waits for its pick, another one would wait for the same picker.
    if not (state.has_result or state.is_stopped or is_exhausted or is_throttled or is_waiting):
        return Send() if now_s + ROUNDING_S >= state.next_s else SendAt(state.next_s)
    # A success or a fatal code ends the RPC even while other attempts are under way.
    return Await() if state.unended and not state.has_result else GiveUp()
