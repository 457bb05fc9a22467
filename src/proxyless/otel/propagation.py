"""Propagation of trace contexts in metadata.

Specs: A72 ("Propagator Wire Format": text map propagators, and `grpc-trace-bin`).

plugin = OpenTelemetryPlugin(tracer_provider=provider, text_map_propagator=GrpcTraceBinPropagator())
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final

from opentelemetry.propagators.textmap import (
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxyless.base import EMPTY_METADATA
from proxyless.base.metadata import InvalidMetadataError, validate_metadata

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import CarrierT, Getter
    from opentelemetry.trace import Span, TraceState

    from proxyless.base import Metadata

LOGGER: Final = logging.getLogger("proxyless.otel")

TRACE_BIN_KEY: Final = "grpc-trace-bin"
# Headers of W3C's Trace Context.
_TRACE_PARENT: Final = "traceparent"
_TRACE_STATE: Final = "tracestate"

# OpenCensus's binary format: a version, then three fields, each with its number.
_VERSION: Final = 0
_TRACE_ID, _SPAN_ID, _FLAGS = 0, 1, 2
_TRACE_ID_AT, _SPAN_ID_AT, _FLAGS_AT = 2, 19, 28
_SIZE: Final = 29


class GrpcTraceBinPropagator(TextMapPropagator):
    """Propagator of gRPC's binary header `grpc-trace-bin`, for peers that use OpenCensus.

    A carrier of text gets the value in base64, without padding.
    """

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        span_context = get_current_span(context).get_span_context()
        if span_context.is_valid:
            encoded = b64encode(encode_trace_bin(span_context)).rstrip(b"=").decode()
            setter.set(carrier, TRACE_BIN_KEY, encoded)

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        for value in getter.get(carrier, TRACE_BIN_KEY) or ():
            span_context = parse_trace_bin(_decode_base64(value))
            if span_context is not None:
                return set_span_in_context(NonRecordingSpan(span_context), context)
        return set_span_in_context(get_current_span(context), context)

    @property
    def fields(self) -> set[str]:
        return {TRACE_BIN_KEY}


def encode_trace_bin(span_context: SpanContext) -> bytes:
    return b"".join(
        (
            bytes((_VERSION, _TRACE_ID)),
            span_context.trace_id.to_bytes(16),
            bytes((_SPAN_ID,)),
            span_context.span_id.to_bytes(8),
            bytes((_FLAGS, span_context.trace_flags)),
        )
    )


def parse_trace_bin(value: bytes | None) -> SpanContext | None:
    """None if the value is not valid."""
    if value is None or len(value) != _SIZE:
        return None
    numbers = (value[0], value[_TRACE_ID_AT - 1], value[_SPAN_ID_AT - 1], value[_FLAGS_AT - 1])
    if numbers != (_VERSION, _TRACE_ID, _SPAN_ID, _FLAGS):
        return None
    span_context = SpanContext(
        int.from_bytes(value[_TRACE_ID_AT : _SPAN_ID_AT - 1]),
        int.from_bytes(value[_SPAN_ID_AT : _FLAGS_AT - 1]),
        is_remote=True,
        trace_flags=TraceFlags(value[_FLAGS_AT]),
    )
    return span_context if span_context.is_valid else None


def _decode_base64(value: str | bytes) -> bytes | None:
    if isinstance(value, bytes):
        # Metadata of grpcio, which has decoded it.
        return value
    try:
        return b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (Base64Error, ValueError):
        return None


class _MetadataSetter(Setter[list[tuple[str, str | bytes]]]):
    """Adds to a list of metadata."""

    def set(self, carrier: list[tuple[str, str | bytes]], key: str, value: str) -> None:
        key = key.lower()
        if key == TRACE_BIN_KEY:
            decoded = _decode_base64(value)
            if decoded is not None:
                carrier.append((key, decoded))
        elif key.endswith("-bin"):
            # "Binary propagator other than GrpcTraceBinPropagator is not supported" - A72
            LOGGER.error(
                "propagator sets %r: no binary key but %r is supported", key, TRACE_BIN_KEY
            )
        else:
            carrier.append((key, value))


_SETTER: Final = _MetadataSetter()
# Propagators whose metadata can always be sent. Other ones may be an application's own.
_VALID: Final = frozenset({GrpcTraceBinPropagator, TraceContextTextMapPropagator})


def span_to_metadata(propagator: TextMapPropagator, span: Span, parent: Context) -> Metadata:
    """The same as `to_metadata`, for a span and the context in which it was started."""
    if type(propagator) is TraceContextTextMapPropagator:
        context = span.get_span_context()
        if not context.is_valid:
            return EMPTY_METADATA
        return format_trace_parent(
            context.trace_id, context.span_id, context.trace_flags, context.trace_state
        )
    return to_metadata(propagator, set_span_in_context(span, parent))


def format_trace_parent(
    trace_id: int, span_id: int, flags: int, trace_state: TraceState | None
) -> Metadata:
    """The metadata of W3C's propagator, without a context, a carrier and a setter."""
    # `%` takes half the time of an f-string for numbers of this size.
    value = "00-%032x-%016x-%02x" % (trace_id, span_id, flags)  # noqa: UP031
    if not trace_state:
        return ((_TRACE_PARENT, value),)
    return ((_TRACE_PARENT, value), (_TRACE_STATE, trace_state.to_header()))


def to_metadata(propagator: TextMapPropagator, context: Context) -> Metadata:
    """Metadata that propagates a context; empty if the propagator sets what cannot be sent."""
    carrier: list[tuple[str, str | bytes]] = []
    propagator.inject(carrier, context, _SETTER)
    if type(propagator) in _VALID:
        return tuple(carrier)
    try:
        return validate_metadata(carrier)
    except (InvalidMetadataError, TypeError) as error:
        LOGGER.warning("propagator %s: %s", type(propagator).__name__, error)
        return ()
