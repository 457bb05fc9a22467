"""Attempts of measured calls: their durations, bytes and delays.

Specs: A66 (what an attempt is, and when it begins and ends), A78 and A89 (labels of the pick), A121
(delays; a draft).

A `MeasuredAttempt` is created when the attempt is requested, before its pick; it counts the bytes
of its stream, and reports when it ends. Nothing is between it and the stream of a unary call, since
that would cost every RPC an object; messages of other calls are counted by a `MeasuredStream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import StatusCode
from proxyless.channel.attempt import Attempt, AttemptOwner
from proxyless.channel.call_delays import Delay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Status
    from proxyless.channel.call_delays import DelayCause
    from proxyless.metrics import CallRecorder
    from proxyless.runtime import Clock
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, StreamEnd
    from proxyless.wire.flow import SendQueue
    from proxyless.wire.messages import Unpacking

# By code. In Python 3.11 the name of an enum's member is found by a function.
CODE_NAMES: Final = tuple(code.name for code in StatusCode)
NO_LABELS: Final[Mapping[str, str]] = {}


class MeasuredOwner(AttemptOwner, Protocol):
    """The attributes of a measured call that its attempts use."""

    @property
    def clock(self) -> Clock: ...

    @property
    def recorder(self) -> CallRecorder: ...


class MeasuredAttempt(Attempt):
    """An attempt that reports its duration, bytes and delays."""

    __slots__ = (
        "_delay",
        "_measured_stream",
        "began_s",
        "ended_s",
        "pick_labels",
        "queue",
        "received_bytes",
        "sent_bytes",
        "was_delayed",
    )

    _call: MeasuredOwner

    def __init__(self, call: MeasuredOwner) -> None:
        # Attributes of the base class: its `__init__` would cost every RPC a function call.
        self._call = call
        self._tracker = self._head_tracker = self.stream = self._end = None
        # Fixed at construction.
        self.began_s: Final = call.clock.measured_s()
        # Set by the call.
        self.pick_labels = NO_LABELS
        # The stream itself, if `stream` counts its messages.
        self._measured_stream: ClientStream | None = None
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

    @property
    def wire_stream(self) -> ClientStream | None:
        return self._measured_stream or self.stream

    @wire_stream.setter
    def wire_stream(self, stream: ClientStream) -> None:
        self._measured_stream = stream

    # Called by the wire

    def on_message(self, message: bytes) -> None:
        self.received_bytes += len(message)
        Attempt.on_message(self, message)

    def on_writable(self) -> None:
        # The first messages were sent, if they had to wait.
        self.end_delay()
        super().on_writable()

    def on_end(self, end: StreamEnd) -> None:
        # Before the call is notified.
        self.end(end.status)
        Attempt.on_end(self, end)

    # Called by the call and by a `MeasuredStream`

    def on_sent(self, size: int, *, is_compressed: bool = False) -> None:
        self.sent_bytes += size

    def start_delay(self, cause: DelayCause) -> None:
        """Start a delay, or continue the current one if it has the same kind."""
        delay, self.was_delayed = self._delay, True
        if delay is not None and delay.kind == cause[0]:
            delay.on_cause(cause)
        else:
            self.end_delay()
            self._delay = self._new_delay(cause)

    def _new_delay(self, cause: DelayCause) -> Delay:
        return Delay(cause, self._call.clock, self._call.recorder.on_attempt_delay)

    def end_delay(self) -> None:
        """Idempotent."""
        if self._delay is not None:
            delay, self._delay = self._delay, None
            delay.end()

    def end(self, status: Status) -> None:
        """Report the attempt. Idempotent."""
        if self.ended_s is not None:
            return
        if self._delay is not None:
            self.end_delay()
        call = self._call
        ended_s = self.ended_s = call.clock.measured_s()
        stream = self._measured_stream or self.stream
        sent_bytes, received_bytes = self.sent_bytes, self.received_bytes
        if stream is not None:
            received_bytes -= stream.unpacked_bytes
            if not stream.id:
                # The stream ended while it waited to be opened: nothing was sent.
                sent_bytes = 0
        if self.queue is not None:
            # The size includes the prefix of each message that is not begun; usually there is none.
            sent_bytes = max(sent_bytes - self.queue.size, 0)
        call.recorder.on_attempt_end(
            CODE_NAMES[status.code],
            ended_s - self.began_s,
            sent_bytes,
            received_bytes,
            self.pick_labels,
        )


class MeasuredTransport:
    """The connection of one attempt whose messages are counted one by one."""

    __slots__ = ("_transport",)

    def __init__(self, transport: ClientTransport) -> None:
        self._transport: Final = transport

    def open(self, block: bytes, attempt: MeasuredAttempt) -> MeasuredStream:
        stream = self._transport.open(block, attempt)
        attempt.wire_stream = stream
        return MeasuredStream(stream, attempt)


class MeasuredStream:
    """A stream that counts sent messages."""

    __slots__ = ("_stream", "cancel", "close_sending", "hold", "meter", "release")

    def __init__(self, stream: ClientStream, meter: MeasuredAttempt) -> None:
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
