"""Call: one RPC from its start to its end.

Specs: A31 (selection, commit hook), A81 (authority of an attempt).

Theory of operation. An RPC goes through the stations of `Station`, each of which may be passed at
once. `advance` continues from the current one; it is called again when the credentials, a selector
or a picker that the RPC waits for is available. `finish` is the only way to the end: it runs the
commit hook if that has not happened, then calls the observer.

What happens to attempts and request messages is in `call_attempts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from proxyless.base import EMPTY_ATTRIBUTES, EMPTY_METADATA, OK, Metadata, Status
from proxyless.base.frozen import frozen
from proxyless.channel.attempt import NULL_OBSERVER, Attempt
from proxyless.channel.call_attempts import CallAttempts, Station
from proxyless.channel.call_time import CallTime
from proxyless.channel.config_selector import MirroredRequest
from proxyless.channel.credentials import service_url
from proxyless.channel.interception import InterceptedObserver
from proxyless.channel.request_buffer import RequestBuffer
from proxyless.channel.statuses import (
    DEADLINE_EXCEEDED,
    LOGGER,
    from_control_plane,
    raised,
    too_large_to_send,
)
from proxyless.channel.transparent_retries import NO_RETRIES
from proxyless.lb.api import Complete, Drop, Fail, PickInfo
from proxyless.wire import IDENTITY, StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Address, Attributes
    from proxyless.channel.attempt import CallObserver, PickedSubchannel, Strategy
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.config_selector import Interception, Mirror
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.method import Method
    from proxyless.channel.service_config import MethodConfig
    from proxyless.lb.api import CallTracker, PickResult
    from proxyless.transport import ClientTransport
    from proxyless.wire import RequestEncoder


# In Python 3.11 naming the member of an enum runs a function, and every RPC uses these.
_START: Final = Station.START
_SELECT: Final = Station.SELECT
_PICK: Final = Station.PICK
_COMMITTED: Final = Station.COMMITTED
_ENDED: Final = Station.ENDED


class Call(CallAttempts):
    """One RPC: its progress through the stations. Its attempts are handled by the base class."""

    __slots__ = (
        "_generation",
        "_info",
        "_metadata",
        "_method",
        "_picked",
        "_timeout_s",
        "credentials",
        "deadline_id",
        "wait_for_ready",
    )

    # A class, which saves a plain call a function call; subclasses have a method.
    _make_attempt: ClassVar[Callable[..., Attempt]] = Attempt

    def __init__(  # noqa: PLR0913, PLR0917 - one for every RPC: an object in between costs time
        self,
        channel: CallOwner,
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
        self._timeout_s = timeout_s
        self.credentials: CallCredentials | None = channel.options.call_credentials
        # From the application, completed by credentials and the selector.
        self._metadata = metadata
        self.wait_for_ready = wait_for_ready
        self.limits = method.limits
        self._strategy: Strategy | None = None
        self._info: PickInfo | None = None
        # For `call_route` and traces: the config that it was selected by, and its last pick.
        self._generation = 0
        self._picked: PickedSubchannel | None = None
        self._request = RequestBuffer(encoding)
        self.station = _START
        self._attempts: tuple[Attempt, ...] = ()
        self._attempts_wanted = 0
        self._transparent_retries = NO_RETRIES
        self._commit_hook: Callable[[], None] | None = None
        self._time: CallTime | None = None
        self.deadline_id = 0

    # Called by the front

    def start(self) -> None:
        """Begin; the observer may be called with the end before this returns."""
        self.advance()

    def start_unary(self, message: bytes) -> None:
        """Begin an RPC of which this is the only message."""
        if len(message) > self.limits.request_bytes_max:
            self.start_failed(too_large_to_send(len(message), self.limits.request_bytes_max))
            return
        request = self._request
        request.messages = (message,)
        request.size_bytes = len(message)
        request.is_half_closed = True
        self.advance()

    def start_failed(self, status: Status) -> None:
        """Start and end: the request could not be made."""
        self._channel.on_call_started(self)
        self.finish(StreamEnd(status))

    def end_unstarted(self, end: StreamEnd) -> None:
        """End a call that is never started. Called in any thread."""
        self.observer.on_end(end)

    def time_remaining_s(self) -> float | None:
        """None without a timeout."""
        return None if self._time is None else self._time.remaining_s()

    @property
    def path(self) -> str:
        return self._method.path

    def on_deadline(self) -> None:
        status, time = self._channel.describe_delay(self), self._time
        if time is not None and time.limit_note:
            status = self._channel.describe_limit(status, time.limit_note)
        self.cancel(status)

    # Stations

    def advance(self) -> None:
        """Continue from the current station as far as possible."""
        if self.station is _START:
            # Done first: a timeout that is not a number raises here, before anything has changed.
            if self._timeout_s is not None:
                self._time = CallTime(self, self._channel.stack, self._timeout_s)
                if not self._timeout_s > 0:
                    # Also NaN. Nothing is sent, and the end is delivered as that of any RPC that
                    # fails at once.
                    self._channel.on_call_started(self)
                    self.finish(StreamEnd(DEADLINE_EXCEEDED))
                    return
            self.station = _SELECT if self.credentials is None else Station.CREDENTIALS
            self._channel.on_call_started(self)
            if self.credentials is not None:
                self._request_credentials(self.credentials)
                return
        if self.station is _SELECT and not self._select():
            return
        if self.station is _PICK:
            self._pick()

    def _note_wait(self) -> None:
        """Note that less than the RPC's timeout remains."""
        if self._time is None:
            self._time = CallTime(self, self._channel.stack)
        self._time.has_waited = True

    def on_bug(self, source: str, error: Exception) -> None:
        """End only this RPC: code that it depends on, perhaps the application's, has raised."""
        LOGGER.exception("%s raised for %s", source, self._method.path)
        self.cancel(raised(source, error))

    # Credentials

    def _request_credentials(self, credentials: CallCredentials) -> None:
        self._note_wait()
        path = self._method.path
        url = service_url(self._channel.authority, path)
        if withdraw := credentials.request(url, path, self.on_credentials):
            # Replaced by the selector's hook after the answer.
            self._commit_hook = withdraw

    def on_credentials(self, found: Metadata | Status) -> None:
        if self.station is _ENDED:
            return
        if isinstance(found, Status):
            self.finish(StreamEnd(from_control_plane(found)))
        else:
            self._metadata += found
            self.station = _SELECT
            self.advance()

    # Selection

    def _select(self) -> bool:
        """Select with the current selector, or wait for the first one (A31-03).

        Returns whether the RPC continues at once.
        """
        channel, method, metadata = self._channel, self._method, self._metadata
        selector = channel.config.selector
        if selector is None:
            self._wait_for_selector()
            return False
        try:
            config = selector.select(method.path, metadata)
        except Exception as error:
            self.on_bug("config selector", error)
            return False
        if isinstance(config, Status):
            self.finish(StreamEnd(channel.describe_failure(config, method.path)))
            return False
        self._commit_hook = config.on_commit
        self._generation = channel.config.generation
        self._info = method.plain_info
        if metadata:
            self._info = PickInfo(method.path, metadata, config.attributes)
        elif config.attributes is not method.plain_info.attributes:
            # The next RPC is likely to have the same attributes.
            self._info = method.plain_info = PickInfo(method.path, metadata, config.attributes)
        if not config.method_config.is_plain or channel.config.throttle is not None:
            self._apply(config.method_config)
            if self.station is _ENDED:
                return False
        if config.interception is not None:
            self._intercept(config.interception)
            return False
        self.station = _PICK
        self._attempts_wanted += 1
        return True

    def _wait_for_selector(self) -> None:
        self._note_wait()
        self._channel.wait_for_selector(self)

    def _apply(self, method_config: MethodConfig) -> None:
        if self.wait_for_ready is None:
            self.wait_for_ready = method_config.wait_for_ready
        if method_config.timeout_s is not None:
            # The method's timeout counts from the start of the RPC; the shorter one is used.
            timeout_s, note, time = method_config.timeout_s, method_config.timeout_note, self._time
            if time is None:
                self._time = CallTime(self, self._channel.stack, timeout_s, note)
            elif time.started_s + timeout_s < time.deadline_s:
                time.shorten(self, self._channel.stack.deadlines, timeout_s, note)
        if method_config.has_policy or self._channel.config.throttle is not None:
            self._strategy = self._channel.choose_strategy(self, method_config)
        if method_config.has_size_limits:
            self.limits = self.limits.narrowed(method_config)
            limit = self.limits.request_bytes_max
            if (size := self._request.find_larger(limit)) is not None:
                self.finish(StreamEnd(too_large_to_send(size, limit)))

    def _intercept(self, interception: Interception) -> None:
        """HTTP filters request the first attempt, after their delay."""
        self.station = Station.FILTERS
        self._note_wait()
        self.observer = InterceptedObserver(self, self.observer, interception)
        self.observer.start(self._channel.stack.clock)

    # Picks

    def request_attempt(self) -> None:
        if self.station is _COMMITTED or self.station is _ENDED:
            return
        self.station = _PICK
        self._note_wait()
        self._attempts_wanted += 1
        self.advance()

    def request_mirrored_attempt(self, mirrors: Iterable[Mirror]) -> None:
        """Request the first attempt, then copy the request to these clusters.

        An RPC with a stream of requests is not copied, even if its only message is there already.
        """
        request, copied = self._request, None
        if request.is_unary:
            message = request.messages[0]
            copied = MirroredRequest(self.path, self._metadata, message, request.encoding)
        self.request_attempt()
        if copied is not None:
            for mirror in mirrors:
                mirror.send(self._channel, copied)

    def _pick(self) -> None:
        """Pick for every attempt that is wanted; wait for the next picker if need be."""
        assert self._info is not None, "an RPC is picked for after it was selected"
        picker = self._channel.picks.picker
        while self._attempts_wanted and self.station is _PICK:
            try:
                result = picker.pick(self._info)
            except Exception as error:
                self.on_bug("picker", error)
                return
            if isinstance(result, Complete):
                # Every policy got it from the channel's helper.
                subchannel: PickedSubchannel = result.subchannel  # type: ignore[assignment]
                transport = subchannel.transport
                if transport is None:
                    # The connection is lost, so a new picker follows.
                    self._queue(result)
                    return
                self._picked = subchannel
                self._attempts_wanted -= 1
                if not (authority := result.authority):
                    self._open(transport, result.tracker, self._method.encoder)
                elif (refusal := transport.refuse_authority(authority)) is not None:
                    self._on_failure(StreamEnd(refusal))
                else:
                    self._open(transport, result.tracker, self._method.encoder_for(authority))
            elif isinstance(result, Drop):
                self._drop(from_control_plane(result.status))
            elif isinstance(result, Fail) and not self.wait_for_ready:
                self._attempts_wanted -= 1
                status = self._channel.describe_failure(result.status, self.path)
                self._on_failure(StreamEnd(status))
            else:
                self._queue(result)
                return

    def _drop(self, status: Status) -> None:
        self.cancel(status)

    def _queue(self, result: PickResult) -> None:
        self._note_wait()
        self._channel.picks.add(self, result.status if isinstance(result, Fail) else OK)

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        attempt = self._make_attempt(self)
        self._attempts += (attempt,)
        if tracker is not None:
            attempt.start_tracking(tracker)
        metadata, strategy = self._metadata, self._strategy
        if strategy is not None:
            metadata = strategy.on_attempt_sent(self._transparent_retries) + metadata
        timeout_s, time, has_waited = None, self._time, False
        if time is not None:
            has_waited = time.has_waited
            # If the RPC has not waited, the application's own value: its encoding is cached.
            timeout_s = time.remaining_s() if has_waited else time.timeout_s
        request = self._request
        request.attempts += 1
        block = encoder.block(timeout_s, metadata, request.encoding)
        is_unary = request.is_half_closed and len(request.messages) == 1
        if is_unary and request.encoding == IDENTITY:
            attempt.stream = transport.open_unary(block, attempt, request.messages[0])
        else:
            attempt.stream = transport.open(block, attempt)
            request.send_all(attempt.stream)
        if has_waited or not request.is_half_closed:
            # A writer may wait for this, even if it wrote before there was a stream.
            self.on_attempt_writable()
        if strategy is not None:
            self._commit_if_too_much()

    # The end

    def finish(self, end: StreamEnd) -> None:
        station, channel = self.station, self._channel
        if station is _ENDED:
            return
        self.station = _ENDED
        self._attempts = self._request.messages = ()
        if self.deadline_id:
            channel.stack.deadlines.cancel(self)
        has_hook = self._strategy is not None or self._commit_hook is not None
        if station is not _COMMITTED and has_hook:
            self._release_call()
        if station is _SELECT:
            channel.config.remove(self)
        if channel.picks.calls:
            channel.picks.remove(self)
        channel.on_call_ended(self)
        observer, self.observer = self.observer, NULL_OBSERVER
        observer.on_end(end)


def probe_peer(call: Call, on_answer: Callable[[], None]) -> None:
    """Call back when the peer of a call answers a PING; not at all if its connection is lost."""
    picked = call._picked  # noqa: SLF001 - for control planes only
    if picked is not None and picked.transport is not None:
        picked.transport.probe(on_answer)


def has_undelivered(call: Call) -> bool:
    """Whether a message of the response is incomplete, or has not been delivered."""
    streams = (attempt.stream for attempt in call._attempts)  # noqa: SLF001 - see above
    return any(stream is not None and stream.has_undelivered for stream in streams)


def longest_wait_s(calls: Iterable[object], now_s: float) -> float:
    """The time since the start of the oldest of these calls, which wait; 0 if there is none."""
    # A call that waits has a `CallTime`.
    times = (each._time for each in calls if isinstance(each, Call))  # noqa: SLF001
    return max((now_s - time.started_s for time in times if time is not None), default=0.0)


@frozen
class LastPick:
    """The last pick of a call. Does not refer to its channel."""

    # None if there was none.
    address: Address | None
    # The attributes of the subchannel.
    attributes: Attributes
    attempts_opened: int
    config_generation: int
    # Empty unless the call waits before an attempt: a type of A121, or one of our own.
    waits_for: str = ""


def last_pick_of(call: Call) -> LastPick:
    """May be called in any thread, while the call runs or later."""
    picked = call._picked  # noqa: SLF001 - on request only
    rest = call._request.attempts, call._generation, _describe_wait(call)  # noqa: SLF001
    if picked is None:
        return LastPick(None, EMPTY_ATTRIBUTES, *rest)
    return LastPick(picked.address, picked.attributes, *rest)


def _describe_wait(call: Call) -> str:
    match call.station:
        case Station.CREDENTIALS:
            return "credentials"
        case Station.SELECT:
            return "resolving"
        case Station.FILTERS:
            return "http_filters"
        case Station.PICK if call.is_waiting:
            return "connecting"
        case Station.PICK if not call.is_connected:
            return "retry_backoff"
        case _:
            return ""


def origin_of(call: Call) -> tuple[CallOwner, str, Metadata]:
    """Channel, path and metadata of a call, to explain its end."""
    return call._channel, call._method.path, call._metadata  # noqa: SLF001 - for failed calls only
