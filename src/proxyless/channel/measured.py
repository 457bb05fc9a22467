"""How are RPCs measured, on channels that somebody wants to know it of?

Specs: A66 (what an attempt is, and when it begins and ends), A78 and A89 (labels of the pick).

A channel without plugins makes `Call`s, and nothing here runs. One with plugins makes
`MeasuredCall`s, which are the same but for a meter per attempt: it starts when the attempt is
wanted, before its pick, listens on its stream, and is read when the attempt ends, with a stream or
without one.
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
    from proxyless.wire import ClientStream, RequestEncoder, ResponseBlock, StreamEnd
    from proxyless.wire.client import CallListener
    from proxyless.wire.flow import SendQueue


class MeasuredCall(Call):
    """An RPC of which plugins are told. Driven as every call is."""

    __slots__ = ("_meters", "_pick_labels", "_recorder", "_unpicked")

    def __init__(
        self,
        channel: CallOwner,
        method: Method,
        observer: CallObserver,
        *said: Any,  # noqa: ANN401 - whatever else a call takes
    ) -> None:
        assert method.recorder is not None, "a channel with plugins makes methods with a recorder"
        # First, so that serializing the request is part of the RPC: "payload serialization should
        # be included" - A66
        measured = MeasuredObserver(observer, method.recorder, channel.stack.clock)
        super().__init__(channel, method, measured, *said)
        self._recorder: Final = method.recorder
        # What policies said about the last pick, by the name of the label.
        self._pick_labels: dict[str, str] = {}
        # Of attempts that have no subchannel yet, the oldest first; and of those that have one.
        self._unpicked: list[AttemptMeter] = []
        self._meters: list[AttemptMeter] = []

    # Attempts begin

    def _pick(self) -> None:
        # "Attempts are created after name resolution … but before the LB pick" - A66
        while len(self._unpicked) < self._attempts_wanted:
            self._unpicked.append(AttemptMeter(self._recorder, self._channel.stack.clock))
            # What was said about the attempt before is not about this one.
            self._pick_labels.clear()
        info = self._info
        assert info is not None, "an RPC is picked for after it was selected"
        if info.attributes.get(PICK_LABELS) is not self._pick_labels:
            # Calls share what they say to pickers, but not what pickers say to them.
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

    # Attempts end: with their stream (`MeasuredListener`), or here

    def _on_failure(self, end: StreamEnd) -> None:
        # One more than is wanted: the pick for it failed.
        if len(self._unpicked) > self._attempts_wanted:
            self._end_unpicked(self._unpicked.pop(0), end.status)
        super()._on_failure(end)

    def commit(self, attempt: Attempt) -> None:
        super().commit(attempt)
        self._end_all_unpicked(CANCELLED)

    def cancel(self, status: Status = CANCELLED) -> None:
        if not self.is_ended:
            # Before the application hears of it, so that who looks then finds them counted.
            self._end_all(status)
        super().cancel(status)

    def finish(self, end: StreamEnd) -> None:
        if not self.is_ended:
            # The attempt whose end this is has told already; the others are not needed.
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
    """What one attempt comes to. Driven by its call and its stream."""

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
        # The call's to set.
        self.pick_labels: dict[str, str] = {}
        # Counted on the way to the wire and back.
        self.stream: ClientStream | None = None
        # Where the last message waits for the peer's window, if it does. It knows how much of it
        # is left when the stream, which has ended, does not any more.
        self.queue: SendQueue | None = None
        self.sent_bytes = 0
        self.received_bytes = 0
        self._is_ended = False
        recorder.on_attempt_start()

    def end(self, status: Status) -> None:
        """The attempt is over. Only the first time counts."""
        if self._is_ended:
            return
        self._is_ended = True
        stream, sent_bytes, received_bytes = self.stream, self.sent_bytes, self.received_bytes
        if stream is not None:
            received_bytes -= stream.unpacked_bytes
            if not stream.id:
                # It waited for its turn until its end: nothing left.
                sent_bytes = 0
        if self.queue is not None:
            # With the prefix of each message that has not begun: usually there is none.
            sent_bytes = max(sent_bytes - self.queue.size, 0)
        duration_s = self._clock.measured_s() - self._began_s
        self._recorder.on_attempt_end(
            status.code.name, duration_s, sent_bytes, received_bytes, self.pick_labels
        )


class MeasuredObserver:
    """Tells how long an RPC took, before the application hears of its end.

    Closest to the application: what filters make of the end is what counts.
    """

    __slots__ = ("_began_s", "_clock", "_observer", "_recorder")

    def __init__(self, observer: CallObserver, recorder: CallRecorder, clock: Clock) -> None:
        self._observer: Final = observer
        self._recorder: Final = recorder
        self._clock: Final = clock
        self._began_s: Final = clock.measured_s()

    def on_head(self, metadata: Metadata) -> None:
        self._observer.on_head(metadata)

    def on_message(self, message: bytes) -> None:
        self._observer.on_message(message)

    def on_writable(self) -> None:
        self._observer.on_writable()

    def on_end(self, end: StreamEnd) -> None:
        self._recorder.on_call_end(end.status.code.name, self._clock.measured_s() - self._began_s)
        self._observer.on_end(end)


# ---------------------------------------------------------------------------------------------
# Between an attempt and the wire


class MeasuredTransport:
    """The connection that one attempt was given. Driven by its call."""

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
        # Now, because a stream that has ended by this time has sent nothing.
        self._meter.stream = stream
        self._meter.queue = stream.queue
        self._meter.sent_bytes += len(message)
        return stream


class MeasuredStream:
    """A stream whose messages are counted. Driven by its call."""

    __slots__ = ("_meter", "_stream", "close_sending", "hold", "release")

    def __init__(self, stream: ClientStream, meter: AttemptMeter) -> None:
        self._stream: Final = stream
        self._meter: Final = meter
        self.close_sending: Final = stream.close_sending
        self.hold: Final = stream.hold
        self.release: Final = stream.release

    @property
    def is_ended(self) -> bool:
        return self._stream.is_ended

    @property
    def is_writable(self) -> bool:
        return self._stream.is_writable

    def send_message(self, message: bytes, *, is_compressed: bool, end_stream: bool) -> None:
        self._meter.sent_bytes += len(message)
        self._stream.send_message(message, is_compressed=is_compressed, end_stream=end_stream)
        self._meter.queue = self._stream.queue

    def cancel(self, status: Status) -> None:
        self._stream.cancel(status)


class MeasuredListener:
    """Counts what comes, and notes the end before the call does. Driven by the wire."""

    __slots__ = ("_listener", "_meter")

    def __init__(self, listener: CallListener, meter: AttemptMeter) -> None:
        self._listener: Final = listener
        self._meter: Final = meter

    def on_head(self, head: ResponseBlock) -> None:
        self._listener.on_head(head)

    def on_message(self, message: bytes) -> None:
        self._meter.received_bytes += len(message)
        self._listener.on_message(message)

    def on_writable(self) -> None:
        self._listener.on_writable()

    def on_end(self, end: StreamEnd) -> None:
        self._meter.end(end.status)
        self._listener.on_end(end)
