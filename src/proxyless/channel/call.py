"""What happens to one RPC between the application and the wire?

Specs: A31 (selection, commit hook), A6 (transparent retries), A81 (authority of an attempt).

Theory of operation. An RPC goes through these stations, each of which may be passed at once:
credentials (fetch call metadata) → selection (once, A31-02) → pick (again and again while the
pick is queued) → attempt (a stream on a subchannel) → end. `finish` is the one way out, whatever
ends the RPC: it runs the commit hook if that has not happened, then tells the observer.

Until the RPC is committed, what the application sent is kept, so that another attempt can send it
again: after the server never saw the first one (here), or because of a retry or hedging policy
(the call's `Strategy`, see `retrying`). Response metadata commits; so does more than a certain
amount of sent bytes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode, one_line
from proxyless.channel.attempt import LOGGER, NOBODY, Attempt, cancel_all, choose_furthest
from proxyless.channel.interception import InterceptedObserver
from proxyless.channel.retry import NO_RETRIES
from proxyless.channel.statuses import DEADLINE_EXCEEDED, from_control_plane, too_large_to_send
from proxyless.lb.api import Complete, Drop, Fail, PickInfo
from proxyless.wire import IDENTITY, StreamEnd, compress

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel.attempt import CallObserver, PickedSubchannel, Strategy
    from proxyless.channel.channel import Channel
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.method import Method
    from proxyless.channel.service_config import MethodConfig
    from proxyless.lb.api import CallTracker, Picker
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, RequestEncoder

# In Python 3.11 naming the member of an enum runs a function, and every RPC asks for these.
_CODE_OK: Final = StatusCode.OK
_CODE_CANCELLED: Final = StatusCode.CANCELLED
# The words of grpcio.
CANCELLED: Final = Status(StatusCode.CANCELLED, "Locally cancelled by application!")


class Call:
    """One RPC. Driven by its front, the channel's pickers and selectors, the wire, its deadline."""

    __slots__ = (
        "_attempts",
        "_attempts_wanted",
        "_channel",
        "_commit_hook",
        "_deadline_s",
        "_encoding",
        "_has_waited",
        "_info",
        "_kept",
        "_kept_bytes",
        "_metadata",
        "_method",
        "_request_bytes_max",
        "_started_s",
        "_strategy",
        "_timeout_s",
        "_transparent_retries",
        "attempts_started",
        "credentials",
        "deadline_id",
        "is_committed",
        "is_ended",
        "is_half_closed",
        "observer",
        "response_bytes_max",
        "wait_for_ready",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - one for every RPC: an object in between costs time
        self,
        channel: Channel,
        method: Method,
        observer: CallObserver,
        metadata: Metadata = EMPTY_METADATA,
        timeout_s: float | None = None,
        wait_for_ready: bool | None = None,
        encoding: str = IDENTITY,
    ) -> None:
        # Fixed at construction.
        self._channel = channel
        self._method = method
        self.observer = observer
        self._encoding = encoding
        self.credentials: CallCredentials | None = channel.call_credentials
        # From the application, completed by credentials and the selector.
        self._metadata = metadata
        self._timeout_s = timeout_s
        self.wait_for_ready = wait_for_ready
        self._request_bytes_max = channel.send_bytes_max
        self.response_bytes_max = inf
        self._strategy: Strategy | None = None
        self._info: PickInfo | None = None
        # What another attempt would have to send again.
        self._kept: list[bytes] | tuple[bytes, ...] = ()
        self._kept_bytes = 0
        self.is_half_closed = False
        # Where the RPC is.
        self._attempts: tuple[Attempt, ...] = ()
        self._attempts_wanted = 0
        self.attempts_started = 0
        self._transparent_retries = NO_RETRIES
        self.is_committed = False
        self._commit_hook: Callable[[], None] | None = None
        self.is_ended = False
        self._has_waited = False
        self._started_s = 0.0
        self.deadline_id = 0
        self._deadline_s = 0.0

    # The front's side

    def start(self) -> None:
        """Begin; the observer may hear of the end before this returns."""
        channel = self._channel
        # First: a timeout that is no number raises here, and nothing has happened yet.
        if self._timeout_s is not None:
            self._limit_time(self._timeout_s)
        channel.on_call_started(self)
        if self.credentials is None:
            self.select()
        else:
            self._note_wait()
            path = self._method.path
            url = channel.service_url(path)
            if withdraw := self.credentials.request(url, path, self.on_credentials):
                self._commit_hook = withdraw  # Until there is one, after the answer.

    def start_unary(self, message: bytes) -> None:
        """Begin an RPC of which this is the only message."""
        if len(message) > self._request_bytes_max:
            self.start_failed(too_large_to_send(len(message), self._request_bytes_max))
            return
        self._kept = (message,)
        self._kept_bytes = len(message)
        self.is_half_closed = True
        self.start()

    def start_failed(self, status: Status) -> None:
        """End before the beginning: the request could not be made."""
        self._channel.on_call_started(self)
        self.finish(StreamEnd(status))

    def send_message(self, message: bytes) -> None:
        """Send, or keep until there is an attempt. Void after the end."""
        if self.is_ended:
            return
        if len(message) > self._request_bytes_max:
            self.cancel(too_large_to_send(len(message), self._request_bytes_max))
            return
        if not self.is_committed:
            self._keep(message)
        for attempt in self._attempts:
            if attempt.stream is not None:
                self._send_on(attempt.stream, message)
        self._commit_if_too_much()

    def _commit_if_too_much(self) -> None:
        """What cannot be kept cannot be sent again."""
        if self._kept_bytes > self._channel.kept_bytes_max and self._attempts:
            self.commit(choose_furthest(self._attempts))

    def _keep(self, message: bytes) -> None:
        if not isinstance(self._kept, list):
            self._kept = list(self._kept)
        self._kept.append(message)
        self._kept_bytes += len(message)

    def close_sending(self) -> None:
        """No message follows. Idempotent."""
        self.is_half_closed = True
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.close_sending()

    @property
    def is_connected(self) -> bool:
        """The RPC has been given to a connection."""
        return bool(self._attempts)

    @property
    def is_waiting(self) -> bool:
        """An attempt is wanted, and there is no stream for it yet."""
        return self._attempts_wanted > 0

    @property
    def is_writable(self) -> bool:
        """More may be sent without piling up. An RPC that is over takes anything."""
        if self.is_ended:
            return True
        streams = [attempt.stream for attempt in self._attempts]
        return bool(streams) and all(stream and stream.is_writable for stream in streams)

    def hold(self) -> None:
        """The front has more messages than it wants for now."""
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.hold()

    def release(self) -> None:
        for attempt in self._attempts:
            if attempt.stream is not None:
                attempt.stream.release()

    def cancel(self, status: Status = CANCELLED) -> None:
        """End the RPC from this side, wherever it is. Void after its end."""
        if not self.is_ended:
            attempts = self._attempts
            self.finish(StreamEnd(status))
            cancel_all(attempts, status)

    def time_remaining_s(self) -> float | None:
        if self._timeout_s is None:
            return None
        return max(0.0, self._deadline_s - self._channel.clock.now_s())

    def _limit_time(self, timeout_s: float, waited_s: float = 0.0) -> None:
        if timeout_s == inf:
            self._timeout_s = None
            return
        if not timeout_s > 0.0:  # Nor is NaN, which would confuse the deadlines of other calls.
            timeout_s = 0.0
        self._timeout_s = timeout_s
        channel = self._channel
        self._deadline_s = deadline_s = channel.clock.now_s() + timeout_s - waited_s
        channel.deadlines.expire(self, deadline_s)

    @property
    def _is_overdue(self) -> bool:
        return self._timeout_s is not None and self._channel.clock.now_s() >= self._deadline_s

    def on_deadline(self) -> None:
        """The time is up."""
        self.cancel(self._channel.describe_delay(self))

    # Credentials, selection

    def on_credentials(self, found: Metadata | Status) -> None:
        """Call credentials answered."""
        if self.is_ended:
            return
        if isinstance(found, Status):
            self.finish(StreamEnd(from_control_plane(found)))
        else:
            self._metadata += found
            self.select()

    def _note_wait(self) -> None:
        """From here on the RPC's whole timeout is not left any more."""
        if not self._has_waited:
            self._has_waited = True
            self._started_s = self._channel.clock.now_s()

    def select(self) -> None:
        """Be selected by the current selector, or wait for the first one (A31-03)."""
        channel, method, metadata = self._channel, self._method, self._metadata
        selector = channel.selector
        if selector is None:
            self._note_wait()
            channel.wait_for_selector(self)
            return
        try:
            config = selector.select(method.path, metadata)
        except Exception as error:
            self.on_bug("config selector", error)
            return
        if isinstance(config, Status):
            self.finish(StreamEnd(from_control_plane(config)))
            return
        self._commit_hook = config.on_commit
        self._info = method.plain_info
        if metadata:
            self._info = PickInfo(method.path, metadata, config.attributes)
        elif config.attributes is not method.plain_info.attributes:
            # The next one is likely to go there, too.
            self._info = method.plain_info = PickInfo(method.path, metadata, config.attributes)
        if not config.method_config.is_plain or channel.is_throttled:
            self._apply(config.method_config)
        if self.is_ended:
            return
        if config.interception is None:
            self._attempts_wanted += 1
            self.pick(channel.picker)
        else:
            self._note_wait()
            self.observer = InterceptedObserver(self, self.observer, config.interception)
            self.observer.start(channel.clock)

    def _apply(self, method_config: MethodConfig) -> None:
        if self.wait_for_ready is None:
            self.wait_for_ready = method_config.wait_for_ready
        timeout_s = method_config.timeout_s
        if timeout_s is not None and (self._timeout_s is None or timeout_s < self._timeout_s):
            # It counts from the start of the RPC, wherever it has been since.
            waited_s = self._channel.clock.now_s() - self._started_s if self._has_waited else 0.0
            self._limit_time(timeout_s, waited_s)
        if method_config.has_policy or self._channel.is_throttled:
            self._strategy = self._channel.choose_strategy(self, method_config)
        if method_config.response_bytes_max is not None:
            self.response_bytes_max = method_config.response_bytes_max
        if method_config.request_bytes_max is not None:
            self._limit_requests(method_config.request_bytes_max)

    def _limit_requests(self, request_bytes_max: int) -> None:
        self._request_bytes_max = min(self._request_bytes_max, request_bytes_max)
        for message in self._kept:
            if len(message) > self._request_bytes_max:
                self.finish(StreamEnd(too_large_to_send(len(message), self._request_bytes_max)))
                return

    # Picks

    def request_attempt(self) -> None:
        """Pick, now or as soon as a picker allows, and open a stream there."""
        self._has_waited = True
        self._attempts_wanted += 1
        self.pick(self._channel.picker)

    def pick(self, picker: Picker) -> None:
        """Pick for every attempt that is wanted. Called again with each new picker if queued."""
        assert self._info is not None, "an RPC is picked for after it was selected"
        while self._attempts_wanted and not self.is_ended:
            try:
                result = picker.pick(self._info)
            except Exception as error:
                self.on_bug("picker", error)
                return
            if isinstance(result, Complete):
                # The channel's own kind: every policy got it from the channel's helper.
                subchannel: PickedSubchannel = result.subchannel  # type: ignore[assignment]
                transport = subchannel.transport
                if transport is None:
                    # It is not connected any more, and a newer picker is on its way.
                    self._queue()
                    return
                self._attempts_wanted -= 1
                if not (authority := result.authority):
                    self._open(transport, result.tracker, self._method.encoder)
                elif (refusal := transport.refuse_authority(authority)) is not None:
                    self._on_failure(StreamEnd(refusal))
                else:
                    self._open(transport, result.tracker, self._method.encoder_for(authority))
            elif isinstance(result, Drop):
                self.cancel(from_control_plane(result.status))
            elif isinstance(result, Fail) and not self.wait_for_ready:
                self._attempts_wanted -= 1
                self._on_failure(StreamEnd(from_control_plane(result.status)))
            else:
                self._queue()
                return

    def on_bug(self, who: str, error: Exception) -> None:
        """Something raised, perhaps an application's own: only this RPC has to suffer for it."""
        LOGGER.exception("%s raised for %s", who, self._method.path)
        text = one_line(f"{who} raised {type(error).__name__}: {error}")
        self.cancel(Status(StatusCode.INTERNAL, text))

    def _queue(self) -> None:
        self._note_wait()
        self._channel.queue_pick(self)

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        attempt = Attempt(self)
        self._attempts += (attempt,)
        self.attempts_started += 1
        if tracker is not None:
            attempt.start_tracking(tracker)
        if self._strategy is not None:
            self._strategy.on_attempt_sent()
        # The application's own figure as long as it is true: it is encoded once for all calls.
        timeout_s = self.time_remaining_s() if self._has_waited else self._timeout_s
        metadata = self._metadata
        if self._strategy is not None:
            metadata = self._transparent_retries.count_attempts(self.attempts_started) + metadata
        block = encoder.block(timeout_s, metadata, self._encoding)
        kept = self._kept
        if self.is_half_closed and len(kept) == 1 and self._encoding == IDENTITY:
            attempt.stream = transport.open_unary(block, attempt, kept[0])
        else:
            stream = attempt.stream = transport.open(block, attempt)
            for message in kept[:-1]:
                self._send_on(stream, message)
            if kept:
                self._send_on(stream, kept[-1], end_stream=self.is_half_closed)
            elif self.is_half_closed:
                stream.close_sending()
        if self._has_waited or not self.is_half_closed:
            # Who has more to write waits for this; so may who wrote before there was a stream.
            self.on_attempt_writable()
        if self._strategy is not None:
            self._commit_if_too_much()

    def _send_on(self, stream: ClientStream, message: bytes, *, end_stream: bool = False) -> None:
        if stream.is_ended:
            return
        is_compressed = self._encoding != IDENTITY
        payload = compress(self._encoding, message) if is_compressed else message
        stream.send_message(payload, is_compressed=is_compressed, end_stream=end_stream)

    # What attempts say

    def on_attempt_writable(self) -> None:
        if self.is_writable:
            self.observer.on_writable()

    def on_attempt_end(self, attempt: Attempt, end: StreamEnd) -> None:
        if self.is_ended or attempt not in self._attempts:
            return
        code = end.status.code
        if code is _CODE_CANCELLED and self._is_overdue:
            # The server's own deadline was a little faster than ours.
            self._finish_with(attempt, StreamEnd(DEADLINE_EXCEEDED, end.trailers))
            return
        if self.is_committed or code is _CODE_OK:
            if self._strategy is not None:
                self._strategy.on_attempt_end(end)
            self._finish_with(attempt, end)
            return
        self._attempts = others = tuple(each for each in self._attempts if each is not attempt)
        self._go_on_after(end)
        if others:
            # It may have been the one that kept the others from being written to.
            self.on_attempt_writable()

    def _finish_with(self, attempt: Attempt, end: StreamEnd) -> None:
        """This attempt's end is the RPC's; what else is under way (hedging) is not needed."""
        attempts = self._attempts
        self.finish(end)
        if len(attempts) > 1:
            cancel_all([each for each in attempts if each is not attempt], CANCELLED)

    def _go_on_after(self, end: StreamEnd) -> None:
        """An attempt ended and nothing is decided yet."""
        retries = self._transparent_retries
        more = retries.following(is_retry_free=end.is_retry_free) if end.is_unprocessed else None
        if more is None:
            self._on_failure(end)
        else:
            # The strategy hears nothing: for it this attempt and the next are one. "they do not
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

    # Ends

    def commit(self, attempt: Attempt) -> None:
        """From here on this attempt is the RPC: the channel will not pick for it again."""
        self.is_committed = True
        self._kept = ()
        self._kept_bytes = self._attempts_wanted = 0
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

    def finish(self, end: StreamEnd) -> None:
        """The one way out."""
        if self.is_ended:
            return
        self.is_ended = True
        self._attempts = self._kept = ()
        if self.deadline_id:
            self._channel.deadlines.forget(self)
        if not self.is_committed and (self._strategy is not None or self._commit_hook is not None):
            self._release_call()
        self._channel.on_call_ended(self)
        observer, self.observer = self.observer, NOBODY
        observer.on_end(end)
