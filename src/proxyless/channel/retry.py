"""Is an attempt followed by another one, and when?

Specs: A6 (transparent retries, retries, hedging, throttling, pushback).

Pure decisions, and the one thing that RPCs share: the tokens of the throttle. Who replays messages,
starts timers and cancels attempts is the call.

What a policy counts as one attempt may be several streams: those that the server never saw are
replaced by transparent retries, and only the end of the last one is the attempt's.
"""

import re
from dataclasses import replace
from enum import Enum
from math import inf
from typing import Final

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode
from proxyless.base.backoff import UniformSource
from proxyless.base.frozen import frozen
from proxyless.channel.service_config import (
    MILLITOKENS,
    HedgingPolicy,
    RetryPolicy,
    RetryThrottling,
    ServiceConfig,
)

# What an RPC may keep of its messages to send them again; one that sends more is committed.
KEPT_BYTES_MAX: Final = 256 * 1024

PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
PREVIOUS_ATTEMPTS_KEY: Final = "grpc-previous-rpc-attempts"

# "Jitter of plus or minus 0.2 is applied to the backoff delay" - A6
_JITTER: Final = 0.2

# A timer may be early by a rounding error.
_ROUNDING_S: Final = 1e-6

# "an ASCII encoded signed 32-bit integer with no unnecessary leading zeros" - A6
_PUSHBACK: Final = re.compile(r"0|-?[1-9][0-9]{0,9}").fullmatch
_INT32_MAX: Final = 2**31 - 1


# Of the kind that bothers nobody. A6 has no limit; this one ends whatever goes round in circles.
TRANSPARENT_RETRIES_MAX: Final = 100


def encode_previous_attempts(attempts: int) -> Metadata:
    """What tells the server how many attempts came before; nothing on the first one."""
    return ((PREVIOUS_ATTEMPTS_KEY, str(attempts)),) if attempts else EMPTY_METADATA


# ---------------------------------------------------------------------------------------------
# What the decisions know


@frozen
class Pushback:
    """What the server asks of the next attempt: this delay, or not to make it."""

    delay_s: float | None

    @property
    def is_refusal(self) -> bool:
        return self.delay_s is None


NO_MORE: Final = Pushback(None)


def parse_pushback(trailers: Metadata) -> Pushback | None:
    """The server's wish, or None if it has none."""
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
    """All that a decision may know about the attempt that has just ended."""

    status: Status
    pushback: Pushback | None = None

    @classmethod
    def of(cls, status: Status, trailers: Metadata) -> "AttemptEnd":
        return cls(status, parse_pushback(trailers))


# ---------------------------------------------------------------------------------------------
# Transparent retries, which need no policy


@frozen
class TransparentRetries:
    """How often streams of one RPC were replaced because the server never saw them."""

    count: int = 0
    # Whether one of them had reached the server, which costs something.
    had_reached: bool = False

    def count_attempts(self, started: int) -> Metadata:
        """For the last one of these attempts: how many the server may have seen before."""
        # Those that these replace it never saw.
        return encode_previous_attempts(started - 1 - self.count)

    def following(self, *, is_retry_free: bool) -> "TransparentRetries | None":
        """With one more, for a stream that has just ended unseen; None if that is too many."""
        if is_retry_free:
            # "the client library can transparently retry until a success occurs, or the RPC's
            # deadline passes" - A6
            if self.count >= TRANSPARENT_RETRIES_MAX:
                return None
            return TransparentRetries(self.count + 1, self.had_reached)
        # "If the RPC reaches the gRPC server library, but has never been seen by the server
        # application logic …, the client library will immediately retry it once" - A6
        return None if self.had_reached else TransparentRetries(self.count + 1, True)


NO_RETRIES: Final = TransparentRetries()


# ---------------------------------------------------------------------------------------------
# Throttling


class RetryThrottle:
    """The tokens of one server name. Driven by the ends of all attempts of all its RPCs."""

    __slots__ = ("_config", "_millitokens")

    def __init__(self, config: RetryThrottling, millitokens: int | None = None) -> None:
        self._config = config
        # At most the maximum, which is what it starts from.
        self._millitokens = config.max_millitokens if millitokens is None else millitokens

    @classmethod
    def following(
        cls, previous: "RetryThrottle | None", service_config: ServiceConfig
    ) -> "RetryThrottle | None":
        """The throttle for a new config: as full as the one before it, which may be the same."""
        config = service_config.retry_throttling
        if config is None:
            return None
        return cls(config) if previous is None else previous.scaled_to(config)

    def scaled_to(self, config: RetryThrottling) -> "RetryThrottle":
        if config == self._config:
            return self
        share = self._millitokens * config.max_millitokens // self._config.max_millitokens
        return RetryThrottle(config, share)

    @property
    def tokens(self) -> float:
        return self._millitokens / MILLITOKENS

    @property
    def is_throttling(self) -> bool:
        # "If token_count is less than or equal to the threshold", half of the maximum - A6
        return 2 * self._millitokens <= self._config.max_millitokens

    def on_attempt_end(self, end: AttemptEnd, codes: frozenset[StatusCode]) -> None:
        """Count one attempt, before choosing what follows it.

        The codes are those that the RPC's policy tries again after; none if it has no policy.
        """
        if end.status.is_ok:
            gained = self._millitokens + self._config.millitoken_ratio
            self._millitokens = min(gained, self._config.max_millitokens)
        elif end.status.code in codes or (end.pushback is not None and end.pushback.is_refusal):
            # "RPCs that fail with a status code that qualifies as a retryable or non-fatal status
            # code, or that receive a pushback response indicating not to retry" - A6
            self._millitokens = max(self._millitokens - MILLITOKENS, 0)


# ---------------------------------------------------------------------------------------------
# Retries


class Reason(Enum):
    """Why no further attempt is made."""

    OK = "attempt succeeded"
    FATAL = "status code is not one to try again after"
    REFUSED = "server asked for no more attempts"
    THROTTLED = "too many attempts fail"
    COMMITTED = "RPC is committed"
    EXHAUSTED = "no attempts left"
    WAITING = "an attempt still waits for its pick"


@frozen
class RetryState:
    """Where one RPC is between its attempts. Replaced after each."""

    # Attempts that have ended; transparent retries do not count.
    attempts: int = 0
    # Delays of the series that were used since its start, or since the server set one.
    backoffs: int = 0


@frozen
class RetryAfter:
    """Make another attempt after this delay; from then on the state is this."""

    delay_s: float
    state: RetryState


@frozen
class GiveUp:
    """No further attempt: the one that ended is the RPC's result."""

    reason: Reason


def choose_retry(
    policy: RetryPolicy,
    state: RetryState,
    end: AttemptEnd,
    random: UniformSource,
    *,
    is_throttled: bool = False,
    is_committed: bool = False,
) -> RetryAfter | GiveUp:
    """What follows an attempt that has just ended, its end counted in the throttle."""
    attempts = state.attempts + 1
    reason = _refuse(policy.retryable_codes, end)
    if reason is None and is_throttled:
        reason = Reason.THROTTLED
    if reason is None and is_committed:
        reason = Reason.COMMITTED
    if reason is None and attempts >= policy.attempts_max:
        reason = Reason.EXHAUSTED
    if reason is not None:
        return GiveUp(reason)
    if end.pushback is not None and end.pushback.delay_s is not None:
        # "it will retry after exactly that delay. For subsequent retries, the delay period will
        # be reset to the initialBackoff" - A6
        return RetryAfter(end.pushback.delay_s, RetryState(attempts))
    delay_s = _backoff_s(policy, state.backoffs) * random.uniform(1 - _JITTER, 1 + _JITTER)
    return RetryAfter(delay_s, RetryState(attempts, state.backoffs + 1))


def _refuse(codes: frozenset[StatusCode], end: AttemptEnd) -> Reason | None:
    """Why the end itself forbids another attempt; None if it does not."""
    if end.status.is_ok:
        return Reason.OK
    if end.status.code not in codes:
        return Reason.FATAL
    if end.pushback is not None and end.pushback.is_refusal:
        return Reason.REFUSED
    return None


def _backoff_s(policy: RetryPolicy, backoffs: int) -> float:
    delay_s = min(policy.initial_backoff_s, policy.max_backoff_s)
    for _ in range(backoffs):  # Not a power: that may overflow.
        delay_s = min(delay_s * policy.backoff_multiplier, policy.max_backoff_s)
    return delay_s


# ---------------------------------------------------------------------------------------------
# Hedging


@frozen
class HedgeState:
    """Where one hedged RPC is. Replaced after each attempt that is requested, sent or ends.

    An attempt counts from its request on: its pick may take long, or fail.
    """

    # Attempts requested, and of those the ones without an end.
    requested: int = 0
    unended: int = 0
    # When the next one is due.
    next_s: float = -inf
    # Why there will be no next one; None while there may be.
    stopped: Reason | None = None

    def after_requested(self) -> "HedgeState":
        return replace(self, requested=self.requested + 1, unended=self.unended + 1)

    def after_sent(self, policy: HedgingPolicy, now_s: float) -> "HedgeState":
        """Take in that an attempt has a stream, be it the first one or a transparent retry."""
        # Later still if a server asked for that while the attempt waited for its pick.
        return replace(self, next_s=max(self.next_s, now_s + policy.hedging_delay_s))

    def after_end(self, policy: HedgingPolicy, end: AttemptEnd, now_s: float) -> "HedgeState":
        """Take in the end of an attempt, which may have been the failure of its pick."""
        state = replace(self, unended=self.unended - 1)
        reason = _refuse(policy.non_fatal_codes, end)
        if reason is not None:
            return replace(state, stopped=reason)
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
    """Request nothing, for this reason, before an attempt that is under way is sent or ends."""

    reason: Reason


def choose_hedge(
    policy: HedgingPolicy,
    state: HedgeState,
    now_s: float,
    *,
    is_waiting: bool = False,
    is_throttled: bool = False,
    is_committed: bool = False,
) -> Send | SendAt | Await | GiveUp:
    """What to do now: after each attempt that was sent or ended, and when the next one is due.

    Waiting: the RPC has an attempt, or a transparent retry, whose pick is queued.
    """
    reason = _stop_hedging(policy, state, is_throttled=is_throttled, is_committed=is_committed)
    if reason is None and is_waiting:
        # The next one in line is that one, and a second would only wait beside it.
        reason = Reason.WAITING
    if reason is None:
        return Send() if now_s + _ROUNDING_S >= state.next_s else SendAt(state.next_s)
    # A success or a fatal code decides, whatever else is under way.
    is_decided = reason in (Reason.OK, Reason.FATAL)
    return Await(reason) if state.unended and not is_decided else GiveUp(reason)


def _stop_hedging(
    policy: HedgingPolicy, state: HedgeState, *, is_throttled: bool, is_committed: bool
) -> Reason | None:
    """Why no more attempts may be requested; None if one may."""
    if state.stopped is not None:
        return state.stopped
    if is_committed:
        return Reason.COMMITTED
    if state.requested >= policy.attempts_max:
        return Reason.EXHAUSTED
    # "The first outgoing RPC will always be sent" - A6
    if is_throttled and state.requested:
        return Reason.THROTTLED
    return None
