"""Unit tests of proxyless.otel.tracing, with OpenTelemetry's own SDK."""

from typing import Any

import pytest
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from proxyless.base import OK, IpAddress, Status, StatusCode
from proxyless.metrics.instruments import BACKEND_SERVICE, LOCALITY
from proxyless.metrics.tracers import AttemptOrigin, PickedBackend
from proxyless.otel import GrpcTraceBinPropagator, OpenTelemetryPlugin
from proxyless.otel.propagation import span_to_metadata
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


class NumberedIds(IdGenerator):
    """Generates 1, 2, 3 and so on."""

    def __init__(self, *, is_random: bool) -> None:
        self._is_random = is_random
        self._last = 0

    def generate_span_id(self) -> int:
        self._last += 1
        return self._last

    generate_trace_id = generate_span_id

    def is_trace_id_random(self) -> bool:
        return self._is_random


class RecordingSampler(Sampler):
    """Sampler whose decision the test chooses; records what it is called with."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self.calls: list[tuple[object, ...]] = []

    def should_sample(  # noqa: PLR0917 - the SDK's
        self,
        parent_context: context.Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,  # noqa: ANN401
        links: Any = None,  # noqa: ANN401
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        self.calls.append((parent_context, trace_id, name, kind, attributes, links))
        state = get_current_span(parent_context).get_span_context().trace_state
        return SamplingResult(self._decision, {"sampler": "of the test"}, state)

    def get_description(self) -> str:
        return "of the test"


def remote_parent(flags: int) -> context.Context:
    span = SpanContext(70, 80, True, TraceFlags(flags), TraceState([("vendor", "value")]))
    return set_span_in_context(NonRecordingSpan(span), context.Context())


@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("parent", [None, 0, 1, 2, 3])
def test_sampler_is_called_once_and_the_context_is_that_of_a_span(
    decision: Decision, is_random: bool, parent: int | None
) -> None:
    """The tracer starts the span in the second run, and the sampler does in the first."""
    current = context.Context() if parent is None else remote_parent(parent)
    found: list[object] = []
    for has_call_sampler in (True, False):
        sampler = RecordingSampler(decision)
        ids = NumberedIds(is_random=is_random)
        provider = TracerProvider(sampler, id_generator=ids, shutdown_on_exit=False)
        method = OpenTelemetryPlugin(tracer_provider=provider).trace_method(PATH)
        tracing: Any = method._tracing
        assert tracing.sampler is not None
        if not has_call_sampler:
            tracing.sampler = None
        token = context.attach(current)
        try:
            started = method.start_call()
        finally:
            context.detach(token)
        assert len(sampler.calls) == 1
        span: Any = None
        if isinstance(started, CallSpan):
            span = started._span
            started = span_to_metadata(tracing.propagator, span, context.Context())
        described = None if span is None else (dict(span.attributes), span.parent, span.name)
        found.append((started, described, sampler.calls))
    assert found[0] == found[1]


class KeywordSampler(TraceIdRatioBased):
    """Sampler of an application, which takes the keywords of `ParentBased` and nothing else."""

    def should_sample(self, **_: object) -> SamplingResult:  # type: ignore[override]
        return SamplingResult(Decision.DROP, trace_state=TraceState([("from", "the-test")]))


class SpreadIds(NumberedIds):
    """Generates numbers all over the range of ids."""

    def generate_trace_id(self) -> int:
        return self.generate_span_id() * 0x9E3779B97F4A7C15 % 2**64


@pytest.mark.parametrize(
    "sampler",
    [
        ALWAYS_ON,
        ALWAYS_OFF,
        DEFAULT_ON,
        DEFAULT_OFF,
        TraceIdRatioBased(0.5),
        ParentBasedTraceIdRatio(0.5),
        ParentBased(ParentBasedTraceIdRatio(0.5)),
        ParentBased(KeywordSampler(0.5), local_parent_not_sampled=ALWAYS_ON),
        ParentBased(ALWAYS_OFF, remote_parent_sampled=ALWAYS_OFF),
    ],
    ids=lambda sampler: sampler.get_description(),
)
@pytest.mark.parametrize("parent", [None, 0, 1])
def test_sampler_of_the_sdk_decides_as_for_the_tracer(sampler: Sampler, parent: int | None) -> None:
    found: list[list[object]] = []
    for has_call_sampler in (True, False):
        ids = SpreadIds(is_random=True)
        provider = TracerProvider(sampler, id_generator=ids, shutdown_on_exit=False)
        method = OpenTelemetryPlugin(tracer_provider=provider).trace_method(PATH)
        if not has_call_sampler:
            tracing: Any = method._tracing
            tracing.sampler = None
        token = context.attach(context.Context() if parent is None else remote_parent(parent))
        try:
            calls = [method.start_call() for _ in range(20)]
        finally:
            context.detach(token)
        found.append([each if isinstance(each, tuple) else "recorded" for each in calls])
    assert found[0] == found[1]


def test_sampler_of_the_sdk_is_not_called_for_a_dropped_root_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = TracerProvider(ParentBasedTraceIdRatio(0.0), shutdown_on_exit=False)
    method = OpenTelemetryPlugin(tracer_provider=provider).trace_method(PATH)
    monkeypatch.setattr(TraceIdRatioBased, "should_sample", None)
    assert isinstance(method.start_call(), tuple)


def test_sampler_of_the_sdk_is_called_if_it_uses_other_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TraceIdRatioBased, "TRACE_ID_LIMIT", (1 << 56) - 1)
    provider = TracerProvider(TraceIdRatioBased(0.5), shutdown_on_exit=False)
    assert provider.sampler.should_sample(None, 1 << 55, "").decision is Decision.DROP
    method = OpenTelemetryPlugin(tracer_provider=provider).trace_method(PATH)
    monkeypatch.setattr(TraceIdRatioBased, "should_sample", ALWAYS_ON.should_sample)
    assert all(isinstance(method.start_call(), CallSpan) for _ in range(20))


def test_span_is_started_by_the_tracer_if_the_sdk_counts_or_another_propagator_is_used() -> None:
    def find(**options: Any) -> object:  # noqa: ANN401
        provider = TracerProvider(shutdown_on_exit=False)
        plugin = OpenTelemetryPlugin(tracer_provider=provider, **options)
        return plugin.trace_method(PATH)._tracing.sampler

    assert find() is not None
    assert find(text_map_propagator=GrpcTraceBinPropagator()) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
        assert find() is None
    no_sdk = OpenTelemetryPlugin(tracer_provider=NoOpTracerProvider()).trace_method(PATH)
    assert no_sdk._tracing.sampler is None
    assert no_sdk.start_call() == ()
