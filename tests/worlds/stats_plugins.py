"""Stats plugin that records all measurements."""

from collections.abc import Sequence

from proxyless.metrics import Cancel, Instrument, Metrics, Observe

TARGET = "xds:///orders"

# Label values, then values of the optional labels.
Measured = tuple[str, ...]


class RecordingPlugin:
    """Records every measurement, in order."""

    def __init__(self, *, named: bool = True) -> None:
        self._is_named = named
        self._counted: list[tuple[str, Measured, int]] = []
        self._recorded: list[tuple[str, Measured, float]] = []
        self._observed: list[tuple[Sequence[Instrument], Observe]] = []
        # Names of the instruments, in order of measurement.
        self.order: list[str] = []

    # For channels

    def is_interested_in(self, target: str) -> bool:
        return True

    def label_target(self, target: str) -> str:
        return target

    def label_method(self, path: str, *, is_registered: bool) -> str:
        return path[1:] if self._is_named or is_registered else "other"

    def count(
        self,
        instrument: Instrument,
        value: int,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        self._check(instrument, labels, optional_labels)
        self._counted.append((instrument.name, (*labels, *optional_labels), value))

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        self._check(instrument, labels, optional_labels)
        self._recorded.append((instrument.name, (*labels, *optional_labels), value))

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        watched = (gauges, observe)
        self._observed.append(watched)
        return lambda: self._observed.remove(watched)

    def _check(
        self, instrument: Instrument, labels: Sequence[str], optional_labels: Sequence[str]
    ) -> None:
        assert len(labels) == len(instrument.labels)
        assert len(optional_labels) == len(instrument.optional_labels)
        self.order.append(instrument.name)

    # For tests

    @property
    def metrics(self) -> Metrics:
        """Metrics of a channel with this plugin."""
        return Metrics(TARGET, [self])

    def counts(self, instrument: Instrument) -> dict[Measured, int]:
        found: dict[Measured, int] = {}
        for name, labels, value in self._counted:
            if name == instrument.name:
                found[labels] = found.get(labels, 0) + value
        return found

    def count_of(self, instrument: Instrument) -> int:
        return sum(self.counts(instrument).values())

    def values(self, instrument: Instrument) -> list[tuple[Measured, float]]:
        return [
            (labels, value) for name, labels, value in self._recorded if name == instrument.name
        ]

    def gauges(self, instrument: Instrument) -> dict[Measured, int]:
        """The current values of the gauge."""
        found: dict[Measured, int] = {}

        def report(reported: Instrument, value: int, labels: Sequence[str]) -> None:
            assert len(labels) == len(reported.labels)
            if reported is instrument:
                found[tuple(labels)] = value

        for gauges, observe in self._observed:
            if instrument in gauges:
                observe(report)
        return found
