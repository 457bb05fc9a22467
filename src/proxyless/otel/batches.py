"""Batches of measurements: kept while RPCs run, and aggregated when a metric reader collects.

`record` of OpenTelemetry's SDK takes about 10 µs, and an RPC has five measurements. A batch keeps
the values of one attribute set in a list. They are added to the SDK's own aggregations all at once:
when a reader collects (in the callback of an observable instrument, which the SDK calls first), or
when the list is long. Values, not buckets, are kept, so that views with other boundaries are exact.

The SDK has no method that takes many values, so `_merge` uses names of the SDK that are not public.
`find_batches` compares its result with that of `record`, once per process; if the names are not
there or the results differ, or if the provider's exemplar filter needs every measurement, there are
no batches. See docs/adr/0028-measurements-are-handed-over-in-batches.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, Meter, Observation

    from proxyless.metrics.api import RecordValues

LOGGER: Final = logging.getLogger("proxyless.otel")

# RPCs in one batch. Bounds the memory, and the time that the last RPC of a batch takes.
PENDING_MAX: Final = 1_000
# The default cardinality limit of the SDK. Attribute sets beyond are recorded one by one.
BATCHES_MAX: Final = 2_000

# Never exported: it observes nothing.
_HOOK_NAME: Final = "proxyless.otel.collection"
# A context without a span. Not empty, because the SDK replaces an empty one by the current one.
_NO_SPAN: Final = Context({"proxyless": True})


class Batch:
    """Measurements of some instruments with the same attributes, in order."""

    __slots__ = ("_attributes", "_instruments", "_lock", "_pending", "_pending_max")

    def __init__(self, instruments: Sequence[Any], attributes: dict[str, str]) -> None:
        # Fixed at construction. None for an instrument that is not collected.
        self._instruments: Final = instruments
        self._attributes: Final = attributes
        # Held while values are moved.
        self._lock: Final = Lock()
        # One number per instrument, then those of the next measurement: a tuple for each would be
        # work for the garbage collector. Changed with atomic operations of a list, because RPCs and
        # readers are in several threads.
        self._pending: list[float] = []
        self._pending_max: Final = PENDING_MAX * len(instruments)
        for instrument in instruments:
            if instrument is not None:
                # From now on the SDK has the attribute set: the start time of its points.
                _touch(instrument, attributes)

    def add(self, values: tuple[float, ...]) -> None:
        """One value per instrument."""
        pending = self._pending
        pending.extend(values)
        # If another thread is flushing, the next call does it.
        if len(pending) >= self._pending_max and self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        size = len(self._pending)
        if not size:
            return
        taken = self._pending[:size]
        del self._pending[:size]
        for index, instrument in enumerate(self._instruments):
            if instrument is not None:
                values = taken[index :: len(self._instruments)]
                _record_all(instrument, self._attributes, values)


class Batches:
    """The batches of a meter. One for each, because its hook is created once."""

    __slots__ = ("_batches",)

    def __init__(self, meter: Meter) -> None:
        # By instruments and attributes. Only added to, with atomic operations.
        self._batches: dict[object, Batch] = {}
        meter.create_observable_gauge(_HOOK_NAME, [self._on_collection])

    def bind(self, instruments: Sequence[Any], attributes: dict[str, str]) -> RecordValues | None:
        """The method that adds to a batch; None if there are too many."""
        key = (tuple(instruments), tuple(attributes.items()))
        batch = self._batches.get(key)
        if batch is None:
            if len(self._batches) >= BATCHES_MAX:
                return None
            batch = self._batches.setdefault(key, Batch(instruments, attributes))
        return batch.add

    def _on_collection(self, _options: CallbackOptions) -> Iterable[Observation]:
        """Called in the thread of a metric reader, before it reads the aggregations."""
        for batch in list(self._batches.values()):
            try:
                batch.flush()
            except Exception:
                # Its values are lost. Those of other batches are not.
                LOGGER.exception("a batch of measurements cannot be recorded")
        return ()


def find_batches(meter: Meter) -> Batches | None:
    """Batches for the instruments of this meter; None if each value has to be recorded."""
    if not type(meter).__module__.startswith("opentelemetry.sdk."):
        return None
    try:
        return Batches(meter) if _has_optional_exemplars(meter) and _is_exact() else None
    except Exception:
        # The SDK may have changed in any way.
        LOGGER.warning("measurements are recorded one by one: this SDK is not known", exc_info=True)
        return None


def exemplars_need_context(meter: Meter) -> bool:
    """Whether a measurement in the context of a sampled span may become an exemplar."""
    try:
        return not _names_exemplar_filter(meter, "AlwaysOffExemplarFilter")
    except AttributeError:
        return True


def _has_optional_exemplars(meter: Meter) -> bool:
    """Whether measurements outside of a sampled span are kept from the exemplar reservoir."""
    return _names_exemplar_filter(meter, "AlwaysOffExemplarFilter", "TraceBasedExemplarFilter")


def _names_exemplar_filter(meter: Any, *names: str) -> bool:  # noqa: ANN401 - of the SDK
    kind = type(meter._measurement_consumer._sdk_config.exemplar_filter)  # noqa: SLF001
    return kind.__name__ in names and kind.__module__.startswith("opentelemetry.sdk.")


# Names of the SDK that are not public


def _matches(instrument: Any) -> Iterator[Any]:  # noqa: ANN401
    """The streams of an instrument: one per reader and view."""
    for storage in instrument._measurement_consumer._reader_storages.values():  # noqa: SLF001
        yield from storage._get_or_init_view_instrument_match(instrument)  # noqa: SLF001


def _touch(instrument: Any, attributes: dict[str, str]) -> None:  # noqa: ANN401
    for match in _matches(instrument):
        with match._lock:  # noqa: SLF001
            _find_aggregation(match, attributes)


def _find_aggregation(match: Any, attributes: dict[str, str]) -> Any:  # noqa: ANN401
    """The aggregation of these attributes, after the view. The lock of the stream is held."""
    from opentelemetry.sdk.metrics._internal import _view_instrument_match as module  # noqa: PLC0415

    keys = match._view._attribute_keys  # noqa: SLF001
    if keys is not None:
        attributes = {key: value for key, value in attributes.items() if key in keys}
    key = module._hash_attributes(attributes)  # noqa: SLF001
    return match._get_or_create_aggregation(key, dict(attributes))  # noqa: SLF001


def _record_all(instrument: Any, attributes: dict[str, str], values: Sequence[float]) -> None:  # noqa: ANN401
    """The same as to record each value, outside of a span."""
    if not instrument._is_enabled():  # noqa: SLF001
        return
    is_counter = hasattr(instrument, "add")
    bulk = "_SumAggregation" if is_counter else "_ExplicitBucketHistogramAggregation"
    matches = [
        match
        for match in _matches(instrument)
        if type(match._aggregation).__name__ != "_DropAggregation"  # noqa: SLF001
    ]
    is_bulk = all(type(match._aggregation).__name__ == bulk for match in matches)  # noqa: SLF001
    if is_counter:
        for value in (sum(values),) if is_bulk else values:
            instrument.add(value, attributes, _NO_SPAN)
    elif is_bulk and min(values) >= 0:
        for match in matches:
            with match._lock:  # noqa: SLF001
                _merge(_find_aggregation(match, attributes), values)
    else:
        for value in values:
            instrument.record(value, attributes, _NO_SPAN)


def _merge(aggregation: Any, values: Sequence[float]) -> None:  # noqa: ANN401
    """The same as `aggregate` for each value: a histogram with explicit boundaries."""
    boundaries = aggregation._boundaries  # noqa: SLF001
    # Sorted, because looking up each boundary among the values is faster than each value among the
    # boundaries.
    values = sorted(values)
    with aggregation._lock:  # noqa: SLF001
        if aggregation._value is None:  # noqa: SLF001
            aggregation._value = [0] * (len(boundaries) + 1)  # noqa: SLF001
        counts, counted = aggregation._value, 0  # noqa: SLF001
        for index, boundary in enumerate(boundaries):
            # A bucket includes its upper boundary.
            until = bisect_right(values, boundary, counted)
            counts[index] += until - counted
            counted = until
        counts[-1] += len(values) - counted
        aggregation._sum += sum(values)  # noqa: SLF001
        if aggregation._record_min_max:  # noqa: SLF001
            aggregation._min = min(aggregation._min, values[0])  # noqa: SLF001
            aggregation._max = max(aggregation._max, values[-1])  # noqa: SLF001


@cache
def _is_exact() -> bool:
    """Whether a batch gives the points that the same values give one by one."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - not without its user
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    readers = InMemoryMetricReader(), InMemoryMetricReader()
    values, attributes = (0, 1, 2, 300), {"key": "value"}
    for reader in readers:
        provider = MeterProvider([reader], Resource.get_empty(), shutdown_on_exit=False)
        meter = provider.get_meter("proxyless")
        histogram: Any = meter.create_histogram("h", explicit_bucket_boundaries_advisory=[1, 100])
        counter: Any = meter.create_counter("c")
        if reader is readers[0]:
            batches = Batches(meter)
            add = batches.bind((histogram, counter), attributes)
            assert add is not None, "there is no batch yet"
            for value in values:
                add((value, value))
        else:
            for value in values:
                histogram.record(value, attributes)
                counter.add(value, attributes)
    batched, single = (_describe(reader.get_metrics_data()) for reader in readers)
    if batched != single:
        LOGGER.warning("measurements are recorded one by one: this SDK is not known")
    return batched == single


def _describe(data: Any) -> list[object]:  # noqa: ANN401
    """All numbers of the points but their times."""
    names = ("attributes", "value", "count", "sum", "min", "max", "bucket_counts")
    return [
        (metric.name, *(getattr(point, name, None) for name in names))
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    ]
