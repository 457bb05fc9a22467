"""Connectivity: the states of a subchannel (pure).

Specs: gRPC "Connection Backoff Protocol" and "Connectivity Semantics and API"; SUB-01 to SUB-09.

An event goes in, the state changes, and effects come out, which `subchannel` enacts. It uses no
event loop, so a test can combine every state with every event.

    IDLE → (requested) CONNECTING → (connected) READY → (lost) IDLE
                       CONNECTING → (failed) TRANSIENT_FAILURE → (backoff over) IDLE
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Backoff, State, Status
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.runtime import Random


@frozen
class Requested:
    """A connection was requested."""

    now_s: float


@frozen
class Connected:
    """The attempt succeeded: the peer's SETTINGS are here."""


@frozen
class Failed:
    """The attempt failed or timed out."""

    status: Status
    now_s: float


@frozen
class Lost:
    """The connection takes no more calls: closed, broken, or the peer is going away."""

    status: Status


@frozen
class BackoffOver:
    """The backoff after a failure is over."""


@frozen
class BackoffReset:
    """The backoff was reset."""


@frozen
class Released:
    """The last handle was released."""


Event = Requested | Connected | Failed | Lost | BackoffOver | BackoffReset | Released


@frozen
class Connect:
    """Start an attempt with this timeout."""

    timeout_s: float


@frozen
class StopConnection:
    """Cancel the attempt, or let the connection end with its last call."""


@frozen
class StartBackoff:
    """Step with `BackoffOver` after this time."""

    delay_s: float


@frozen
class CancelBackoff:
    """Cancel the timer of `StartBackoff`."""


Effect = Connect | StopConnection | StartBackoff | CancelBackoff


class Connectivity:
    """State machine of a subchannel. An event that does not fit the state changes nothing."""

    def __init__(self, options: SubchannelOptions, random: Random) -> None:
        # Fixed at construction.
        self._min_connect_timeout_s = options.min_connect_timeout_s
        self._random = random
        # Published. The status is OK unless the state is TRANSIENT_FAILURE.
        self.state = State.IDLE
        self.status = OK
        self.reason = "new"
        # The next delay, and when the one of the last attempt is over.
        self._backoff = Backoff(options.backoff)
        self._backoff_over_s = -inf

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Apply the event; returns the effects, in order."""
        effects: tuple[Effect, ...] = ()
        match self.state, event:
            case State.IDLE, Requested(now_s):
                effects = (self._start_attempt(now_s),)
            case State.CONNECTING, Connected():
                self._backoff.reset()
                self._enter(State.READY, "connected")
            case State.CONNECTING, Failed(status, now_s):
                self._enter(State.TRANSIENT_FAILURE, status.details, status)
                effects = (StartBackoff(max(self._backoff_over_s - now_s, 0.0)),)
            case State.READY, Lost(status):
                # Not a failure to connect, so there is no delay: SUB-05.
                self._enter(State.IDLE, status.details)
            case State.TRANSIENT_FAILURE, BackoffOver():
                # The policy decides whether to connect again: SUB-01.
                self._enter(State.IDLE, "backoff over")
            case state, BackoffReset():
                effects = self._reset_backoff(state)
            case state, Released():
                self._enter(State.SHUTDOWN, "released")
                effects = _WHEN_RELEASED[state]
            case _:
                pass
        return effects

    def _start_attempt(self, now_s: float) -> Connect:
        delay_s = self._backoff.next_delay_s(self._random)
        # The delay counts from the start of the attempt, so part of it may pass meanwhile: SUB-03.
        self._backoff_over_s = now_s + delay_s
        self._enter(State.CONNECTING, "connection requested")
        return Connect(max(self._min_connect_timeout_s, delay_s))

    def _reset_backoff(self, state: State) -> tuple[Effect, ...]:
        self._backoff.reset()
        # An attempt under way will not be followed by a wait: SUB-06.
        self._backoff_over_s = -inf
        if state is not State.TRANSIENT_FAILURE:
            return ()
        self._enter(State.IDLE, "backoff reset")
        return (CancelBackoff(),)

    def _enter(self, state: State, reason: str, status: Status = OK) -> None:
        self.state, self.reason, self.status = state, reason, status


_WHEN_RELEASED: Final[dict[State, tuple[Effect, ...]]] = {
    State.IDLE: (),
    State.CONNECTING: (StopConnection(),),
    State.READY: (StopConnection(),),
    State.TRANSIENT_FAILURE: (CancelBackoff(),),
    State.SHUTDOWN: (),
}
