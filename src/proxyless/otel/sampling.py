"""Sampling of calls: the sampler of OpenTelemetry's SDK is called before there is a span.

`Tracer.start_span` of the SDK takes 4.5 µs for a span that is not sampled, of which the sampler
takes 1.7 µs: it creates a span and its context, which only the propagator reads. A `CallSampler`
does the same without them, with W3C's propagator, which is the default. If a trace begins here and
its id decides that it is dropped, the SDK's sampler by ratio is not called either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxyless.otel.propagation import format_trace_parent

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer

    from proxyless.base import Metadata

_new_object: Final = object.__new__
# Bits of a trace id by which the SDK samples a share of the traces.
_LOW_BITS: Final = (1 << 64) - 1
_ID_BITS: Final = 128
# More than the low bits can be.
_NEVER: Final = _LOW_BITS + 1
_NO_PARENT: Final = Context()
# Bits of the trace flags.
_NONE: Final = 0
_RANDOM_TRACE_ID: Final = 2


class CallSampler:
    """Starts spans with a tracer of the SDK."""

    __slots__ = ("_dropped_from", "_tracer")

    def __init__(self, tracer: Any) -> None:  # noqa: ANN401 - of the SDK
        self._tracer: Final = tracer
        self._dropped_from: Final = find_dropped_from(tracer.sampler)

    def start_span(self, name: str, parent: Context) -> Span | Metadata:
        """The span if it is recorded, else the metadata that propagates its context."""
        tracer = self._tracer
        generator = tracer.id_generator
        # It is empty if the application has no span.
        context = get_current_span(parent).get_span_context() if parent else None
        if context is not None and context.is_valid:
            trace_id, is_random = context.trace_id, context.trace_flags.random_trace_id
        else:
            trace_id, is_random = generator.generate_trace_id(), generator.is_trace_id_random()
            if trace_id & _LOW_BITS >= self._dropped_from:
                flags = _RANDOM_TRACE_ID if is_random else _NONE
                return format_trace_parent(trace_id, generator.generate_span_id(), flags, None)
        result = tracer.sampler.should_sample(parent, trace_id, name, SpanKind.INTERNAL, None, ())
        if result.decision.is_recording():
            # The tracer gets the same decision again, for the same trace.
            decided = _new_object(type(tracer))
            decided.__dict__.update(
                tracer.__dict__,
                sampler=_DecidedSampler(result),
                id_generator=_DecidedIds(generator, trace_id),
            )
            span: Span = decided.start_span(name, parent)
            return span
        flags = _RANDOM_TRACE_ID if is_random else _NONE
        span_id = generator.generate_span_id()
        return format_trace_parent(trace_id, span_id, flags, result.trace_state)


class _DecidedSampler:
    """Sampler of one span, whose result is known."""

    __slots__ = ("_result",)

    def __init__(self, result: object) -> None:
        self._result: Final = result

    def should_sample(self, *_: object) -> object:
        return self._result


class _DecidedIds:
    """Id generator of one span, whose trace id is known."""

    __slots__ = ("_trace_id", "generate_span_id", "is_trace_id_random")

    def __init__(self, generator: Any, trace_id: int) -> None:  # noqa: ANN401 - of the SDK
        self._trace_id: Final = trace_id
        self.generate_span_id: Final = generator.generate_span_id
        self.is_trace_id_random: Final = generator.is_trace_id_random

    def generate_trace_id(self) -> int:
        return self._trace_id


def find_dropped_from(sampler: Any) -> int:  # noqa: ANN401 - of the SDK
    """The least value of the low bits of a trace id with which a sampler drops a root trace.

    `_NEVER` if the sampler is not one of the SDK that decides by this alone.
    """
    if _find_definition(sampler) == "ParentBased":
        sampler = getattr(sampler, "_root", None)
    bound = getattr(sampler, "bound", None)
    if _find_definition(sampler) != "TraceIdRatioBased" or not isinstance(bound, int):
        return _NEVER
    # The SDK may have changed how it decides.
    near = [each for each in (bound - 1, bound, bound + 1) if 0 <= each <= _LOW_BITS]
    for trace_id in (0, _LOW_BITS, *near, *(1 << bit for bit in range(_ID_BITS))):
        result = sampler.should_sample(_NO_PARENT, trace_id, "", SpanKind.INTERNAL, None, ())
        is_dropped = not result.decision.is_recording()
        if is_dropped != (trace_id & _LOW_BITS >= bound) or result.trace_state:
            return _NEVER
    return bound


def _find_definition(sampler: object) -> str:
    """The class of the SDK that defines how a sampler decides; empty if it is not the SDK's."""
    method = getattr(type(sampler), "should_sample", None)
    is_known = getattr(method, "__module__", "").startswith("opentelemetry.sdk.")
    return method.__qualname__.partition(".")[0] if method is not None and is_known else ""


def find_call_sampler(tracer: Tracer, propagator: TextMapPropagator) -> CallSampler | None:
    """None if the spans have to be started by the tracer alone."""
    if type(propagator) is not TraceContextTextMapPropagator:
        return None
    kind = type(tracer)
    if kind.__name__ != "Tracer" or not kind.__module__.startswith("opentelemetry.sdk."):
        return None
    generator = getattr(tracer, "id_generator", None)
    is_known = hasattr(tracer, "sampler") and hasattr(generator, "is_trace_id_random")
    # The SDK can count the spans that it starts, and a provider can disable a tracer.
    counts = type(getattr(tracer, "_tracer_metrics", None)).__name__
    is_enabled = getattr(tracer, "_is_enabled", None)
    if not is_known or counts != "NoOpTracerMetrics" or is_enabled is None or not is_enabled():
        return None
    return CallSampler(tracer)
