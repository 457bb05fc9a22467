"""Calls of a channel that has stats plugins.

Specs: A66 (what an attempt is, and when it begins and ends), A78 and A89 (labels of the pick), A96
(retries), A108 (custom label), A121 (delays; a draft).

A `MeasuredCall` is a `Call` with a meter per attempt. The meter starts when the attempt is
requested, before its pick, counts bytes on its stream, and reports when the attempt ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.channel.call import Call
from proxyless.channel.call_attempts import Station
from proxyless.channel.call_delays import (
    CREDENTIALS,
    FILTERS,
    RESOLVING,
    Delay,
    describe_queued_pick,
    describe_unsent,
)
from proxyless.channel.statuses import CANCELLED
from proxyless.lb.api import PickInfo
from proxyless.lb.attributes import DELAY_KIND, DELAY_PRIORITY, PICK_LABELS
from proxyless.metrics.call_labels import CUSTOM_LABEL

if TYPE_CHECKING:
    from proxyless.base import Metadata, Status
    from proxyless.channel.attempt import Attempt, CallObserver
    from proxyless.channel.call_delays import DelayCause
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.config_selector import Interception
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.method import Method
    from proxyless.lb.api import CallTracker, PickResult
    from proxyless.metrics import CallRecorder
    from proxyless.runtime import Clock
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, RequestEncoder, StreamEnd
    from proxyless.wire.client import CallListener
    from proxyless.wire.flow import SendQueue
    from proxyless.wire.messages import Unpacking


class MeasuredCall(Call):
    """A call whose attempts are measured."""

    __slots__ = ("_delay", "_meters", "_pick_labels", "_recorder", "_retry_delay_s", "_unpicked")

    def __init__(
        self,
        channel: CallOwner,
        method: Method,
        observer: CallObserver,
        *rest: Any,  # noqa: ANN401 - the other arguments of Call
    ) -> None:
        assert method.recorder is not None, "a channel with plugins makes methods with a recorder"
        # First, so that serializing the request is part of the RPC: "payload serialization should
        # be included" - A66
        custom, recorder = CUSTOM_LABEL.get(), method.recorder
        if custom:
            recorder = recorder.labelled(custom)
        measured = MeasuredObserver(observer, recorder, channel.stack.clock)
        super().__init__(channel, method, measured, *rest)
        self._recorder: Final = recorder
        # Labels that policies added to the last pick.
        self._pick_labels: dict[str, str] = {}
        # Attempts that wait for a subchannel, the oldest first; and all others.
        self._unpicked: list[AttemptMeter] = []
        self._meters: list[AttemptMeter] = []
        # Time between attempts.
        self._retry_delay_s = 0.0
        # Present while the RPC waits before its first attempt.
        self._delay: Delay | None = None

    # Delays of the call

    def _request_credentials(self, credentials: CallCredentials) -> None:
        super()._request_credentials(credentials)
        if self.station is Station.CREDENTIALS:
            self._start_delay(CREDENTIALS)

    def on_credentials(self, found: Metadata | Status) -> None:
        self._end_delay()
        super().on_credentials(found)

    def _select(self) -> bool:
        if self._channel.config.selector is not None:
            self._end_delay()
            return super()._select()
        is_selected = super()._select()
        if self._delay is None and not self.is_ended:
            self._start_delay(RESOLVING)
        return is_selected

    def _intercept(self, interception: Interception) -> None:
        super()._intercept(interception)
        if self.station is Station.FILTERS:
            self._start_delay(FILTERS)

    def request_attempt(self) -> None:
        self._end_delay()
        super().request_attempt()

    def _start_delay(self, kind: str) -> None:
        clock = self._channel.stack.clock
        self._delay = Delay((kind, ""), clock, self._recorder.on_call_delay)

    def _end_delay(self) -> None:
        if self._delay is not None:
            delay, self._delay = self._delay, None
            delay.end()

    # Attempts

    def _pick(self) -> None:
        # "Attempts are created after name resolution … but before the LB pick" - A66
        while len(self._unpicked) < self._attempts_wanted:
            self._unpicked.append(self._start_attempt())
            # The labels are those of the previous attempt.
            self._pick_labels.clear()
        # Those of the previous pick.
        self._pick_labels.pop(DELAY_KIND, None)
        self._pick_labels.pop(DELAY_PRIORITY, None)
        info = self._info
        assert info is not None, "an RPC is picked for after it was selected"
        if info.attributes.get(PICK_LABELS) is not self._pick_labels:
            # Calls share the other attributes, but not the labels.
            attributes = info.attributes.with_(PICK_LABELS, self._pick_labels)
            self._info = PickInfo(info.path, info.metadata, attributes)
        super()._pick()

    def _new_meter(self) -> AttemptMeter:
        return AttemptMeter(self._recorder, self._channel.stack.clock)

    def _start_attempt(self) -> AttemptMeter:
        meter = self._new_meter()
        ends_s = [each.ended_s for each in self._meters if each.ended_s is not None]
        if ends_s and len(ends_s) == len(self._meters) and not self._unpicked:
            # "Total time of delay while there is no active attempt" - A96
            self._retry_delay_s += meter.began_s - max(ends_s)
        return meter

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        meter = self._unpicked.pop(0)
        # "the last pick's value should be used" - A89: of this attempt, not of the next one.
        meter.pick_labels = dict(self._pick_labels)
        self._meters.append(meter)
        meter.end_delay()
        measured: Any = MeasuredTransport(transport, meter)
        super()._open(measured, tracker, encoder)
        if meter.stream is not None and (cause := describe_unsent(meter.stream)) is not None:
            meter.start_delay(cause)

    def _queue(self, result: PickResult) -> None:
        super()._queue(result)
        cause = describe_queued_pick(result, self._pick_labels)
        for meter in self._unpicked:
            meter.start_delay(cause)

    def _on_failure(self, end: StreamEnd) -> None:
        # There is one more than requested if its pick failed.
        if len(self._unpicked) > self._attempts_wanted:
            self._end_unpicked(self._unpicked.pop(0), end.status)
        super()._on_failure(end)

    def commit(self, attempt: Attempt) -> None:
        super().commit(attempt)
        self._end_all_unpicked(CANCELLED)

    def cancel(self, status: Status = CANCELLED) -> None:
        if not self.is_ended:
            # First, so that the application finds the attempts counted at the end of its RPC.
            self._end_all(status)
        super().cancel(status)

    def finish(self, end: StreamEnd) -> None:
        if not self.is_ended:
            # The meter of the attempt that ended the RPC has reported already.
            self._end_all(CANCELLED)
            self._end_delay()
        super().finish(end)

    def _end_all(self, status: Status) -> None:
        attempts = len(self._meters) + len(self._unpicked)
        if attempts > 1:
            self._record_retries(attempts)
        self._end_all_unpicked(status)
        meters, self._meters = self._meters, []
        for meter in meters:
            meter.end(status)

    def _end_all_unpicked(self, status: Status) -> None:
        unpicked, self._unpicked = self._unpicked, []
        for meter in unpicked:
            self._end_unpicked(meter, status)

    def _end_unpicked(self, meter: AttemptMeter, status: Status) -> None:
        meter.pick_labels = self._pick_labels
        meter.end(status)
        self._meters.append(meter)

    def _record_retries(self, attempts: int) -> None:
        transparent = self._transparent_retries.count
        others = attempts - 1 - transparent
        is_hedging = self._strategy is not None and self._strategy.is_hedging
        self._recorder.on_retried_call_end(
            retries=0 if is_hedging else others,
            transparent_retries=transparent,
            hedges=others if is_hedging else 0,
            # A transparent retry has no delay but that of our own code.
            delay_s=self._retry_delay_s if others else 0.0,
        )


class AttemptMeter:
    """Duration, bytes and delays of one attempt."""

    __slots__ = (
        "_clock",
        "_delay",
        "_recorder",
        "began_s",
        "ended_s",
        "pick_labels",
        "queue",
        "received_bytes",
        "sent_bytes",
        "stream",
        "was_delayed",
    )

    def __init__(self, recorder: CallRecorder, clock: Clock) -> None:
        # Fixed at construction.
        self._recorder: Final = recorder
        self._clock: Final = clock
        self.began_s: Final = clock.measured_s()
        # Set by the call.
        self.pick_labels: dict[str, str] = {}
        # Set by the transport, stream and listener below.
        self.stream: ClientStream | None = None
        # Messages that wait for the peer's window. Unlike the stream, it keeps its size after the
        # end.
        self.queue: SendQueue | None = None
        self.sent_bytes = 0
        self.received_bytes = 0
        # None while the attempt is active.
        self.ended_s: float | None = None
        # Present while the attempt waits for its pick, or to send its first messages.
        self._delay: Delay | None = None
        self.was_delayed = False
        recorder.on_attempt_start()

    def on_sent(self, size: int, *, is_compressed: bool = False) -> None:
        self.sent_bytes += size

    def on_received(self, size: int) -> None:
        self.received_bytes += size

    def start_delay(self, cause: DelayCause) -> None:
        """Start a delay, or continue the current one if it has the same kind."""
        delay, self.was_delayed = self._delay, True
        if delay is not None and delay.kind == cause[0]:
            delay.on_cause(cause)
        else:
            self.end_delay()
            self._delay = self._new_delay(cause)

    def _new_delay(self, cause: DelayCause) -> Delay:
        return Delay(cause, self._clock, self._recorder.on_attempt_delay)

    def end_delay(self) -> None:
        """Idempotent."""
        if self._delay is not None:
            delay, self._delay = self._delay, None
            delay.end()

    def end(self, status: Status) -> None:
        """Report the attempt. Idempotent."""
        if self.ended_s is not None:
            return
        self.end_delay()
        self.ended_s = self._clock.measured_s()
        stream, sent_bytes, received_bytes = self.stream, self.sent_bytes, self.received_bytes
        if stream is not None:
            received_bytes -= stream.unpacked_bytes
            if not stream.id:
                # The stream ended while it waited to be opened: nothing was sent.
                sent_bytes = 0
        if self.queue is not None:
            # The size includes the prefix of each message that is not begun; usually there is none.
            sent_bytes = max(sent_bytes - self.queue.size, 0)
        duration_s = self.ended_s - self.began_s
        self._recorder.on_attempt_end(
            status.code.name, duration_s, sent_bytes, received_bytes, self.pick_labels
        )


class MeasuredObserver:
    """Reports the duration and status of an RPC, as the application gets them after filters."""

    __slots__ = ("_began_s", "_clock", "_observer", "_recorder")

    def __init__(self, observer: CallObserver, recorder: CallRecorder, clock: Clock) -> None:
        self._observer: Final = observer
        self._recorder: Final = recorder
        self._clock: Final = clock
        self._began_s: Final = clock.measured_s()

    def on_head(self, metadata: Metadata) -> None:
        self._observer.on_head(metadata)

    def choose_unpacking(self) -> Unpacking:
        return self._observer.choose_unpacking()

    def on_message(self, message: bytes) -> None:
        self._observer.on_message(message)

    def on_writable(self) -> None:
        self._observer.on_writable()

    def on_end(self, end: StreamEnd) -> None:
        self._recorder.on_call_end(end.status.code.name, self._clock.measured_s() - self._began_s)
        self._observer.on_end(end)


class MeasuredTransport:
    """The connection of one attempt."""

    __slots__ = ("_meter", "_transport")

    def __init__(self, transport: ClientTransport, meter: AttemptMeter) -> None:
        self._transport: Final = transport
        self._meter: Final = meter

    def open(self, block: bytes, attempt: Attempt) -> MeasuredStream:
        stream = self._transport.open(block, MeasuredListener(attempt, self._meter))
        self._meter.stream = stream
        return MeasuredStream(stream, self._meter)

    def open_unary(self, block: bytes, attempt: Attempt, message: bytes) -> ClientStream:
        listener = MeasuredListener(attempt, self._meter)
        stream = self._transport.open_unary(block, listener, message)
        # Afterwards, because a stream that has ended by now has sent nothing.
        self._meter.stream = stream
        self._meter.queue = stream.queue
        self._meter.on_sent(len(message))
        return stream


class MeasuredStream:
    """A stream that counts sent messages."""

    __slots__ = ("_stream", "cancel", "close_sending", "hold", "meter", "release")

    def __init__(self, stream: ClientStream, meter: AttemptMeter) -> None:
        self._stream: Final = stream
        self.meter: Final = meter
        self.cancel: Final = stream.cancel
        self.close_sending: Final = stream.close_sending
        self.hold: Final = stream.hold
        self.release: Final = stream.release

    @property
    def is_ended(self) -> bool:
        return self._stream.is_ended

    def keep_packed(self, unpacking: Unpacking) -> None:
        self._stream.keep_packed(unpacking)

    def request_message(self) -> None:
        self._stream.request_message()

    @property
    def undelivered_end(self) -> StreamEnd | None:
        return self._stream.undelivered_end

    @property
    def is_writable(self) -> bool:
        return self._stream.is_writable

    def send_message(self, message: bytes, *, is_compressed: bool, end_stream: bool) -> None:
        self.meter.on_sent(len(message), is_compressed=is_compressed)
        self._stream.send_message(message, is_compressed=is_compressed, end_stream=end_stream)
        self.meter.queue = self._stream.queue


class MeasuredListener:
    """Counts received messages; ends the meter before the call is notified."""

    __slots__ = ("_listener", "_meter", "on_head")

    def __init__(self, listener: CallListener, meter: AttemptMeter) -> None:
        self._listener: Final = listener
        self._meter: Final = meter
        self.on_head: Final = listener.on_head

    def on_writable(self) -> None:
        # The first messages were sent, if they had to wait.
        self._meter.end_delay()
        self._listener.on_writable()

    def on_message(self, message: bytes) -> None:
        self._meter.on_received(len(message))
        self._listener.on_message(message)

    def on_end(self, end: StreamEnd) -> None:
        self._meter.end(end.status)
        self._listener.on_end(end)
