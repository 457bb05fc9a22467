"""Unit tests of proxyless.otel.batches, with OpenTelemetry's own SDK."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import (
    AlwaysOffExemplarFilter,
    AlwaysOnExemplarFilter,
    Counter,
    Histogram,
    MeterProvider,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import (
    DropAggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    SumAggregation,
    View,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)

from proxyless.metrics import CallRecorder, Metrics
from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    CALL_DURATION,
    LATENCY_BOUNDARIES,
)
from proxyless.otel import OpenTelemetryPlugin, batches
from tests.worlds.stats_plugins import TARGET

PATH = "/pkg.Service/Method"
DELTA: dict[type, AggregationTemporality] = {
    Counter: AggregationTemporality.DELTA,
    Histogram: AggregationTemporality.DELTA,
}
SIZES = (0, 1, 1024, 1025, 5_000_000_000)


def histogram_view(**options: Any) -> View:  # noqa: ANN401
    return View(instrument_name=ATTEMPT_DURATION.name, **options)


class MeasuredMethod:
    """A method whose RPCs one provider measures, in batches or one by one."""

    def __init__(
        self,
        *,
        one_by_one: bool = False,
        readers: tuple[InMemoryMetricReader, ...] = (),
        plugin_options: dict[str, Any] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.readers = readers or (InMemoryMetricReader(),)
        self.provider = MeterProvider(self.readers, shutdown_on_exit=False, **options)
        chosen = plugin_options or {}
        self.plugin = OpenTelemetryPlugin(meter_provider=self.provider, **chosen)
        if one_by_one:
            self.plugin._batches = None  # type: ignore[misc]
        self.recorder = CallRecorder(Metrics(TARGET, [self.plugin]), PATH, is_registered=True)

    def run_rpcs(self, count: int = 100, seed: int = 1) -> None:
        durations_s = (*LATENCY_BOUNDARIES[:20], 0.00037, 0.0042, 0.011, 0.123, 1000.0)
        for number in range(seed * count, (seed + 1) * count):
            status = ("OK", "OK", "UNAVAILABLE")[number % 3]
            duration_s = durations_s[number * 7 % len(durations_s)]
            sizes = SIZES[number % len(SIZES)], SIZES[number * 3 % len(SIZES)]
            self.recorder.on_attempt_start()
            self.recorder.on_attempt_end(status, duration_s, *sizes, {})
            self.recorder.on_call_end(status, duration_s)

    def collect(self, reader: int = 0) -> dict[str, list[Any]]:
        """The data points by metric, without their times."""
        data = self.readers[reader].get_metrics_data()
        scopes = [] if data is None else data.resource_metrics[0].scope_metrics
        return {
            metric.name: sorted((describe(point) for point in metric.data.data_points), key=str)
            for scope in scopes
            for metric in scope.metrics
        }

    @property
    def is_batching(self) -> bool:
        return self.plugin._batches is not None


def describe(point: Any) -> dict[str, Any]:  # noqa: ANN401
    names = ("value", "count", "min", "max", "bucket_counts", "explicit_bounds")
    numbers = {name: getattr(point, name) for name in names if hasattr(point, name)}
    if hasattr(point, "sum"):
        # Sums of floats depend on their order.
        numbers["sum"] = round(point.sum, 9)
    if hasattr(point, "positive"):
        numbers["positive"] = (point.positive.offset, tuple(point.positive.bucket_counts))
    return {"attributes": dict(point.attributes), **numbers}


# -------------------------------------------------------------------------------------------------
# The same as one by one

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "other boundaries": {
        "views": [
            histogram_view(aggregation=ExplicitBucketHistogramAggregation((0.001, 0.1))),
        ]
    },
    "no boundaries, no extremes": {
        "views": [
            histogram_view(aggregation=ExplicitBucketHistogramAggregation((), record_min_max=False))
        ]
    },
    "exponential": {"views": [histogram_view(aggregation=ExponentialBucketHistogramAggregation())]},
    "sum": {"views": [histogram_view(aggregation=SumAggregation())]},
    "dropped": {"views": [histogram_view(aggregation=DropAggregation())]},
    "two views": {
        "views": [
            histogram_view(name="renamed"),
            histogram_view(aggregation=ExplicitBucketHistogramAggregation((1, 2))),
        ]
    },
    "fewer attributes": {"views": [View(instrument_name="*", attribute_keys={"grpc.target"})]},
    "histogram of a counter": {
        "views": [
            View(
                instrument_name=ATTEMPT_STARTED.name,
                aggregation=ExplicitBucketHistogramAggregation((0.5, 1.5, 2.5)),
            )
        ]
    },
    "one attribute set": {
        "views": [View(instrument_name="*", aggregation_cardinality_limit=1)]
        if "aggregation_cardinality_limit" in View.__init__.__code__.co_varnames
        else []
    },
    "no exemplars": {"exemplar_filter": AlwaysOffExemplarFilter()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_batches_give_the_points_of_single_measurements(name: str) -> None:
    batched = MeasuredMethod(**OPTIONS[name])
    single = MeasuredMethod(one_by_one=True, **OPTIONS[name])
    assert batched.is_batching
    for seed in range(3):
        for method in (batched, single):
            method.run_rpcs(seed=seed)
        assert batched.collect() == single.collect()


@pytest.mark.parametrize("is_delta_first", [True, False])
def test_each_reader_has_every_measurement_in_its_own_temporality(is_delta_first: bool) -> None:
    def make(*, one_by_one: bool) -> MeasuredMethod:
        delta = InMemoryMetricReader(preferred_temporality=DELTA)
        readers = (delta, InMemoryMetricReader())
        chosen = readers if is_delta_first else readers[::-1]
        return MeasuredMethod(one_by_one=one_by_one, readers=chosen)

    batched, single = make(one_by_one=False), make(one_by_one=True)
    for reader in (0, 0, 1, 0, 1, 1):
        for method in (batched, single):
            method.run_rpcs(10, seed=reader)
        assert batched.collect(reader) == single.collect(reader)


def test_measurements_are_collected_with_no_delay() -> None:
    method = MeasuredMethod()
    for count in (1, 2, 3):
        method.recorder.on_attempt_start()
        assert [point["value"] for point in method.collect()[ATTEMPT_STARTED.name]] == [count]


def test_points_begin_with_their_first_measurement() -> None:
    method = MeasuredMethod()
    method.run_rpcs(1)
    first = method.readers[0].get_metrics_data()
    assert first is not None
    method.run_rpcs(1)
    second = method.readers[0].get_metrics_data()
    assert second is not None
    for data in (first, second):
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                assert point.start_time_unix_nano < point.time_unix_nano


def test_only_collected_instruments_have_points() -> None:
    options = {"disable_metrics": [ATTEMPT_SENT.name, CALL_DURATION.name]}
    method = MeasuredMethod(plugin_options=options)
    method.run_rpcs(10)
    wanted = {ATTEMPT_STARTED.name, ATTEMPT_DURATION.name, ATTEMPT_RECEIVED.name}
    assert set(method.collect()) == wanted


# -------------------------------------------------------------------------------------------------
# Limits, threads


def test_long_batch_is_aggregated_before_a_reader_collects() -> None:
    method = MeasuredMethod()
    add = method.plugin.bind((CALL_DURATION,), (PATH, TARGET, "OK"), ("",))
    batch: Any = add.__self__  # type: ignore[attr-defined]
    for _ in range(batches.PENDING_MAX + 1):
        add((0.5,))
    assert len(batch._pending) == 1
    (point,) = method.collect()[CALL_DURATION.name]
    assert point["count"] == batches.PENDING_MAX + 1


def test_further_attribute_sets_are_recorded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCHES_MAX", 2)
    batched, single = MeasuredMethod(), MeasuredMethod(one_by_one=True)
    for method in (batched, single):
        method.run_rpcs(50)
    assert batched.collect() == single.collect()


def test_no_measurement_is_lost_between_threads() -> None:
    method = MeasuredMethod()
    rpcs, threads = 5 * batches.PENDING_MAX, 3

    def run() -> None:
        for _ in range(rpcs):
            method.recorder.on_attempt_start()
            method.recorder.on_attempt_end("OK", 0.5, 1, 2, {})

    running = [Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    while any(thread.is_alive() for thread in running):
        method.collect()
    for thread in running:
        thread.join()
    found = method.collect()
    assert [point["value"] for point in found[ATTEMPT_STARTED.name]] == [rpcs * threads]
    for instrument, value in ((ATTEMPT_DURATION, 0.5), (ATTEMPT_SENT, 1), (ATTEMPT_RECEIVED, 2)):
        ((point),) = found[instrument.name]
        assert (point["count"], point["sum"]) == (rpcs * threads, rpcs * threads * value)


def test_batch_that_cannot_be_recorded_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    method = MeasuredMethod()
    method.run_rpcs(1)
    broken = next(iter(method.plugin._batches._batches.values()))  # type: ignore[union-attr]
    monkeypatch.setattr(type(broken), "flush", lambda batch: 1 // 0 if batch is broken else None)
    method.collect()
    assert "cannot be recorded" in caplog.text


# -------------------------------------------------------------------------------------------------
# Exemplars


def sampled_context() -> Context:
    span = SpanContext(7, 8, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(span), Context())


def exemplars(method: MeasuredMethod) -> list[Any]:
    data = method.readers[0].get_metrics_data()
    assert data is not None
    return [
        exemplar
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        for exemplar in point.exemplars
    ]


def test_rpc_in_a_sampled_span_has_exemplars_of_that_span() -> None:
    method = MeasuredMethod()
    token = attach(sampled_context())
    try:
        recorder = method.recorder.in_current_context()
    finally:
        detach(token)
    # The end of an RPC is in the context of the event loop.
    recorder.on_attempt_start()
    recorder.on_attempt_end("OK", 0.5, 1, 2, {})
    recorder.on_call_end("OK", 0.5)
    method.run_rpcs(10)
    found = exemplars(method)
    assert len(found) == 5
    assert {(each.trace_id, each.span_id) for each in found} == {(7, 8)}


def test_batches_are_not_offered_as_exemplars_of_the_span_that_collects() -> None:
    method = MeasuredMethod()
    method.run_rpcs(10)
    token = attach(sampled_context())
    try:
        assert exemplars(method) == []
    finally:
        detach(token)


def test_recorder_is_the_same_outside_of_a_sampled_span() -> None:
    method = MeasuredMethod()
    assert method.recorder.current_context is not None
    assert method.recorder.in_current_context() is method.recorder
    # No exemplars: the context does not matter.
    off = MeasuredMethod(exemplar_filter=AlwaysOffExemplarFilter())
    assert off.recorder.current_context is None
    assert off.recorder.in_current_context() is off.recorder


def test_filter_that_takes_every_measurement_has_no_batches() -> None:
    method = MeasuredMethod(exemplar_filter=AlwaysOnExemplarFilter())
    assert not method.is_batching
    method.run_rpcs(3)
    assert exemplars(method)


# -------------------------------------------------------------------------------------------------
# Other SDKs


def test_other_sdk_has_no_batches() -> None:
    plugin = OpenTelemetryPlugin(meter_provider=NoOpMeterProvider())
    assert plugin._batches is None
    plugin.bind((CALL_DURATION,), (PATH, TARGET, "OK"), ("",))((0.5,))


def test_sdk_with_other_insides_has_no_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def merge_wrongly(aggregation: Any, values: Any) -> None:  # noqa: ANN401
        raise AttributeError("_boundaries")

    batches._is_exact.cache_clear()
    monkeypatch.setattr(batches, "_merge", merge_wrongly)
    try:
        method = MeasuredMethod()
    finally:
        batches._is_exact.cache_clear()
    assert not method.is_batching
    assert caplog.text.count("recorded one by one") == 1
    monkeypatch.undo()
    method.run_rpcs(3)
    single = MeasuredMethod(one_by_one=True)
    single.run_rpcs(3)
    assert method.collect() == single.collect()


def test_sdk_without_the_names_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batches, "_is_exact", lambda: 1 // 0)
    assert not MeasuredMethod().is_batching
    assert "recorded one by one" in caplog.text
