"""Stats plugin for OpenTelemetry.

plugin = proxyless.otel.OpenTelemetryPlugin(meter_provider=meters, tracer_provider=tracers)
plugin.register_global()           # measures and traces channels that are created from now on

Specs: A66, A78, A79, A89, A91, A94, A96, A108. Needs `opentelemetry-api` (the extra `otel`).
Measures channels only: servers are grpcio's, and so are their metrics.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self, cast
from weakref import WeakKeyDictionary

from opentelemetry.context import get_current
from opentelemetry.metrics import Observation
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxyless.metrics import Kind, deregister_global, register_global
from proxyless.metrics.instruments import INSTRUMENTS, OTHER
from proxyless.metrics.plugins import record_safely
from proxyless.otel.batches import exemplars_need_context, find_batches
from proxyless.otel.tracing import OPTIONAL_ATTRIBUTES, TracedMethod, Tracing
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider

    from proxyless.metrics import Cancel, Instrument, Observe, StatsPlugin
    from proxyless.metrics.api import RecordValues

__all__ = ["OpenTelemetryPlugin"]

# An unknown name with one of these prefixes is a typing error.
_OURS: Final = ("grpc.", "proxyless.")


class OpenTelemetryPlugin:
    """Collects gRPC's metrics with a meter provider, and traces calls with a tracer provider.

    Without a provider nothing is collected: the global ones are never used (A66). The default are
    A66's metrics of RPCs; `enable_metrics` and `disable_metrics` change that, by name or by pattern
    (`grpc.xds_client.*`); `optional_labels` adds labels. The label of a method that no generated
    stub registered is "other" unless `generic_method_attribute_filter` returns True; that of a
    target if `target_attribute_filter` returns False. Channels whose target `channel_filter`
    rejects are not measured.
    """

    def __init__(  # noqa: PLR0913 - independent keywords
        self,
        *,
        meter_provider: MeterProvider | None = None,
        target_attribute_filter: Callable[[str], bool] | None = None,
        generic_method_attribute_filter: Callable[[str], bool] | None = None,
        channel_filter: Callable[[str], bool] | None = None,
        enable_metrics: Iterable[str] = (),
        disable_metrics: Iterable[str] = (),
        optional_labels: Iterable[str] = (),
        tracer_provider: TracerProvider | None = None,
        text_map_propagator: TextMapPropagator | None = None,
        span_attributes: Iterable[str] = (),
        trace_delays: bool = False,
    ) -> None:
        """Raises ValueError for a name of a metric, label or attribute that does not exist.

        Trace contexts are propagated by `text_map_propagator`; the default is that of W3C. The
        spans are those of A72; `span_attributes` adds our own attributes, and `trace_delays` spans
        of delays (A121, a draft).
        """
        # Fixed at construction.
        self._meter: Final[Meter | None] = (
            None if meter_provider is None else meter_provider.get_meter("proxyless", __version__)
        )
        self._shared: Final = None if self._meter is None else _find_shared(self._meter)
        # None if each measurement is recorded on its own.
        self._batches: Final = None if self._shared is None else self._shared.batches
        # RPCs in a sampled span are recorded on their own, as candidates for exemplars.
        needs_context = self._meter is not None and exemplars_need_context(self._meter)
        self.current_context: Final = get_current if needs_context else None
        self._filter_target: Final = target_attribute_filter
        self._filter_method: Final = generic_method_attribute_filter
        self._filter_channel: Final = channel_filter
        self._enabled: Final = _check_patterns(enable_metrics)
        self._disabled: Final = _check_patterns(disable_metrics)
        self._optional_labels: Final = _check_labels(optional_labels)
        attributes = _check_attributes(span_attributes)
        self._tracing: Final = (
            None
            if tracer_provider is None
            else Tracing(
                tracer_provider.get_tracer("proxyless", __version__),
                text_map_propagator or TraceContextTextMapPropagator(),
                attributes,
                has_delays=trace_delays,
            )
        )
        # Created when first used; None for an instrument that is not collected.
        self._streams: dict[Instrument, _Stream | None] = {}

    # For the application

    def register_global(self) -> None:
        """Measure every channel that this process creates from now on.

        Several plugins may be registered. Raises RuntimeError if this one is already.
        """
        register_global(self)

    def deregister_global(self) -> None:
        """Measure no channel that is created from now on; existing ones stay measured.

        Raises RuntimeError if the plugin is not registered.
        """
        deregister_global(self)

    def __enter__(self) -> Self:
        self.register_global()
        return self

    def __exit__(self, *_: object) -> None:
        self.deregister_global()

    # Called by channels (`metrics.StatsPlugin`)

    def is_interested_in(self, target: str) -> bool:
        if self._meter is None and self._tracing is None:
            return False
        return self._filter_channel is None or self._filter_channel(target)

    def label_target(self, target: str) -> str:
        is_named = self._filter_target is None or self._filter_target(target)
        return target if is_named else OTHER

    def label_method(self, path: str, *, is_registered: bool) -> str:
        # "e.g. "google.bigtable.v2.Bigtable/CheckAndMutateRow"" - A66
        name = path.removeprefix("/")
        if is_registered or (self._filter_method is not None and self._filter_method(name)):
            return name
        return OTHER

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        stream = self._find_stream(instrument)
        if stream is not None:
            stream.measure(value, stream.attributes(labels, optional_labels))

    count = record

    def bind(
        self,
        instruments: Sequence[Instrument],
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> RecordValues:
        streams = [self._find_stream(each) for each in instruments]
        collected = [each for each in streams if each is not None]
        if not collected:
            return _ignore
        attributes = collected[0].attributes(labels, optional_labels)
        if self._batches is not None:
            chosen = [None if each is None else each.measure.__self__ for each in streams]
            add = self._batches.bind(chosen, attributes)
            if add is not None:
                return add

        def record_each(values: tuple[float, ...]) -> None:
            for instrument, value in zip(instruments, values, strict=True):
                record_safely(self.record, instrument, value, labels, optional_labels)

        return record_each

    def in_current_context(self) -> StatsPlugin:
        context = get_current()
        if not context or not get_current_span(context).get_span_context().trace_flags.sampled:
            return self
        return cast("StatsPlugin", _InContext(self, context))

    def _record_in(
        self,
        context: Context,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Record one value at once, in a context whose span is sampled."""
        stream = self._find_stream(instrument)
        if stream is not None:
            stream.measure(value, stream.attributes(labels, optional_labels), context)

    @property
    def is_measuring(self) -> bool:
        return self._meter is not None

    @property
    def is_tracing(self) -> bool:
        return self._tracing is not None

    def trace_method(self, path: str) -> TracedMethod:
        assert self._tracing is not None, "called only if `is_tracing`"
        return TracedMethod(self._tracing, path)

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        streams = [stream for each in gauges if (stream := self._find_stream(each)) is not None]
        with _LOCK:
            for stream in streams:
                stream.observers = (*stream.observers, observe)

        def cancel() -> None:
            with _LOCK:
                for stream in streams:
                    others = (each for each in stream.observers if each is not observe)
                    stream.observers = tuple(others)

        return cancel

    # Instruments

    def _find_stream(self, instrument: Instrument) -> _Stream | None:
        try:
            return self._streams[instrument]
        except KeyError:
            # Created once: OpenTelemetry logs a warning for a second one of the same name.
            with _LOCK:
                if instrument not in self._streams:
                    self._streams[instrument] = self._make_stream(instrument)
                return self._streams[instrument]

    def _make_stream(self, instrument: Instrument) -> _Stream | None:
        if self._meter is None or self._shared is None or not self._is_collected(instrument):
            return None
        # Gauges have no optional labels.
        gauges = self._shared.gauges if instrument.kind is Kind.GAUGE else {}
        stream = gauges.get(instrument)
        if stream is None:
            stream = gauges[instrument] = _Stream(self._meter, instrument, self._optional_labels)
        return stream

    def _is_collected(self, instrument: Instrument) -> bool:
        name = instrument.name
        if any(fnmatchcase(name, pattern) for pattern in self._disabled):
            return False
        if instrument.is_replaced:
            # A pattern includes what has replaced it, and one of the two is enough.
            return name in self._enabled
        return instrument.is_default or any(fnmatchcase(name, each) for each in self._enabled)


class _InContext:
    """A plugin for one RPC, whose measurements may become exemplars of a sampled span."""

    __slots__ = ("_context", "_plugin")

    def __init__(self, plugin: OpenTelemetryPlugin, context: Context) -> None:
        self._plugin: Final = plugin
        self._context: Final = context

    def record(self, instrument: Instrument, *measurement: Any) -> None:  # noqa: ANN401
        self._plugin._record_in(self._context, instrument, *measurement)  # noqa: SLF001

    count = record


def _ignore(_values: tuple[float, ...]) -> None:
    """No instrument is collected."""


class _Stream:
    """The OpenTelemetry instrument of one of our instruments."""

    __slots__ = ("_definition", "_optional", "measure", "observers")

    def __init__(self, meter: Meter, definition: Instrument, optional: frozenset[str]) -> None:
        # Fixed at construction.
        self._definition: Final = definition
        # Index and name of each optional label that is enabled.
        self._optional: Final = tuple(
            (index, name)
            for index, name in enumerate(definition.optional_labels)
            if name in optional
        )
        self.measure: Final = self._create(meter)
        # Callbacks of a gauge. Replaced, never changed: readers iterate it in their own threads.
        self.observers: tuple[Observe, ...] = ()

    def _create(self, meter: Meter) -> Any:  # noqa: ANN401 - the type depends on the kind
        """Create the instrument; return its method that records a value (of a gauge: the gauge)."""
        definition = self._definition
        texts = {"unit": definition.unit, "description": definition.description}
        match definition.kind:
            case Kind.COUNTER:
                return meter.create_counter(definition.name, **texts).add
            case Kind.UP_DOWN_COUNTER:
                return meter.create_up_down_counter(definition.name, **texts).add
            case Kind.HISTOGRAM:
                boundaries = list(definition.boundaries) or None
                return meter.create_histogram(
                    definition.name, **texts, explicit_bucket_boundaries_advisory=boundaries
                ).record
            case Kind.GAUGE:
                return meter.create_observable_gauge(definition.name, [self._observe], **texts)

    def attributes(
        self, labels: Sequence[str], optional_labels: Sequence[str] = ()
    ) -> dict[str, str]:
        found = dict(zip(self._definition.labels, labels, strict=True))
        for index, name in self._optional:
            found[name] = optional_labels[index]
        return found

    def _observe(self, _options: CallbackOptions) -> list[Observation]:
        """The current values of a gauge. Called by a metric reader, in its thread."""
        # Clients of one target on two loops have the same labels and resources: the last one is
        # reported.
        found: dict[tuple[str, ...], int] = {}

        def report(instrument: Instrument, value: int, labels: Sequence[str]) -> None:
            if instrument is self._definition:
                found[tuple(labels)] = value

        for observe in self.observers:
            observe(report)
        return [Observation(value, self.attributes(labels)) for labels, value in found.items()]


class _Shared:
    """Instruments with callbacks, shared by the plugins of one meter.

    A provider has one meter for all plugins. The SDK creates an instrument once per name, and drops
    the callbacks that are given with the name again.
    """

    __slots__ = ("batches", "gauges")

    def __init__(self, meter: Meter) -> None:
        self.batches: Final = find_batches(meter)
        self.gauges: Final[dict[Instrument, _Stream]] = {}


# Nothing in a value refers to its meter, so it is freed with its provider.
_SHARED: Final[WeakKeyDictionary[Meter, _Shared]] = WeakKeyDictionary()
# Held while a stream is created or its observers change: channels are in several threads.
_LOCK: Final = Lock()


def _find_shared(meter: Meter) -> _Shared:
    with _LOCK:
        found = _SHARED.get(meter)
        if found is None:
            found = _SHARED[meter] = _Shared(meter)
        return found


_METRICS: Final = frozenset(each.name for each in INSTRUMENTS)
_LABELS: Final = frozenset(label for each in INSTRUMENTS for label in each.optional_labels)


def _check_patterns(patterns: Iterable[str]) -> frozenset[str]:
    """The set of these names and patterns. One of gRPC must match an instrument.

    Applications may have instruments of their own.
    """
    chosen = _check_texts("metric", patterns)
    for each in sorted(chosen):
        if each.startswith(_OURS) and not any(fnmatchcase(name, each) for name in _METRICS):
            raise _unknown("metric", each, _METRICS)
    return chosen


def _check_labels(names: Iterable[str]) -> frozenset[str]:
    chosen = _check_texts("label", names)
    for each in sorted(chosen):
        if each.startswith(_OURS) and each not in _LABELS:
            raise _unknown("label", each, _LABELS)
    return chosen


def _check_attributes(names: Iterable[str]) -> frozenset[str]:
    chosen = _check_texts("attribute", names)
    for each in sorted(chosen - OPTIONAL_ATTRIBUTES):
        raise _unknown("attribute", each, OPTIONAL_ATTRIBUTES)
    return chosen


def _check_texts(what: str, names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"{what}s are the text {names!r}, wanted a list of names")
    return frozenset(names)


def _unknown(what: str, name: str, known: frozenset[str]) -> ValueError:
    wanted = ", ".join(sorted(known))
    return ValueError(f"{what} {name!r} is not known, wanted one of {wanted}")
