"""Calls of a channel that has stats plugins.

Specs: A66 (what an attempt is, and when it begins and ends), A78 and A89 (labels of the pick).

A `MeasuredCall` is a `Call` with a meter per attempt. The meter starts when the attempt is
requested, before its pick, counts bytes on its stream, and reports when the attempt ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.channel.call import Call
from proxyless.channel.statuses import CANCELLED
from proxyless.lb.api import PickInfo
from proxyless.lb.attributes import PICK_LABELS

if TYPE_CHECKING:
    from proxyless.base import Metadata, Status
    from proxyless.channel.attempt import Attempt, CallObserver
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.method import Method
    from proxyless.lb.api import CallTracker
    from proxyless.metrics import CallRecorder
    from proxyless.runtime import Clock
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, RequestEncoder, StreamEnd
    from proxyless.wire.client import CallListener
    from proxyless.wire.flow import SendQueue
    from proxyless.wire.messages import Unpacking


class MeasuredCall(Call):
    """A call whose attempts are measured."""

    __slots__ = ("_meters", "_pick_labels", "_recorder", "_unpicked")

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
        measured = MeasuredObserver(observer, method.recorder, channel.stack.clock)
        super().__init__(channel, method, measured, *rest)
        self._recorder: Final = method.recorder
        # Labels that policies added to the last pick.
        self._pick_labels: dict[str, str] = {}
        # Attempts without a subchannel, the oldest first; and those with one.
        self._unpicked: list[AttemptMeter] = []
        self._meters: list[AttemptMeter] = []

    def _pick(self) -> None:
        # "Attempts are created after name resolution … but before the LB pick" - A66
        while len(self._unpicked) < self._attempts_wanted:
            self._unpicked.append(AttemptMeter(self._recorder, self._channel.stack.clock))
            # The labels are those of the previous attempt.
            self._pick_labels.clear()
        info = self._info
        assert info is not None, "an RPC is picked for after it was selected"
        if info.attributes.get(PICK_LABELS) is not self._pick_labels:
            # Calls share the other attributes, but not the labels.
            attributes = info.attributes.with_(PICK_LABELS, self._pick_labels)
            self._info = PickInfo(info.path, info.metadata, attributes)
        super()._pick()

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        meter = self._unpicked.pop(0)
        # "the last pick's value should be used" - A89: of this attempt, not of the next one.
        meter.pick_labels = dict(self._pick_labels)
        self._meters.append(meter)
        measured: Any = MeasuredTransport(transport, meter)
        super()._open(measured, tracker, encoder)

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
        super().finish(end)

    def _end_all(self, status: Status) -> None:
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


class AttemptMeter:
    """Duration and bytes of one attempt."""

    __slots__ = (
        "_began_s",
        "_clock",
        "_is_ended",
        "_recorder",
        "pick_labels",
        "queue",
        "received_bytes",
        "sent_bytes",
        "stream",
    )

    def __init__(self, recorder: CallRecorder, clock: Clock) -> None:
        # Fixed at construction.
        self._recorder: Final = recorder
        self._clock: Final = clock
        self._began_s: Final = clock.measured_s()
        # Set by the call.
        self.pick_labels: dict[str, str] = {}
        # Set by the transport, stream and listener below.
        self.stream: ClientStream | None = None
        # Messages that wait for the peer's window. Unlike the stream, it keeps its size after the
        # end.
        self.queue: SendQueue | None = None
        self.sent_bytes = 0
        self.received_bytes = 0
        self._is_ended = False
        recorder.on_attempt_start()

    def end(self, status: Status) -> None:
        """Report the attempt. Idempotent."""
        if self._is_ended:
            return
        self._is_ended = True
        stream, sent_bytes, received_bytes = self.stream, self.sent_bytes, self.received_bytes
        if stream is not None:
            received_bytes -= stream.unpacked_bytes
            if not stream.id:
                # The stream ended while it waited to be opened: nothing was sent.
                sent_bytes = 0
        if self.queue is not None:
            # The size includes the prefix of each message that is not begun; usually there is none.
            sent_bytes = max(sent_bytes - self.queue.size, 0)
        duration_s = self._clock.measured_s() - self._began_s
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
        self._meter.sent_bytes += len(message)
        return stream


class MeasuredStream:
    """A stream that counts sent messages."""

    __slots__ = ("_meter", "_stream", "cancel", "close_sending", "hold", "release")

    def __init__(self, stream: ClientStream, meter: AttemptMeter) -> None:
        self._stream: Final = stream
        self._meter: Final = meter
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
        self._meter.sent_bytes += len(message)
        self._stream.send_message(message, is_compressed=is_compressed, end_stream=end_stream)
        self._meter.queue = self._stream.queue


class MeasuredListener:
    """Counts received messages; ends the meter before the call is notified."""

    __slots__ = ("_listener", "_meter", "on_head", "on_writable")

    def __init__(self, listener: CallListener, meter: AttemptMeter) -> None:
        self._listener: Final = listener
        self._meter: Final = meter
        self.on_head: Final = listener.on_head
        self.on_writable: Final = listener.on_writable

    def on_message(self, message: bytes) -> None:
        self._meter.received_bytes += len(message)
        self._listener.on_message(message)

    def on_end(self, end: StreamEnd) -> None:
        self._meter.end(end.status)
        self._listener.on_end(end)
