"""Who stands around a call: its observer, its strategy, and the attempts it makes.

An attempt is one stream on one subchannel. A call usually makes one; transparent retries, retry
policies and hedging make more (see `call` and `retrying`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.channel.statuses import LOGGER
from proxyless.wire.messages import too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.base import Metadata, Status
    from proxyless.channel.method import MessageLimits
    from proxyless.channel.retry import TransparentRetries
    from proxyless.lb.api import CallTracker
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock, StreamEnd


class CallObserver(Protocol):
    """What the front is told about an RPC. No method may raise or block."""

    def on_head(self, metadata: Metadata) -> None:
        """Response metadata; skipped when the answer is trailers only."""

    def on_message(self, message: bytes) -> None: ...

    def on_writable(self) -> None:
        """What was sent so far is on its way; sending more will not pile up."""

    def on_end(self, end: StreamEnd) -> None:
        """The RPC is over; nothing follows."""


class PickedSubchannel(Protocol):
    """What a call needs of the subchannel it was picked: the connection, if there is one."""

    transport: ClientTransport | None


class Strategy(Protocol):
    """What a retry or hedging policy adds to a call. Without a policy a call has none.

    For a strategy, an attempt and the transparent retries that replace it are one.
    """

    def on_attempt_sent(self, retries: TransparentRetries) -> Metadata:
        """An attempt is about to be opened; returns the metadata that it adds."""
        ...

    def on_attempt_end(self, end: StreamEnd) -> None:
        """An attempt, or the pick for one, has ended, one way or another."""
        ...

    def on_failure(self, end: StreamEnd) -> bool:
        """After that: it was a failure, and the call is not committed.

        True if the call goes on: another attempt is under way or will be requested.
        """
        ...

    def close(self) -> None:
        """The call is committed or over: no more attempts."""
        ...


class AttemptOwner(Protocol):
    """What an attempt needs of its call."""

    observer: CallObserver
    limits: MessageLimits

    def commit(self, attempt: Attempt) -> None:
        """Go on with this attempt only. No-op after the first time."""

    def cancel(self, status: Status) -> None: ...
    def on_attempt_writable(self) -> None: ...
    def on_attempt_end(self, attempt: Attempt, end: StreamEnd) -> None: ...


class Attempt:
    """One stream on one subchannel, for one call. Its methods `on_*` are called by the wire."""

    __slots__ = ("_call", "_end", "_tracker", "stream")

    def __init__(self, call: AttemptOwner) -> None:
        self._call = call
        self._tracker: CallTracker | None = None
        self.stream: ClientStream | None = None
        self._end: StreamEnd | None = None

    def start_tracking(self, tracker: CallTracker) -> None:
        try:
            tracker.on_start()
        except Exception:
            LOGGER.exception("call tracker %r raised", tracker)
        else:
            self._tracker = tracker

    def on_head(self, head: ResponseBlock) -> None:
        call = self._call
        call.commit(self)
        call.observer.on_head(head.metadata)

    def on_message(self, message: bytes) -> None:
        call = self._call
        limit = call.limits.response_bytes_max
        if len(message) > limit:
            call.cancel(too_large(len(message), int(limit)).status)
        else:
            call.observer.on_message(message)

    def on_writable(self) -> None:
        self._call.on_attempt_writable()

    def on_end(self, end: StreamEnd) -> None:
        if self._tracker is not None:
            self._end = end
            try:
                self._tracker.on_end(self)
            except Exception:
                # A policy's tracker must not break the connection it is called from.
                LOGGER.exception("call tracker %r raised", self._tracker)
        self._call.on_attempt_end(self, end)

    # What a tracker may ask (`lb.CallEnd`).

    @property
    def status(self) -> Status:
        assert self._end is not None, "a tracker is told when the attempt has ended"
        return self._end.status

    @property
    def trailing_metadata(self) -> Metadata:
        assert self._end is not None, "a tracker is told when the attempt has ended"
        return self._end.trailers


class _Nobody:
    """Observes a call that is over; breaks the cycle between the call and its front."""

    def on_head(self, metadata: Metadata) -> None: ...
    def on_message(self, message: bytes) -> None: ...
    def on_writable(self) -> None: ...
    def on_end(self, end: StreamEnd) -> None: ...


NOBODY: Final = _Nobody()


def choose_furthest(attempts: Sequence[Attempt]) -> Attempt:
    """Which to go on with, if it can only be one."""
    # "the currently in-flight attempt on which the maximum number of messages have already been
    # sent" - A6. They all got the same; what one could not take yet, it has not sent.
    for attempt in attempts:
        if attempt.stream is not None and attempt.stream.is_writable:
            return attempt
    return attempts[0]


def cancel_all(attempts: Iterable[Attempt], status: Status) -> None:
    for attempt in attempts:
        if attempt.stream is not None:
            attempt.stream.cancel(status)
