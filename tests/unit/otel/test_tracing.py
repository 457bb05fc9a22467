"""Unit tests of proxyless.otel.tracing, with OpenTelemetry's own SDK."""

import pytest
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, TraceFlags

from proxyless.base import OK, IpAddress, Status, StatusCode
from proxyless.metrics.instruments import BACKEND_SERVICE, LOCALITY
from proxyless.metrics.tracers import AttemptOrigin, PickedBackend
from proxyless.otel import OpenTelemetryPlugin
from proxyless.otel.tracing import CallSpan
from tests.worlds.traces import RecordedTraces

PATH = "/pkg.Service/Method"
CALL = "Sent.pkg.Service.Method"
ATTEMPT = "Attempt.pkg.Service.Method"
FIRST = AttemptOrigin(0, is_transparent_retry=False)
BACKEND = PickedBackend(
    IpAddress("10.0.0.1", 80), {BACKEND_SERVICE: "orders", LOCALITY: "zone-a"}, 7
)


def start_call(traces: RecordedTraces) -> CallSpan:
    call = traces.plugin.trace_method(PATH).start_call()
    assert isinstance(call, CallSpan)
    return call


@pytest.mark.spec("A72-01", "A72-04")
def test_the_current_span_is_the_parent_of_the_call_and_that_of_attempts() -> None:
    traces = RecordedTraces()
    with traces.parent() as app:
        call = start_call(traces)
    attempt = call.start_attempt(FIRST)
    attempt.end(OK)
    call.end(OK)
    sent, tried = traces.named(CALL), traces.named(ATTEMPT)
    assert sent.parent == app.get_span_context()
    assert tried.parent is not None
    assert tried.parent.span_id == sent.context.span_id
    # The server's span is a child of the attempt's, so that is the client's.
    assert (sent.kind, tried.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)


@pytest.mark.spec("A72-03")
@pytest.mark.parametrize(
    ("status", "description"),
    [
        (Status(StatusCode.UNAVAILABLE, "unable to resolve host"), "unable to resolve host"),
        (Status(StatusCode.UNAVAILABLE, "a\x1b[31m\nb"), "a\\x1b[31m b"),
        (Status(StatusCode.UNAVAILABLE), ""),
    ],
)
def test_the_code_and_the_text_describe_an_error(status: Status, description: str) -> None:
    traces = RecordedTraces()
    start_call(traces).end(status)
    wanted = f"UNAVAILABLE, {description}" if description else "UNAVAILABLE"
    assert traces.named(CALL).status.description == wanted


@pytest.mark.spec("A72-12")
def test_a_span_that_is_not_sampled_is_propagated_as_such() -> None:
    traces = RecordedTraces(ALWAYS_OFF, trace_delays=True)
    metadata = traces.plugin.trace_method(PATH).start_call()
    assert isinstance(metadata, tuple)
    ((key, value),) = metadata
    assert key == "traceparent"
    flags = int(str(value)[-2:], 16)
    assert not flags & TraceFlags.SAMPLED


def test_a_call_is_not_traced_where_instrumentation_is_suppressed() -> None:
    traces = RecordedTraces()
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        assert traces.plugin.trace_method(PATH).start_call() == ()
    finally:
        context.detach(token)


def test_the_span_of_the_client_interceptor_takes_the_place_of_the_calls() -> None:
    traces = RecordedTraces()
    tracer = traces.provider.get_tracer("opentelemetry.instrumentation.grpc")
    with tracer.start_as_current_span(PATH, kind=SpanKind.CLIENT) as theirs:
        call = start_call(traces)
    attempt = call.start_attempt(FIRST)
    attempt.end(OK)
    call.end(Status(StatusCode.UNAVAILABLE))
    assert traces.names == [PATH, ATTEMPT]
    assert traces.named(ATTEMPT).parent == theirs.get_span_context()
    # Its status is set by the interceptor.
    assert traces.named(PATH).status.description is None
    # The span of a server's interceptor is an ordinary parent.
    with tracer.start_as_current_span(PATH, kind=SpanKind.SERVER):
        start_call(traces).end(OK)
    assert traces.names[2:] == [CALL, PATH]


def test_our_attributes_are_recorded_one_by_one() -> None:
    values = {
        "proxyless.cluster": "orders",
        "proxyless.locality": "zone-a",
        "proxyless.backend_address": "10.0.0.1:80",
        "proxyless.config_generation": 7,
    }
    for name, value in values.items():
        traces = RecordedTraces(span_attributes=[name])
        attempt = start_call(traces).start_attempt(FIRST)
        attempt.on_picked(BACKEND, was_delayed=False)
        attempt.end(OK)
        found = dict(traces.named(ATTEMPT).attributes or {})
        assert found.items() >= {(name, value)}
        assert not (values.keys() - {name}) & found.keys()


def test_a_target_without_clusters_has_no_attribute_for_them() -> None:
    traces = RecordedTraces(span_attributes=["proxyless.cluster"])
    attempt = start_call(traces).start_attempt(FIRST)
    attempt.on_picked(PickedBackend(IpAddress("10.0.0.1", 80), {}, 1), was_delayed=False)
    attempt.end(OK)
    assert "proxyless.cluster" not in (traces.named(ATTEMPT).attributes or {})


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attribute 'proxyless\.claster' is not known"):
        RecordedTraces(span_attributes=["proxyless.claster"])


def test_a_plugin_without_a_tracer_provider_does_not_trace() -> None:
    assert not OpenTelemetryPlugin().is_tracing
    assert not OpenTelemetryPlugin().is_interested_in("dns:///x")
    assert OpenTelemetryPlugin(tracer_provider=TracerProvider()).is_interested_in("dns:///x")
