"""Spans of calls, attempts and delays.

Specs: A72 (names, attributes, events and status of the spans), A121 (spans of delays; a draft).

A call has the span `Sent.<method>`, a child of the application's current span; each attempt has the
span `Attempt.<method>`, a child of it, whose context is sent to the server. If the current span is
that of OpenTelemetry's own gRPC client interceptor, it takes the place of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.context import (
    _SUPPRESS_INSTRUMENTATION_KEY,
    get_current,
    get_value,
)
from opentelemetry.trace import (
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)

from proxyless.base import EMPTY_METADATA, one_line
from proxyless.metrics.instruments import BACKEND_SERVICE
from proxyless.metrics.instruments import LOCALITY as LOCALITY_LABEL
from proxyless.otel.propagation import span_to_metadata, to_metadata
from proxyless.otel.sampling import find_call_sampler

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

    from proxyless.base import Metadata
    from proxyless.base import Status as RpcStatus
    from proxyless.metrics.tracers import AttemptOrigin, PickedBackend

# Attributes of A72, with its spelling.
PREVIOUS_ATTEMPTS: Final = "previous-rpc-attempts"
TRANSPARENT_RETRY: Final = "transparent-retry"
SEQUENCE_NUMBER: Final = "sequence-number"
MESSAGE_SIZE: Final = "message-size"
COMPRESSED_SIZE: Final = "message-size-compressed"
# Events of A72.
RESOLVED: Final = "Delayed name resolution complete"
PICKED: Final = "Delayed LB pick complete"
SENT: Final = "Outbound message"
RECEIVED: Final = "Inbound message"
# A121.
CALL_DELAY: Final = "Call Delay"
ATTEMPT_DELAY: Final = "Attempt Delay"
DELAY_CHANGE: Final = "Delay state transition"
DELAY_TYPE: Final = "grpc.delay_type"
DELAY_REASON: Final = "grpc.delay_reason"

# Our own attributes: of attempts, then of calls. Recorded only if `span_attributes` has them.
CLUSTER: Final = "proxyless.cluster"
LOCALITY: Final = "proxyless.locality"
BACKEND_ADDRESS: Final = "proxyless.backend_address"
CONFIG_GENERATION: Final = "proxyless.config_generation"
SESSION: Final = "proxyless.session"
DROP_CAUSE: Final = "proxyless.drop_cause"

OPTIONAL_ATTRIBUTES: Final = frozenset(
    {CLUSTER, LOCALITY, BACKEND_ADDRESS, CONFIG_GENERATION, SESSION, DROP_CAUSE}
)

_OK: Final = Status(StatusCode.OK)
_CLIENT: Final = SpanKind.CLIENT
# Scope of the spans of OpenTelemetry's own client interceptor.
_INTERCEPTOR_SCOPE: Final = "opentelemetry.instrumentation.grpc"


class Tracing:
    """Options and tracer of a plugin."""

    __slots__ = ("attributes", "has_delays", "propagator", "sampler", "tracer")

    def __init__(
        self,
        tracer: Tracer,
        propagator: TextMapPropagator,
        attributes: frozenset[str],
        *,
        has_delays: bool,
    ) -> None:
        self.tracer: Final = tracer
        self.propagator: Final = propagator
        # None if the tracer starts all spans.
        self.sampler: Final = find_call_sampler(tracer, propagator)
        # Which of OPTIONAL_ATTRIBUTES are recorded.
        self.attributes: Final = attributes
        self.has_delays: Final = has_delays


class TracedMethod:
    """Starts the spans of the calls of one method. Implements `metrics.tracers.MethodTracing`."""

    __slots__ = ("_name", "_sent_name", "_tracing")

    def __init__(self, tracing: Tracing, path: str) -> None:
        self._tracing: Final = tracing
        # "Sent.<service_name>.<method_name>" - A72
        self._name: Final = path.removeprefix("/").replace("/", ".")
        self._sent_name: Final = f"Sent.{self._name}"

    def start_call(self) -> CallSpan | Metadata:
        parent, tracing = get_current(), self._tracing
        # It is empty if the application has no span.
        if parent:
            if get_value(_SUPPRESS_INSTRUMENTATION_KEY, parent):
                return EMPTY_METADATA
            current = get_current_span(parent)
            if _is_of_interceptor(current):
                if not current.is_recording():
                    return to_metadata(tracing.propagator, parent)
                return CallSpan(tracing, self._name, current, parent, is_ours=False)
        span: Span
        if tracing.sampler is not None:
            started = tracing.sampler.start_span(self._sent_name, parent)
            if isinstance(started, tuple):
                return started
            span = started
        else:
            span = tracing.tracer.start_span(self._sent_name, parent)
        if not span.is_recording():
            # Attempts have no span of their own, and send the context of this one.
            return span_to_metadata(tracing.propagator, span, parent)
        return CallSpan(tracing, self._name, span, set_span_in_context(span, parent))


def _is_of_interceptor(span: Span) -> bool:
    # The SDK gives a scope to recorded spans only.
    scope = getattr(span, "instrumentation_scope", None)
    return getattr(scope, "name", "") == _INTERCEPTOR_SCOPE and (
        getattr(span, "kind", None) is SpanKind.CLIENT
    )


class CallSpan:
    """The span of one call. Implements `metrics.tracers.CallTracer`."""

    __slots__ = ("_context", "_is_ours", "_name", "_span", "_tracing")

    def __init__(
        self, tracing: Tracing, name: str, span: Span, context: Context, *, is_ours: bool = True
    ) -> None:
        self._tracing: Final = tracing
        self._name: Final = name
        self._span: Final = span
        # Parent of attempts.
        self._context: Final = context
        self._is_ours: Final = is_ours

    def on_start(self, is_in_session: bool) -> None:
        if is_in_session and SESSION in self._tracing.attributes:
            self._span.set_attribute(SESSION, True)

    def on_resolved(self) -> None:
        self._span.add_event(RESOLVED)

    def on_drop(self, status: RpcStatus) -> None:
        if DROP_CAUSE in self._tracing.attributes:
            self._span.set_attribute(DROP_CAUSE, one_line(status.details))

    def start_delay(self, kind: str, reason: str) -> DelaySpan | None:
        if not self._tracing.has_delays:
            return None
        return DelaySpan(self._tracing.tracer, CALL_DELAY, self._context, kind, reason)

    def start_attempt(self, origin: AttemptOrigin) -> AttemptSpan:
        attributes = {
            PREVIOUS_ATTEMPTS: origin.previous_attempts,
            TRANSPARENT_RETRY: origin.is_transparent_retry,
        }
        span = self._tracing.tracer.start_span(
            f"Attempt.{self._name}", self._context, _CLIENT, attributes
        )
        return AttemptSpan(self._tracing, span, self._context)

    def end(self, status: RpcStatus) -> None:
        if self._is_ours:
            end_span(self._span, status)


def end_span(span: Span, status: RpcStatus) -> None:
    """End a span with the status of an RPC."""
    if span.is_recording():
        if status.is_ok:
            span.set_status(_OK)
        else:
            # "a span status description might be "UNAVAILABLE, unable to resolve host"" - A72
            code, details = status.code.name, one_line(status.details)
            text = f"{code}, {details}" if details else code
            span.set_status(Status(StatusCode.ERROR, text))
    span.end()


class AttemptSpan:
    """The span of one attempt. Implements `metrics.tracers.AttemptTracer`."""

    __slots__ = ("_parent", "_received", "_sent", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Span, parent: Context) -> None:
        self._tracing: Final = tracing
        self._span: Final = span
        # The context of the call.
        self._parent: Final = parent
        # Messages until now.
        self._sent = 0
        self._received = 0

    def metadata(self) -> Metadata:
        return span_to_metadata(self._tracing.propagator, self._span, self._parent)

    def on_picked(self, backend: PickedBackend, was_delayed: bool) -> None:
        if was_delayed:
            self._span.add_event(PICKED)
        chosen = self._tracing.attributes
        if chosen:
            values: dict[str, AttributeValue] = {
                CLUSTER: backend.labels.get(BACKEND_SERVICE, ""),
                LOCALITY: backend.labels.get(LOCALITY_LABEL, ""),
                BACKEND_ADDRESS: str(backend.address),
                CONFIG_GENERATION: backend.config_generation,
            }
            found = {key: value for key, value in values.items() if key in chosen and value != ""}
            self._span.set_attributes(found)

    def on_sent(self, size: int, compressed_size: int | None) -> None:
        self._add_message(SENT, self._sent, size, compressed_size)
        self._sent += 1

    def on_received(self, size: int, compressed_size: int | None) -> None:
        self._add_message(RECEIVED, self._received, size, compressed_size)
        self._received += 1

    def _add_message(self, name: str, number: int, size: int, compressed_size: int | None) -> None:
        attributes = {SEQUENCE_NUMBER: number, MESSAGE_SIZE: size}
        if compressed_size is not None:
            attributes[COMPRESSED_SIZE] = compressed_size
        self._span.add_event(name, attributes)

    def start_delay(self, kind: str, reason: str) -> DelaySpan | None:
        if not self._tracing.has_delays:
            return None
        context = set_span_in_context(self._span, self._parent)
        return DelaySpan(self._tracing.tracer, ATTEMPT_DELAY, context, kind, reason)

    def end(self, status: RpcStatus) -> None:
        end_span(self._span, status)


class DelaySpan:
    """The span of one delay. Implements `metrics.tracers.DelayTracer`."""

    __slots__ = ("_kind", "_span")

    def __init__(self, tracer: Tracer, name: str, context: Context, kind: str, reason: str) -> None:
        self._kind: Final = kind
        self._span: Final = tracer.start_span(name, context, attributes={DELAY_TYPE: kind})
        self.on_reason(reason)

    def on_reason(self, reason: str) -> None:
        attributes = {DELAY_TYPE: self._kind, DELAY_REASON: one_line(reason)}
        self._span.add_event(DELAY_CHANGE, attributes)

    def end(self) -> None:
        self._span.end()
