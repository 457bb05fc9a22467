"""Metrics through OpenTelemetry, as gRPC names them.

plugin = proxyless.otel.OpenTelemetryPlugin(meter_provider=provider)
plugin.register_global()                      # channels that are made from now on are measured

Specs: A66, A78, A79, A89. Needs `opentelemetry-api` (the extra `otel`), and nothing imports this
module but who wants it. Channels only: servers are grpcio's, and so are their metrics.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

try:
    from opentelemetry.metrics import Observation
except ImportError as error:
    text = "proxyless.otel needs opentelemetry-api: pip install 'proxyless[otel]'"
    raise ImportError(text) from error

from proxyless.metrics import Kind, deregister_global, register_global
from proxyless.metrics.instruments import INSTRUMENTS, OTHER
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider

    from proxyless.metrics import Cancel, Instrument, Observe

__all__ = ["OpenTelemetryPlugin"]

# Names that are gRPC's: whoever writes one that is not known has mistyped it.
_GRPC: Final = "grpc."


class OpenTelemetryPlugin:
    """Collects gRPC's metrics with a meter provider. Driven by channels and by its readers.

    Without a provider nothing is collected: the process-wide one is never used (A66). What is
    measured by default are A66's metrics of RPCs; `enable_metrics` and `disable_metrics` name
    others, `optional_labels` what else they are told apart by. A generic method, which no generated
    stub has registered, is called "other" unless its filter says True; a target, if its filter
    says False. Channels whose target the channel filter refuses are not measured.
    """

    def __init__(  # noqa: PLR0913 - keywords, each of its own
        self,
        *,
        meter_provider: MeterProvider | None = None,
        target_attribute_filter: Callable[[str], bool] | None = None,
        generic_method_attribute_filter: Callable[[str], bool] | None = None,
        channel_filter: Callable[[str], bool] | None = None,
        enable_metrics: Iterable[str] = (),
        disable_metrics: Iterable[str] = (),
        optional_labels: Iterable[str] = (),
    ) -> None:
        """Raises ValueError for a name of a metric or a label that gRPC does not have."""
        # Fixed at construction.
        self._meter: Final[Meter | None] = (
            None if meter_provider is None else meter_provider.get_meter("proxyless", __version__)
        )
        self._filter_target: Final = target_attribute_filter
        self._filter_method: Final = generic_method_attribute_filter
        self._filter_channel: Final = channel_filter
        self._enabled: Final = _check_names("metric", enable_metrics, _METRICS)
        self._disabled: Final = _check_names("metric", disable_metrics, _METRICS)
        self._optional_labels: Final = _check_names("label", optional_labels, _LABELS)
        # Made when they are first needed; None of one that is not collected.
        self._streams: dict[Instrument, _Stream | None] = {}
        # Held while one is made, or hears of another client: channels live in several threads.
        self._changing: Final = Lock()

    # For the application

    def register_global(self) -> None:
        """Measure every channel that this process makes from now on.

        Several plugins may be registered. Raises RuntimeError if this one is already.
        """
        register_global(self)

    def deregister_global(self) -> None:
        """Measure no channel that is made from now on; those that are there stay measured.

        Raises RuntimeError if the plugin is not registered.
        """
        deregister_global(self)

    def __enter__(self) -> Self:
        self.register_global()
        return self

    def __exit__(self, *_: object) -> None:
        self.deregister_global()

    # For channels (`metrics.StatsPlugin`)

    def is_interested_in(self, target: str) -> bool:
        if self._meter is None:
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

    def count(
        self,
        instrument: Instrument,
        value: int,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        stream = self._find_stream(instrument)
        if stream is not None:
            stream.instrument.add(value, stream.attributes(labels, optional_labels))

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        stream = self._find_stream(instrument)
        if stream is not None:
            stream.instrument.record(value, stream.attributes(labels, optional_labels))

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        streams = [stream for each in gauges if (stream := self._find_stream(each)) is not None]
        with self._changing:
            for stream in streams:
                stream.observed = (*stream.observed, observe)

        def cancel() -> None:
            with self._changing:
                for stream in streams:
                    others = (each for each in stream.observed if each is not observe)
                    stream.observed = tuple(others)

        return cancel

    # Instruments

    def _find_stream(self, instrument: Instrument) -> _Stream | None:
        try:
            return self._streams[instrument]
        except KeyError:
            # OpenTelemetry warns of a second one with the same name.
            with self._changing:
                if instrument not in self._streams:
                    self._streams[instrument] = self._make_stream(instrument)
                return self._streams[instrument]

    def _make_stream(self, instrument: Instrument) -> _Stream | None:
        name = instrument.name
        is_collected = instrument.is_default or name in self._enabled
        if self._meter is None or not is_collected or name in self._disabled:
            return None
        return _Stream(self._meter, instrument, self._optional_labels)


class _Stream:
    """One instrument of ours, as an instrument of OpenTelemetry's. Driven by the plugin."""

    __slots__ = ("_definition", "_optional", "instrument", "observed")

    def __init__(self, meter: Meter, definition: Instrument, optional: frozenset[str]) -> None:
        # Fixed at construction.
        self._definition: Final = definition
        # The places of the optional labels that are wanted, and their names.
        self._optional: Final = tuple(
            (place, name)
            for place, name in enumerate(definition.optional_labels)
            if name in optional
        )
        self.instrument: Final = self._create(meter)
        # Of a gauge: who knows its values. Replaced, never changed: readers have their own threads.
        self.observed: tuple[Observe, ...] = ()

    def _create(self, meter: Meter) -> Any:  # noqa: ANN401 - as the kind is
        definition = self._definition
        said = {"unit": definition.unit, "description": definition.description}
        match definition.kind:
            case Kind.COUNTER:
                return meter.create_counter(definition.name, **said)
            case Kind.HISTOGRAM:
                boundaries = list(definition.boundaries) or None
                return meter.create_histogram(
                    definition.name, **said, explicit_bucket_boundaries_advisory=boundaries
                )
            case Kind.GAUGE:
                return meter.create_observable_gauge(definition.name, [self._observe], **said)

    def attributes(
        self, labels: Sequence[str], optional_labels: Sequence[str] = ()
    ) -> dict[str, str]:
        found = dict(zip(self._definition.labels, labels, strict=True))
        for place, name in self._optional:
            found[name] = optional_labels[place]
        return found

    def _observe(self, _options: CallbackOptions) -> list[Observation]:
        """What the gauge is now. Called by a reader, in its thread."""
        # Clients of one target on two loops have the same labels, and the same resources: one of
        # them speaks for both.
        found: dict[tuple[str, ...], int] = {}

        def report(instrument: Instrument, value: int, labels: Sequence[str]) -> None:
            if instrument is self._definition:
                found[tuple(labels)] = value

        for observe in self.observed:
            observe(report)
        return [Observation(value, self.attributes(labels)) for labels, value in found.items()]


_METRICS: Final = frozenset(each.name for each in INSTRUMENTS)
_LABELS: Final = frozenset(label for each in INSTRUMENTS for label in each.optional_labels)


def _check_names(what: str, names: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    """The names. Those of gRPC's must be known; policies of applications may have their own."""
    if isinstance(names, str):
        raise TypeError(f"{what}s are the text {names!r}, wanted a list of names")
    chosen = frozenset(names)
    unknown = sorted(each for each in chosen if each.startswith(_GRPC) and each not in known)
    if unknown:
        wanted = ", ".join(sorted(known))
        raise ValueError(f"{what} {unknown[0]!r} is not known, wanted one of {wanted}")
    return chosen
