"""Connectivity: the states of a subchannel (pure).

Specs: gRPC "Connection Backoff Protocol" and "Connectivity Semantics and API"; SUB-01 to SUB-09;
A105 (several connections).

An event goes in, the state changes, and effects come out, which `subchannel` enacts. It uses no
event loop, so a test can combine every state with every event.

    IDLE → (requested) CONNECTING → (connected) READY → (lost) IDLE
                       CONNECTING → (failed) TRANSIENT_FAILURE → (backoff over) IDLE

A subchannel that is READY may need a further connection (A105). The state of that attempt is
`further`, with the same backoff; it becomes the state when the last connection is lost.
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
class Needed:
    """RPCs wait, because all connections have reached the peer's limit of streams (A105)."""

    now_s: float


@frozen
class Connected:
    """The attempt succeeded: the peer's SETTINGS have arrived."""


@frozen
class Failed:
    """The attempt failed or timed out."""

    status: Status
    now_s: float


@frozen
class Lost:
    """The last connection takes no more calls: closed, broken, or the peer is going away."""

    status: Status
    # The code of the peer's GOAWAY, or the error of the socket.
    cause: int | Exception | None = None


@frozen
class BackoffOver:
    """The backoff after a failure is over."""


@frozen
class BackoffReset:
    """The backoff was reset."""


@frozen
class Released:
    """The last handle was released."""


Event = Requested | Needed | Connected | Failed | Lost | BackoffOver | BackoffReset | Released


@frozen
class Connect:
    """Start an attempt with this timeout."""

    timeout_s: float


@frozen
class StopConnection:
    """Cancel the attempt, and let connections end with their last calls."""


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
        # State of a further connection while the state is READY: IDLE, CONNECTING or
        # TRANSIENT_FAILURE.
        self.further = State.IDLE
        self._further_status = OK
        # The next delay, and when the one of the last attempt is over.
        self._backoff = Backoff(options.backoff)
        self._backoff_over_s = -inf

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Apply the event; returns the effects, in order."""
        effects: tuple[Effect, ...] = ()
        match self.state, event:
            case State.IDLE, Requested(now_s):
                self._enter(State.CONNECTING, "connection requested")
                effects = (self._start_attempt(now_s),)
            case State.CONNECTING, Connected():
                self._backoff.reset()
                self._enter(State.READY, "connected")
            case State.CONNECTING, Failed(status, now_s):
                self._enter(State.TRANSIENT_FAILURE, status.details, status)
                effects = (StartBackoff(max(self._backoff_over_s - now_s, 0.0)),)
            case State.READY, Lost(status):
                self._on_lost(status)
            case State.READY, Needed() | Connected() | Failed() | BackoffOver():
                effects = self._step_further(event)
            case State.TRANSIENT_FAILURE, BackoffOver():
                # The policy decides whether to connect again: SUB-01.
                self._enter(State.IDLE, "backoff over")
            case state, BackoffReset():
                effects = self._reset_backoff(state)
            case state, Released():
                self._enter(State.SHUTDOWN, "released")
                is_delayed = self.further is State.TRANSIENT_FAILURE
                effects = _WHEN_RELEASED[state] + ((CancelBackoff(),) if is_delayed else ())
            case _:
                pass
        return effects

    def _step_further(self, event: Event) -> tuple[Effect, ...]:
        """An event of a further connection."""
        match self.further, event:
            case State.IDLE, Needed(now_s):
                self.further = State.CONNECTING
                return (self._start_attempt(now_s),)
            case State.CONNECTING, Connected():
                self._backoff.reset()
                self.further = State.IDLE
            case State.CONNECTING, Failed(status, now_s):
                self.further, self._further_status = State.TRANSIENT_FAILURE, status
                return (StartBackoff(max(self._backoff_over_s - now_s, 0.0)),)
            case State.TRANSIENT_FAILURE, BackoffOver():
                self.further = State.IDLE
            case _:
                pass
        return ()

    def _on_lost(self, status: Status) -> None:
        further, self.further = self.further, State.IDLE
        if further is State.TRANSIENT_FAILURE:
            self._enter(further, self._further_status.details, self._further_status)
        else:
            # IDLE, unless there is an attempt. Not a failure to connect, so there is no delay:
            # SUB-05.
            self._enter(further, status.details)

    def _start_attempt(self, now_s: float) -> Connect:
        delay_s = self._backoff.next_delay_s(self._random)
        # The delay counts from the start of the attempt, so part of it may pass during it: SUB-03.
        self._backoff_over_s = now_s + delay_s
        return Connect(max(self._min_connect_timeout_s, delay_s))

    def _reset_backoff(self, state: State) -> tuple[Effect, ...]:
        self._backoff.reset()
        # An attempt under way will not be followed by a wait: SUB-06.
        self._backoff_over_s = -inf
        if self.further is State.TRANSIENT_FAILURE:
            self.further = State.IDLE
            return (CancelBackoff(),)
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
