"""Calls of a channel that has a stats plugin which traces them.

Specs: A72 (what is recorded of calls and attempts, and when), A121 (delays; a draft).

`TracedCalls` creates the calls, in the thread and the context of the application. A call that a
plugin records is a `TracedCall`: a `MeasuredCall` whose attempts also call their tracers. One that
is not sampled only sends the metadata that propagates its context. It is otherwise a plain call, or
a measured one if a plugin measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.base import EMPTY_METADATA
from proxyless.channel.call import Call
from proxyless.channel.call_delays import CREDENTIALS, RESOLVING
from proxyless.channel.measured_attempt import MeasuredAttempt
from proxyless.channel.measured_call import MeasuredCall
from proxyless.channel.request_buffer import RequestBuffer
from proxyless.metrics.plugins import call_plugin, record_safely
from proxyless.metrics.tracers import (
    AttemptOrigin,
    PickedBackend,
    replace_metadata,
    start_tracers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.base import Metadata, Status
    from proxyless.channel.attempt import CallObserver
    from proxyless.channel.call_delays import Delay, DelayCause
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.method import Method
    from proxyless.lb.api import CallTracker
    from proxyless.metrics.tracers import AttemptTracer, CallTracer, DelayTracer
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, RequestEncoder, StreamEnd


class TracedCalls:
    """Creates the calls of a channel. Used in place of their type."""

    __slots__ = ("_measured", "_plain", "_traced")

    def __init__(
        self,
        traced: type[TracedCall] | None = None,
        plain: type[PropagatingCall] | None = None,
        measured: type[MeasuredPropagatingCall] | None = None,
    ) -> None:
        self._traced: Final = traced or TracedCall
        self._plain: Final = plain or PropagatingCall
        self._measured: Final = measured or MeasuredPropagatingCall

    def __call__(
        self,
        channel: CallOwner,
        method: Method,
        observer: CallObserver,
        *rest: Any,  # noqa: ANN401 - the other arguments of Call
        **options: Any,  # noqa: ANN401
    ) -> Call:
        assert method.recorder is not None, "a channel with plugins makes methods with a recorder"
        tracers, propagated = start_tracers(method.tracings)
        if tracers:
            options["tracers"], options["propagated"] = tracers, propagated
            return self._traced(channel, method, observer, *rest, **options)
        is_measured = method.recorder.is_measuring
        make_call: Callable[..., PropagatingCall | MeasuredPropagatingCall]
        make_call = self._measured if is_measured else self._plain
        call = make_call(channel, method, observer, *rest, **options)
        call.propagated = propagated
        return call

    def extended(self, extend: Callable[[type[Call]], Any]) -> TracedCalls:
        """With other types of calls."""
        return TracedCalls(extend(self._traced), extend(self._plain), extend(self._measured))


class _ContextSender(Call):
    """Adds the context of a trace to the metadata of a call, when its first attempt is opened."""

    __slots__ = ()

    # Set by `TracedCalls`; empty after the first attempt.
    propagated: Metadata

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        if added := self.propagated:
            own = self._metadata
            self.propagated = EMPTY_METADATA  # type: ignore[misc] # a slot of the subclasses
            self._metadata = replace_metadata(own, added) if own else added
        super()._open(transport, tracker, encoder)


class PropagatingCall(_ContextSender):
    """A call that is neither recorded nor measured, and sends the context of its trace."""

    __slots__ = ("propagated",)


class MeasuredPropagatingCall(_ContextSender, MeasuredCall):
    """A call that is measured and not recorded, and sends the context of its trace."""

    __slots__ = ("propagated",)


class TracedCall(MeasuredCall):
    """A call that is traced, and so are its attempts."""

    __slots__ = (
        "_attempts_begun",
        "_own_metadata",
        "_propagated",
        "_tracers",
        "_transparent_begun",
    )

    def __init__(
        self,
        channel: CallOwner,
        method: Method,
        observer: CallObserver,
        *rest: Any,  # noqa: ANN401 - the other arguments of Call
        tracers: tuple[CallTracer, ...],
        propagated: Metadata,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(channel, method, TracedObserver(observer, tracers), *rest, **options)
        self._tracers: Final = tracers
        # Metadata of plugins that do not record this call.
        self._propagated: Final = propagated
        self._request = TracedRequest(self._request.encoding)
        # The metadata without the entries that tracers of attempts add. Set with the first attempt.
        self._own_metadata: Metadata | None = None
        # Transparent retries are counted apart.
        self._attempts_begun = 0
        self._transparent_begun = 0

    def start(self) -> None:
        self._trace_start()
        super().start()

    def start_unary(self, message: bytes) -> None:
        self._trace_start()
        super().start_unary(message)

    def _trace_start(self) -> None:
        is_in_session = getattr(self.observer, "is_in_session", False)
        for tracer in self._tracers:
            record_safely(tracer.on_start, is_in_session)

    # Delays

    def _start_delay(self, kind: str) -> None:
        super()._start_delay(kind)
        if self._delay is not None:
            cause = (kind, self._describe_delay(kind))
            self._delay.tracers = start_delay_tracers(self._tracers, cause)

    def _describe_delay(self, kind: str) -> str:
        channel = self._channel
        if kind == RESOLVING:
            target = channel.options.metrics.target
            return channel.describe_wait().details or f"{target} is not resolved yet"
        waits = "call credentials have no metadata yet"
        return waits if kind == CREDENTIALS else "HTTP filters delay the RPC"

    def _end_delay(self) -> None:
        delay = self._delay
        if delay is not None and delay.kind == RESOLVING and self._channel.config.selector:
            for tracer in self._tracers:
                record_safely(tracer.on_resolved)
        super()._end_delay()

    # Attempts

    def _new_attempt(self, _call: Call) -> TracedAttempt:
        attempt = TracedAttempt(self)
        origin = self._next_origin()
        started = (call_plugin(None, each.start_attempt, origin) for each in self._tracers)
        attempt.tracers = tuple(tracer for tracer in started if tracer is not None)
        return attempt

    def _next_origin(self) -> AttemptOrigin:
        transparent = self._transparent_retries.count
        is_transparent = transparent > self._transparent_begun
        self._transparent_begun = transparent
        if not is_transparent:
            self._attempts_begun += 1
        return AttemptOrigin(self._attempts_begun - 1, is_transparent)

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        attempt: Any = self._unpicked[0]
        self._trace_pick(attempt)
        super()._open(transport, tracker, encoder)
        attempt.trace_unary()

    def _trace_pick(self, attempt: TracedAttempt) -> None:
        assert self._picked is not None, "an attempt is opened after its pick"
        backend = PickedBackend(self._picked.address, self._take_labels(), self._generation)
        added = self._propagated
        for tracer in attempt.tracers:
            record_safely(tracer.on_picked, backend, attempt.was_delayed)
            added = replace_metadata(added, call_plugin(EMPTY_METADATA, tracer.metadata))
        if self._own_metadata is None:
            self._own_metadata = self._metadata
        if added:
            self._metadata = replace_metadata(self._own_metadata, added)

    def _drop(self, status: Status) -> None:
        for tracer in self._tracers:
            record_safely(tracer.on_drop, status)
        super()._drop(status)


def start_delay_tracers(
    tracers: Sequence[CallTracer | AttemptTracer], cause: DelayCause
) -> tuple[DelayTracer, ...]:
    """The tracers of one delay."""
    started = (call_plugin(None, each.start_delay, *cause) for each in tracers)
    return tuple(tracer for tracer in started if tracer is not None)


class TracedAttempt(MeasuredAttempt):
    """An attempt that also calls its tracers."""

    __slots__ = ("_unpacked_bytes", "message_bytes", "tracers")

    def __init__(self, call: TracedCall) -> None:
        super().__init__(call)
        # Set by the call.
        self.tracers: tuple[AttemptTracer, ...] = ()
        # Size of the message that is sent next, before it is compressed.
        self.message_bytes = 0
        # Size of the received messages, minus their size on the wire.
        self._unpacked_bytes = 0

    def on_sent(self, size: int, *, is_compressed: bool = False) -> None:
        super().on_sent(size, is_compressed=is_compressed)
        if self.ended_s is not None:
            return
        sizes = (self.message_bytes, size) if is_compressed else (size, None)
        for tracer in self.tracers:
            record_safely(tracer.on_sent, *sizes)

    def trace_unary(self) -> None:
        """The stream is opened: its message was sent with it, unless messages are counted."""
        if self._measured_stream is None and self.ended_s is None and self.stream is not None:
            for tracer in self.tracers:
                record_safely(tracer.on_sent, self.sent_bytes, None)

    def on_message(self, message: bytes) -> None:
        stream, size = self.wire_stream, len(message)
        unpacked_bytes = 0 if stream is None else stream.unpacked_bytes
        grown, self._unpacked_bytes = unpacked_bytes - self._unpacked_bytes, unpacked_bytes
        for tracer in self.tracers:
            record_safely(tracer.on_received, size, size - grown if grown else None)
        super().on_message(message)

    def _new_delay(self, cause: DelayCause) -> Delay:
        delay = super()._new_delay(cause)
        delay.tracers = start_delay_tracers(self.tracers, cause)
        return delay

    def end(self, status: Status) -> None:
        if self.ended_s is None:
            super().end(status)
            for tracer in self.tracers:
                record_safely(tracer.end, status)


class TracedRequest(RequestBuffer):
    """Request messages whose sizes are reported before they are compressed."""

    __slots__ = ()

    def send(self, stream: ClientStream, message: bytes, *, end_stream: bool = False) -> None:
        # A `MeasuredStream`, except after the end of the RPC.
        meter = getattr(stream, "meter", None)
        if meter is not None:
            meter.message_bytes = len(message)
        super().send(stream, message, end_stream=end_stream)


class TracedObserver:
    """Ends the tracers of a call with the status that the application gets, after filters."""

    __slots__ = (
        "_observer",
        "_tracers",
        "choose_unpacking",
        "on_head",
        "on_message",
        "on_writable",
    )

    def __init__(self, observer: CallObserver, tracers: Sequence[CallTracer]) -> None:
        self._observer: Final = observer
        self._tracers: Final = tracers
        self.on_head: Final = observer.on_head
        self.choose_unpacking: Final = observer.choose_unpacking
        self.on_message: Final = observer.on_message
        self.on_writable: Final = observer.on_writable

    def on_end(self, end: StreamEnd) -> None:
        for tracer in self._tracers:
            record_safely(tracer.end, end.status)
        self._observer.on_end(end)
