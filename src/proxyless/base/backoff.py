"""Exponential backoff with jitter.

Specs: gRPC "Connection Backoff Protocol".

The caller supplies the randomness and starts the timer. A delay counts from the start of an
attempt, so the caller calls `next_delay_s` when the attempt starts.
"""

from typing import Protocol

from proxyless.base.frozen import frozen


class UniformSource(Protocol):
    """The part of a random generator that a backoff uses."""

    def uniform(self, a: float, b: float, /) -> float: ...


@frozen
class BackoffPolicy:
    """Parameters of a backoff. The defaults are those of the gRPC specification."""

    initial_s: float = 1.0
    multiplier: float = 1.6
    max_s: float = 120.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (self.initial_s > 0 and self.max_s > 0):
            raise ValueError(
                f"backoff from {self.initial_s} s to {self.max_s} s is not valid: "
                "wanted delays above 0 s"
            )
        if not self.multiplier >= 1:
            raise ValueError(f"backoff multiplier {self.multiplier} is not valid: wanted 1 or more")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff jitter {self.jitter} is not valid: wanted 0 to 1")


DEFAULT_POLICY = BackoffPolicy()


class Backoff:
    """One series of delays: the owner calls `next_delay_s` at each attempt, `reset` on success."""

    __slots__ = ("_base_s", "_policy")

    def __init__(self, policy: BackoffPolicy = DEFAULT_POLICY) -> None:
        # Fixed at construction.
        self._policy = policy
        # The delay before jitter; grows with each attempt.
        self._base_s = 0.0
        self.reset()

    def next_delay_s(self, random: UniformSource) -> float:
        """The delay from the start of this attempt to the next one."""
        policy, base_s = self._policy, self._base_s
        self._base_s = min(base_s * policy.multiplier, policy.max_s)
        # The maximum bounds the delay before jitter, so that delays at the maximum are spread too.
        return base_s * random.uniform(1 - policy.jitter, 1 + policy.jitter)

    def reset(self) -> None:
        """Start again from the initial delay."""
        self._base_s = min(self._policy.initial_s, self._policy.max_s)
