"""Unit tests of proxyless.otel.propagation."""

from base64 import b64encode
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Setter, TextMapPropagator, default_setter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxyless.otel import GrpcTraceBinPropagator
from proxyless.otel.propagation import encode_trace_bin, parse_trace_bin, to_metadata

SPAN = SpanContext(0x0102030405060708090A0B0C0D0E0F10, 0x1112131415161718, False, TraceFlags(1))
# Version, then fields 0 (trace id), 1 (span id) and 2 (flags).
ENCODED = bytes([0, 0, *range(1, 17), 1, *range(17, 25), 2, 1])
CONTEXT = set_span_in_context(NonRecordingSpan(SPAN))


@pytest.mark.spec("A72-11")
def test_a_context_is_encoded_in_the_format_of_opencensus() -> None:
    assert encode_trace_bin(SPAN) == ENCODED
    parsed = parse_trace_bin(ENCODED)
    assert parsed is not None
    assert parsed.is_remote
    assert (parsed.trace_id, parsed.span_id, parsed.trace_flags) == (
        SPAN.trace_id,
        SPAN.span_id,
        SPAN.trace_flags,
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        ENCODED[:-1],
        ENCODED + b"\0",
        b"\1" + ENCODED[1:],
        ENCODED[:1] + b"\1" + ENCODED[2:],
        ENCODED[:18] + b"\3" + ENCODED[19:],
        ENCODED[:27] + b"\3" + ENCODED[28:],
        ENCODED[:2] + bytes(16) + ENCODED[18:],
    ],
)
def test_what_is_not_in_the_format_is_not_parsed(value: bytes | None) -> None:
    assert parse_trace_bin(value) is None


@pytest.mark.spec("A72-09", "A72-11")
def test_metadata_is_binary_or_text_as_the_propagator_sets_it() -> None:
    assert to_metadata(GrpcTraceBinPropagator(), CONTEXT) == (("grpc-trace-bin", ENCODED),)
    assert to_metadata(TraceContextTextMapPropagator(), CONTEXT) == (
        ("traceparent", f"00-{SPAN.trace_id:032x}-{SPAN.span_id:016x}-01"),
    )


def test_a_context_without_a_span_is_not_propagated() -> None:
    assert to_metadata(GrpcTraceBinPropagator(), Context()) == ()


@pytest.mark.parametrize("value", [b64encode(ENCODED).decode(), ENCODED])
def test_text_and_bytes_are_extracted(value: Any) -> None:  # noqa: ANN401
    propagator = GrpcTraceBinPropagator()
    found = get_current_span(propagator.extract({"grpc-trace-bin": [value]}, Context()))
    assert found.get_span_context().span_id == SPAN.span_id
    for other in ({}, {"grpc-trace-bin": ["?"]}, {"grpc-trace-bin": ["AAAA"]}):
        nothing = get_current_span(propagator.extract(other, Context()))
        assert not nothing.get_span_context().is_valid


def test_a_carrier_of_text_gets_base64() -> None:
    carrier: dict[str, str] = {}
    propagator = GrpcTraceBinPropagator()
    propagator.inject(carrier, CONTEXT, default_setter)
    assert carrier == {"grpc-trace-bin": b64encode(ENCODED).rstrip(b"=").decode()}
    assert propagator.fields == {"grpc-trace-bin"}
    found = get_current_span(propagator.extract(carrier, Context()))
    assert found.get_span_context().span_id == SPAN.span_id


class FixedPropagator(TextMapPropagator):
    """Propagator that sets one pair."""

    def __init__(self, key: str, value: str) -> None:
        self._pair = key, value

    def inject(
        self,
        carrier: Any,  # noqa: ANN401 - as the base class
        context: Context | None = None,
        setter: Setter[Any] = default_setter,
    ) -> None:
        setter.set(carrier, *self._pair)

    def extract(self, *_: object, **__: object) -> Context:
        raise NotImplementedError

    @property
    def fields(self) -> set[str]:
        return {self._pair[0]}


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("other-bin", "AAAA", "no binary key"),
        ("a", "line\nbreak", "not printable ASCII"),
        ("grpc-timeout", "1S", "reserved"),
    ],
)
def test_what_cannot_be_sent_is_logged(
    key: str, value: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert to_metadata(FixedPropagator(key, value), CONTEXT) == ()
    assert error in caplog.text


def test_keys_are_lower_case() -> None:
    assert to_metadata(FixedPropagator("X-B3", "1"), CONTEXT) == (("x-b3", "1"),)
