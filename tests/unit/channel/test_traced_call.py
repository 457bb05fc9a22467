"""Unit tests of proxyless.channel.traced_call, with OpenTelemetry's own SDK."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import TraceFlags

from proxyless.base import OK, Status, StatusCode
from proxyless.channel.call_counts import ChannelCounts
from proxyless.channel.counted_call import CountedCall
from proxyless.channel.measured_call import MeasuredCall
from proxyless.channel.traced_call import PropagatingCall, TracedCall
from proxyless.lb import QUEUE_PICKER, Drop
from proxyless.lb.pickers import FailPicker
from proxyless.metrics import Metrics
from proxyless.metrics.instruments import CALL_DURATION
from proxyless.otel import GrpcTraceBinPropagator, OpenTelemetryPlugin
from proxyless.wire import StreamEnd, compress
from tests.worlds.channels import UNAVAILABLE, UNPROCESSED, CallObserver, ChannelWorld
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.subchannels import CONNECTING, FAILURE
from tests.worlds.traces import RecordedTraces

if TYPE_CHECKING:
    from proxyless.metrics.tracers import AttemptOrigin, PickedBackend

REFUSED = Status(StatusCode.UNAVAILABLE, "refused")
ATTEMPT = "Attempt.pkg.Service.Method"
CALL = "Sent.pkg.Service.Method"


class TracedWorld(ChannelWorld):
    """A channel with a plugin that traces, and its spans."""

    def __init__(self, **tracing: Any) -> None:  # noqa: ANN401 - options of the plugin
        self.traces = RecordedTraces(**tracing)
        super().__init__(metrics=Metrics(TARGET, [self.traces.plugin]))

    def tree(self) -> list[str]:
        return self.traces.tree("transparent-retry", "previous-rpc-attempts")


@pytest.fixture
def world() -> TracedWorld:
    return TracedWorld()


@pytest.mark.spec("A72-10")
def test_only_a_channel_with_a_tracer_provider_makes_traced_calls(world: TracedWorld) -> None:
    assert isinstance(world.call()[0], TracedCall)
    assert len(world.method.tracings) == 1
    measured = ChannelWorld(metrics=RecordingPlugin().metrics)
    assert measured.channel.call_type is MeasuredCall
    assert measured.method.tracings == ()


@pytest.mark.spec("A72-04", "A72-07")
def test_messages_of_a_stream_are_numbered_by_attempt(world: TracedWorld) -> None:
    world.connect()
    call, _ = world.call(None)
    call.send_message(b"one")
    call.send_message(b"three")
    world.streams[0].head()
    world.streams[0].listener.on_message(b"first")
    world.streams[0].listener.on_message(b"2")
    world.streams[0].end(StreamEnd(OK))
    assert world.tree() == [
        f"{CALL} [OK]",
        f"  {ATTEMPT} [OK]",
        "    * Outbound message sequence-number=0 message-size=3",
        "    * Outbound message sequence-number=1 message-size=5",
        "    * Inbound message sequence-number=0 message-size=5",
        "    * Inbound message sequence-number=1 message-size=1",
    ]


@pytest.mark.spec("A72-08")
def test_compressed_messages_have_both_sizes(world: TracedWorld) -> None:
    world.connect()
    observer, message = CallObserver(), b"x" * 1000
    call = world.channel.call_type(world.channel, world.method, observer, (), None, None, "gzip")
    call.start_unary(message)
    stream = world.streams[0]
    packed = len(compress("gzip", message))
    assert [len(each) for each in stream.messages] == [packed]
    stream.head()
    stream.unpacked_bytes = 900
    stream.listener.on_message(b"y" * 1000)
    stream.end(StreamEnd(OK))
    sizes = "sequence-number=0 message-size=1000 message-size-compressed"
    assert world.tree()[2:] == [
        f"    * Outbound message {sizes}={packed}",
        f"    * Inbound message {sizes}=100",
    ]


@pytest.mark.spec("A72-05")
def test_a_transparent_retry_is_marked_and_does_not_count(world: TracedWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    first, second = (each for each in world.traces.spans if each.name == ATTEMPT)
    assert dict(first.attributes or {}) == {
        "previous-rpc-attempts": 0,
        "transparent-retry": False,
    }
    assert dict(second.attributes or {}) == {
        "previous-rpc-attempts": 0,
        "transparent-retry": True,
    }


@pytest.mark.spec("A72-09")
def test_each_attempt_sends_its_own_context_in_place_of_the_applications(
    world: TracedWorld,
) -> None:
    world.connect()
    metadata = (("traceparent", "of-the-application"), ("a", "b"))
    call = world.channel.call_type(world.channel, world.method, CallObserver(), metadata)
    call.start_unary(b"request")
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    spans = [each for each in world.traces.spans if each.name == ATTEMPT]
    for span, stream in zip(spans, world.streams, strict=True):
        context = span.context
        sent = f"00-{context.trace_id:032x}-{context.span_id:016x}-".encode()
        assert sent in stream.block
        assert b"of-the-application" not in stream.block


@pytest.mark.spec("A72-12")
def test_a_call_that_is_not_sampled_only_propagates_its_context() -> None:
    world = TracedWorld(sampler=ALWAYS_OFF, trace_delays=True)
    metadata = (("traceparent", "of-the-application"), ("a", "b"))
    call = world.channel.call_type(world.channel, world.method, CallObserver(), metadata)
    call.start_unary(b"request")
    world.connect()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    assert world.traces.names == []
    for stream in world.streams:
        assert b"traceparent" in stream.block
        assert b"of-the-application" not in stream.block


def test_plugins_decide_apart_which_calls_they_record() -> None:
    recorded = RecordedTraces()
    unrecorded = RecordedTraces(ALWAYS_OFF, text_map_propagator=GrpcTraceBinPropagator())
    plugins = [unrecorded.plugin, recorded.plugin]
    world = ChannelWorld(metrics=Metrics(TARGET, plugins))
    world.connect()
    world.call()
    world.streams[0].respond()
    assert (unrecorded.names, recorded.names) == ([], [ATTEMPT, CALL])
    assert b"grpc-trace-bin" in world.streams[0].block
    assert b"traceparent" in world.streams[0].block


@pytest.mark.parametrize(
    "samplers", [(ALWAYS_ON, ALWAYS_ON), (ALWAYS_OFF, ALWAYS_OFF), (ALWAYS_ON, ALWAYS_OFF)]
)
def test_one_context_is_sent_if_several_plugins_trace(samplers: tuple[Sampler, ...]) -> None:
    plugins = [RecordedTraces(sampler).plugin for sampler in samplers]
    world = ChannelWorld(metrics=Metrics(TARGET, plugins))
    world.connect()
    world.call()
    block = world.streams[0].block
    assert block.count(b"traceparent") == 1
    # That of a plugin that records the call, if there is one.
    (flags,) = re.findall(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})", block)
    assert bool(int(flags, 16) & TraceFlags.SAMPLED) is (ALWAYS_ON in samplers)


@pytest.mark.spec("A72-02", "A72-06")
def test_events_of_delays_are_recorded_when_they_are_over(world: TracedWorld) -> None:
    world.call()
    world.resolve()
    world.report(CONNECTING, QUEUE_PICKER)
    world.ready()
    world.streams[0].respond()
    assert world.tree()[:4] == [
        f"{CALL} [OK]",
        "  * Delayed name resolution complete",
        f"  {ATTEMPT} [OK]",
        "    * Delayed LB pick complete",
    ]


def test_a_call_that_ends_before_it_is_resolved_has_neither_event_nor_attempt(
    world: TracedWorld,
) -> None:
    call, _ = world.call()
    call.cancel()
    assert world.tree() == [f"{CALL} [ERROR 'CANCELLED, Locally cancelled by application!']"]


@pytest.mark.spec("A121-04", "A121-06")
def test_delay_continues_with_another_reason_and_ends_with_another_type() -> None:
    world = TracedWorld(trace_delays=True)
    world.channel.request_connection()
    world.resolve()
    world.report(CONNECTING, QUEUE_PICKER)
    world.call(wait_for_ready=True)
    for text in ("refused", "refused", "reset"):
        world.report(FAILURE, FailPicker(Status(StatusCode.UNAVAILABLE, text)))
    world.ready()
    world.streams[0].respond()
    change = "* Delay state transition grpc.delay_type"
    failing = "picker_failing_with_wait_for_ready"
    assert [line for line in world.tree() if "elay_" in line] == [
        "    Attempt Delay [UNSET] grpc.delay_type=connecting",
        f"      {change}=connecting grpc.delay_reason=no endpoint is connected yet",
        f"    Attempt Delay [UNSET] grpc.delay_type={failing}",
        f"      {change}={failing} grpc.delay_reason=refused",
        f"      {change}={failing} grpc.delay_reason=reset",
    ]


@pytest.mark.spec("A72-03")
def test_a_dropped_call_ends_its_attempt_and_itself_with_the_status(world: TracedWorld) -> None:
    world.connect().result = Drop(Status(StatusCode.UNAVAILABLE, "over limit"))
    _, observer = world.call()
    assert observer.status.details == "over limit"
    status = "[ERROR 'UNAVAILABLE, over limit']"
    assert world.tree() == [f"{CALL} {status}", f"  {ATTEMPT} {status}"]


def test_a_call_that_could_not_be_serialized_has_a_span(world: TracedWorld) -> None:
    world.connect()
    call = world.channel.call_type(world.channel, world.method, CallObserver())
    call.start_failed(Status(StatusCode.INTERNAL, "no bytes"))
    assert world.tree() == [f"{CALL} [ERROR 'INTERNAL, no bytes']"]


class BrokenTracing(RecordingPlugin):
    """Plugin whose tracers raise."""

    is_tracing = is_recording = True

    def trace_method(self, _path: str) -> BrokenTracing:
        return self

    def start_call(self) -> BrokenTracing:
        return self

    def start_attempt(self, _origin: AttemptOrigin) -> BrokenTracing:
        return self

    def on_picked(self, _backend: PickedBackend, _was_delayed: bool) -> None:
        raise RuntimeError("on_picked")

    def metadata(self) -> None:
        raise RuntimeError("metadata")

    def on_sent(self, *_: object) -> None:
        raise RuntimeError("on_sent")

    def on_start(self, *_: object) -> None:
        raise RuntimeError("on_start")

    on_received = on_resolved = start_delay = on_sent

    def end(self, _status: Status) -> None:
        raise RuntimeError("end")


def test_exceptions_of_a_tracer_are_logged_and_other_tracers_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    traces = RecordedTraces()
    world = ChannelWorld(metrics=Metrics(TARGET, [BrokenTracing(), traces.plugin]))
    world.call()
    world.resolve()
    world.ready()
    world.streams[0].respond()
    assert [each.status.status_code.name for each in traces.spans] == ["OK", "OK"]
    raised = {str(each.exc_info[1]) for each in caplog.records if each.exc_info}
    assert raised == {"on_picked", "metadata", "on_sent", "on_start", "end"}


class SilentCredentials:
    """Call credentials that do not answer."""

    def request(self, *_: object) -> None: ...


@pytest.mark.spec("A121-06")
@pytest.mark.parametrize(
    ("credentials", "kind", "reason"),
    [
        (None, "resolving", "xds:///orders is not resolved yet"),
        (SilentCredentials(), "credentials", "call credentials have no metadata yet"),
    ],
)
def test_a_delay_of_a_call_has_a_span_with_its_reason(
    credentials: SilentCredentials | None, kind: str, reason: str
) -> None:
    world = TracedWorld(trace_delays=True)
    call = world.channel.call_type(world.channel, world.method, CallObserver())
    call.credentials = credentials
    call.start_unary(b"request")
    call.cancel()
    assert world.tree()[1:] == [
        f"  Call Delay [UNSET] grpc.delay_type={kind}",
        f"    * Delay state transition grpc.delay_type={kind} grpc.delay_reason={reason}",
    ]


def test_a_channel_that_is_traced_may_be_counted_too(world: TracedWorld) -> None:
    unsampled = TracedWorld(sampler=ALWAYS_OFF)
    for each, kind in ((world, TracedCall), (unsampled, PropagatingCall)):
        each.channel.count_calls(ChannelCounts(each.channel.id))
        call, _ = each.call()
        assert isinstance(call, CountedCall)
        assert isinstance(call, kind)


def test_call_that_is_not_sampled_is_measured_if_a_plugin_measures() -> None:
    plugin = RecordingPlugin()
    plugins: list[Any] = [RecordedTraces(ALWAYS_OFF).plugin, plugin]
    world = ChannelWorld(metrics=Metrics(TARGET, plugins))
    world.connect()
    call, _ = world.call()
    world.streams[0].respond()
    assert isinstance(call, MeasuredCall)
    assert not isinstance(call, TracedCall)
    assert b"traceparent" in world.streams[0].block
    assert len(plugin.values(CALL_DURATION)) == 1


class OpenSpans(SpanProcessor):
    """Span processor that records spans which end before their children."""

    def __init__(self) -> None:
        # By id.
        self.open: dict[int, ReadableSpan] = {}
        self.ended = 0
        # Not asserted here: an exception of a tracer is logged.
        self.early: list[str] = []

    def on_start(self, span: ReadableSpan, parent_context: object = None) -> None:
        self.open[span.context.span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        del self.open[span.context.span_id]
        self.ended += 1
        if any(each.parent == span.context for each in self.open.values()):
            self.early.append(span.name)


POLICIES = [
    {},
    {
        "retryPolicy": {
            "maxAttempts": 3,
            "initialBackoff": "1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 1,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
    },
    {
        "hedgingPolicy": {
            "maxAttempts": 3,
            "hedgingDelay": "1s",
            "nonFatalStatusCodes": ["UNAVAILABLE"],
        }
    },
]


class RandomWorld(ChannelWorld):
    """A traced channel, and steps that a test chooses."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.spans, provider = OpenSpans(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.spans)
        plugin = OpenTelemetryPlugin(tracer_provider=provider, trace_delays=True)
        config = {
            "loadBalancingConfig": [{"stub": {}}],
            "methodConfig": [{"name": [{}], **policy}],
        }
        super().__init__(metrics=Metrics(TARGET, [plugin]), service_config=config)
        self.calls = [self.call(wait_for_ready=True)[0]]
        self.resolve()

    def start_call(self) -> None:
        self.calls.append(self.call(timeout_s=5.0)[0])

    def wait(self) -> None:
        self.clock.advance(1.0)

    def queue(self) -> None:
        self.report(CONNECTING, QUEUE_PICKER)

    def fail(self) -> None:
        self.report(FAILURE, FailPicker(REFUSED))

    def drop(self) -> None:
        self.ready().result = Drop(REFUSED)

    def cancel(self) -> None:
        self.calls[-1].cancel()

    def respond(self) -> None:
        for stream in self._running[:1]:
            stream.respond()

    def end(self) -> None:
        for stream in self._running[-1:]:
            stream.end(UNAVAILABLE)

    def refuse(self) -> None:
        for stream in self._running[:1]:
            stream.end(UNPROCESSED)

    @property
    def _running(self) -> list[Any]:
        return [each for each in self.streams if not each.is_ended]


STEPS = [
    "start_call",
    "wait",
    "queue",
    "fail",
    "drop",
    "ready",
    "respond",
    "end",
    "refuse",
    "cancel",
]


@given(st.sampled_from(POLICIES), st.lists(st.sampled_from(STEPS), max_size=30))
@settings(max_examples=150, deadline=None)
def test_every_span_ends_after_its_children(policy: dict[str, Any], steps: list[str]) -> None:
    world = RandomWorld(policy)
    for step in steps:
        getattr(world, step)()
    for call in world.calls:
        call.cancel()
    assert (world.spans.open, world.spans.early) == ({}, [])
    assert world.spans.ended >= len(world.calls)
