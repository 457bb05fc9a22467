"""Attempt: one stream on one subchannel; and the interfaces of observers and strategies.

A call usually makes one attempt; transparent retries, retry policies and hedging make more (see
`call_attempts` and `retry_strategies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.channel.statuses import LOGGER
from proxyless.lb.api import HeadTracker
from proxyless.wire import IDENTITY
from proxyless.wire.messages import Unpacking, too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.base import Address, Attributes, Metadata, Status
    from proxyless.channel.method import MessageLimits
    from proxyless.channel.transparent_retries import TransparentRetries
    from proxyless.lb.api import CallTracker
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock, StreamEnd


class CallObserver(Protocol):
    """Called by an RPC; implemented by the front. No method may raise or block."""

    def on_head(self, metadata: Metadata) -> None:
        """Response metadata; skipped if the response is trailers-only."""

    def choose_unpacking(self) -> Unpacking:
        """When to deliver messages. Called before `on_head` if they may be compressed."""

    def on_message(self, message: bytes) -> None: ...

    def on_writable(self) -> None:
        """The next message will not be queued."""

    def on_end(self, end: StreamEnd) -> None:
        """The RPC is over; nothing follows."""


class ForwardingObserver:
    """Base of observers that pass everything but the head and the end on unchanged."""

    __slots__ = ()

    # The observer of the application; a slot of the subclass.
    _observer: CallObserver

    def choose_unpacking(self) -> Unpacking:
        return self._observer.choose_unpacking()

    def on_message(self, message: bytes) -> None:
        self._observer.on_message(message)

    def on_writable(self) -> None:
        self._observer.on_writable()


class PickedSubchannel(Protocol):
    """A picked subchannel: its connection, if there is one, and its origin."""

    transport: ClientTransport | None
    # The attributes with which the policies created it.
    attributes: Attributes

    @property
    def address(self) -> Address: ...


class Strategy(Protocol):
    """Retry or hedging policy of a call. Transparent retries belong to the attempt they replace."""

    # Its attempts may be concurrent.
    @property
    def is_hedging(self) -> bool: ...

    def on_attempt_sent(self, retries: TransparentRetries) -> Metadata:
        """An attempt is about to be opened. Returns metadata for it."""

    def on_attempt_end(self, end: StreamEnd) -> None:
        """An attempt has ended, or its pick has failed."""

    def on_failure(self, end: StreamEnd) -> bool:
        """Called after `on_attempt_end` for a failure before the commit.

        Returns whether another attempt is under way or will be requested.
        """

    def close(self) -> None:
        """The call is committed or over: no more attempts."""


class AttemptOwner(Protocol):
    """The methods of a call that its attempts use."""

    observer: CallObserver
    limits: MessageLimits

    def commit(self, attempt: Attempt) -> None:
        """Continue with this attempt only. No-op after the first time."""

    def cancel(self, status: Status) -> None: ...
    def on_attempt_writable(self) -> None: ...
    def on_attempt_end(self, attempt: Attempt, end: StreamEnd) -> None: ...


class Attempt:
    """One stream on one subchannel, for one call. Its methods `on_*` are called by the wire."""

    __slots__ = ("_call", "_end", "_head_tracker", "_tracker", "stream")

    def __init__(self, call: AttemptOwner) -> None:
        self._call = call
        self._tracker: CallTracker | None = None
        # Until the response headers: the same tracker, if it needs them.
        self._head_tracker: HeadTracker | None = None
        self.stream: ClientStream | None = None
        self._end: StreamEnd | None = None

    def start_tracking(self, tracker: CallTracker) -> None:
        try:
            tracker.on_start()
        except Exception:
            LOGGER.exception("call tracker %r raised", tracker)
        else:
            self._tracker = tracker
            if isinstance(tracker, HeadTracker):
                self._head_tracker = tracker

    def on_head(self, head: ResponseBlock) -> None:
        if self._head_tracker is not None:
            self._track_head(self._head_tracker)
        call = self._call
        call.commit(self)
        if head.encoding != IDENTITY and self.stream is not None:
            self.stream.keep_packed(call.observer.choose_unpacking())
        call.observer.on_head(head.metadata)

    def _track_head(self, tracker: HeadTracker) -> None:
        self._head_tracker = None
        try:
            tracker.on_head()
        except Exception:
            LOGGER.exception("call tracker %r raised", tracker)

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
                # An exception in a policy's tracker must not break the connection.
                LOGGER.exception("call tracker %r raised", self._tracker)
        self._call.on_attempt_end(self, end)

    # `lb.CallEnd`, for the tracker

    @property
    def status(self) -> Status:
        assert self._end is not None, "a tracker is called when the attempt has ended"
        return self._end.status

    @property
    def trailing_metadata(self) -> Metadata:
        assert self._end is not None, "a tracker is called when the attempt has ended"
        return self._end.trailers


class _NullObserver:
    """Observer of a call that has ended; breaks the cycle between the call and its front."""

    def on_head(self, metadata: Metadata) -> None: ...

    def choose_unpacking(self) -> Unpacking:
        return Unpacking.AT_ONCE

    def on_message(self, message: bytes) -> None: ...
    def on_writable(self) -> None: ...
    def on_end(self, end: StreamEnd) -> None: ...


NULL_OBSERVER: Final = _NullObserver()


def choose_furthest(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt to commit to."""
    # "the currently in-flight attempt on which the maximum number of messages have already been
    # sent" - A6. All got the same messages, and one that is not writable has not sent them all.
    for attempt in attempts:
        if attempt.stream is not None and attempt.stream.is_writable:
            return attempt
    return attempts[0]


def cancel_all(attempts: Iterable[Attempt], status: Status) -> None:
    for attempt in attempts:
        if attempt.stream is not None:
            attempt.stream.cancel(status)
