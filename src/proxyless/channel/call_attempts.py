"""CallAttempts: the station of one RPC, its attempts, and the messages that they send.

Specs: A6 (transparent retries, commit), A31-07 and A31-08 (commit hook).

Response metadata commits the RPC to an attempt; so does more than a certain amount of sent bytes.
Until then, another attempt can replace one that failed: after the server did not see it (here), or
because of a retry or hedging policy (the `Strategy`, see `retry_strategies`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.channel.attempt import cancel_all, choose_furthest
from proxyless.channel.statuses import CANCELLED, DEADLINE_EXCEEDED, too_large_to_send
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Status
    from proxyless.channel.attempt import Attempt, CallObserver, Strategy
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.call_time import CallTime
    from proxyless.channel.method import MessageLimits
    from proxyless.channel.request_buffer import RequestBuffer
    from proxyless.channel.transparent_retries import TransparentRetries


class Station(Enum):
    """Stage of an RPC between its start and its end."""

    START = 0
    # It waits for the metadata of call credentials.
    CREDENTIALS = 1
    # It is selected, once (A31-02), or waits for a selector.
    SELECT = 2
    # HTTP filters delay it.
    FILTERS = 3
    # Attempts are picked for and opened.
    PICK = 4
    # One attempt is the RPC (A31-07): there is no other pick.
    COMMITTED = 5
    ENDED = 6


# In Python 3.11 naming the member of an enum runs a function, and every RPC uses these.
_PICK: Final = Station.PICK
_COMMITTED: Final = Station.COMMITTED
_ENDED: Final = Station.ENDED
_CODE_OK: Final = StatusCode.OK
_CODE_CANCELLED: Final = StatusCode.CANCELLED


class CallAttempts:
    """The part of a call that begins with its first attempt.

    `Call` sets the attributes, because another `__init__` costs every RPC a function call.
    """

    __slots__ = (
        "_attempts",
        "_attempts_wanted",
        "_channel",
        "_commit_hook",
        "_request",
        "_strategy",
        "_time",
        "_transparent_retries",
        "limits",
        "observer",
        "station",
    )

    _channel: CallOwner
    observer: CallObserver
    limits: MessageLimits
    # None if the RPC has no timeout and has not waited.
    _time: CallTime | None
    station: Station
    # Messages that another attempt has to send again.
    _request: RequestBuffer
    _attempts: tuple[Attempt, ...]
    # Attempts that have no subchannel yet.
    _attempts_wanted: int
    _transparent_retries: TransparentRetries
    _strategy: Strategy | None
    # Runs once, when the channel will not pick again.
    _commit_hook: Callable[[], None] | None

    def request_attempt(self) -> None:
        """Pick, now or as soon as a picker allows, and open a stream on the picked subchannel."""
        raise NotImplementedError

    def finish(self, end: StreamEnd) -> None:
        """End the RPC, and call the observer. No-op after its end."""
        raise NotImplementedError

    def cancel(self, status: Status = CANCELLED) -> None:
        """End the RPC from this side, wherever it is. No-op after its end."""
        if self.station is not _ENDED:
            attempts = self._attempts
            self.finish(StreamEnd(status))
            cancel_all(attempts, status)

    # Called by the front

    def send_message(self, message: bytes) -> None:
        """Send, or keep until there is an attempt. No-op after the end."""
        if self.station is _ENDED:
            return
        if len(message) > self.limits.request_bytes_max:
            self.cancel(too_large_to_send(len(message), self.limits.request_bytes_max))
            return
        if self.station is not _COMMITTED:
            self._request.add(message)
        for attempt in self._attempts:
            if attempt.stream is not None:
                self._request.send(attempt.stream, message)
        self._commit_if_too_much()

    def _commit_if_too_much(self) -> None:
        """Commit if the messages take more memory than may be kept for another attempt."""
        if self._request.size_bytes > self._channel.options.kept_bytes_max and self._attempts:
            self.commit(choose_furthest(self._attempts))

    def close_sending(self) -> None:
        """No message follows. Idempotent."""
        self._request.is_half_closed = True
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.close_sending()

    @property
    def is_half_closed(self) -> bool:
        return self._request.is_half_closed

    @property
    def is_ended(self) -> bool:
        return self.station is _ENDED

    @property
    def is_connected(self) -> bool:
        """Whether the RPC has been given to a connection."""
        return bool(self._attempts)

    @property
    def is_waiting(self) -> bool:
        """Whether an attempt is requested that has no stream yet."""
        return self._attempts_wanted > 0

    @property
    def is_writable(self) -> bool:
        """Whether the next message will be sent without being queued. True after the end."""
        if self.station is _ENDED:
            return True
        streams = [attempt.stream for attempt in self._attempts]
        return bool(streams) and all(stream and stream.is_writable for stream in streams)

    def hold(self) -> None:
        """Stop reading until `release`."""
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.hold()

    def release(self) -> None:
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.release()

    def request_message(self) -> None:
        """Deliver one message, now or when it is received. Only if they are unpacked ON_READ."""
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.request_message()

    @property
    def undelivered_end(self) -> StreamEnd | None:
        """The end of the RPC if it is received, and held messages come before it."""
        for attempt in self._attempts:
            if attempt.stream is not None:
                return attempt.stream.undelivered_end
        return None

    # Called by attempts

    def on_attempt_writable(self) -> None:
        if self.is_writable:
            self.observer.on_writable()

    def on_attempt_end(self, attempt: Attempt, end: StreamEnd) -> None:
        if self.station is _ENDED or attempt not in self._attempts:
            return
        code = end.status.code
        if code is _CODE_CANCELLED and self._time is not None and self._time.is_over:
            # The server's own deadline passed a little before ours.
            self._finish_with(attempt, StreamEnd(DEADLINE_EXCEEDED, end.trailers))
            return
        if self.station is _COMMITTED or code is _CODE_OK:
            if self._strategy is not None:
                self._strategy.on_attempt_end(end)
            if len(self._attempts) == 1:
                self.finish(end)
            else:
                self._finish_with(attempt, end)
            return
        self._attempts = others = tuple(each for each in self._attempts if each is not attempt)
        self._continue_after(end)
        if others:
            # The call is writable now if this was the only attempt that was not.
            self.on_attempt_writable()

    def _finish_with(self, attempt: Attempt, end: StreamEnd) -> None:
        """End the RPC as this attempt ended; cancel the others (hedging)."""
        others = [each for each in self._attempts if each is not attempt]
        self.finish(end)
        cancel_all(others, CANCELLED)

    def _continue_after(self, end: StreamEnd) -> None:
        """Retry transparently, or let the strategy decide."""
        retries = self._transparent_retries
        more = retries.following(is_retry_free=end.is_retry_free) if end.is_unprocessed else None
        if more is None:
            self._on_failure(end)
        else:
            # The strategy is not called: for it this attempt and the next are one. "they do not
            # count as failures when deciding whether to throttle retry attempts" - A6
            self._transparent_retries = more
            self.request_attempt()

    def _on_failure(self, end: StreamEnd) -> None:
        strategy = self._strategy
        if strategy is not None:
            strategy.on_attempt_end(end)
        if strategy is None or not strategy.on_failure(end):
            attempts = self._attempts
            self.finish(end)
            cancel_all(attempts, CANCELLED)

    # Commit

    def commit(self, attempt: Attempt) -> None:
        """Continue with this attempt only: the channel will not pick for the RPC again."""
        if self.station is not _PICK:
            return
        self.station = _COMMITTED
        request = self._request
        request.messages = ()
        request.size_bytes = self._attempts_wanted = 0
        if self._strategy is not None or self._commit_hook is not None:
            self._release_call()
        if len(self._attempts) > 1:
            others = [other for other in self._attempts if other is not attempt]
            self._attempts = (attempt,)
            cancel_all(others, CANCELLED)
            self.on_attempt_writable()

    def _release_call(self) -> None:
        """Run what must run once when the channel will not pick again (A31-07, A31-08)."""
        if self._strategy is not None:
            self._strategy.close()
        hook, self._commit_hook = self._commit_hook, None
        if hook is not None:
            hook()
