"""Statistics over the rounds of one client on one workload: medians and spread. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements of one turn, taken in the client's process."""

    operations: int
    # User and system time of the whole client process, all threads included.
    cpu_s: float
    wall_s: float
    # Latencies are taken in a second, shorter pass, so that `cpu_s` does not include them.
    p50_us: float | None = None
    p99_us: float | None = None
    # The backend's share of one core; near 1 the backend limits the rate.
    backend_busy: float | None = None

    @property
    def cpu_us(self) -> float:
        """Client CPU per operation."""
        return self.cpu_s / self.operations * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians over the rounds."""

    # CPU per operation: the median, and the value of each round.
    cpu_us: float
    cpu_us_rounds: tuple[float, ...]
    rate_per_s: float
    p50_us: float | None
    p99_us: float | None
    backend_busy: float | None

    @property
    def per_cpu_s(self) -> float:
        """Operations per CPU-second of the client."""
        return MICROSECONDS / self.cpu_us

    @property
    def spread(self) -> float:
        """Difference of the extremes of CPU per operation, as a share of the median."""
        return (max(self.cpu_us_rounds) - min(self.cpu_us_rounds)) / self.cpu_us

    def megabytes_per_cpu_s(self, size_bytes: int) -> float:
        """Payload in units of 10^6 bytes: a byte per microsecond is a MB per second."""
        return size_bytes / self.cpu_us


def summarise(samples: Sequence[Sample]) -> Summary:
    """Medians of at least one sample; None for a column that is missing in a round."""
    assert samples, "a summary is made of at least one round"
    cpu_us_rounds = tuple(sample.cpu_us for sample in samples)
    return Summary(
        cpu_us=median(cpu_us_rounds),
        cpu_us_rounds=cpu_us_rounds,
        rate_per_s=median(sample.operations / sample.wall_s for sample in samples),
        p50_us=_median_if_complete([sample.p50_us for sample in samples]),
        p99_us=_median_if_complete([sample.p99_us for sample in samples]),
        backend_busy=_median_if_complete([sample.backend_busy for sample in samples]),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values that a share of them does not exceed (nearest rank)."""
    assert ordered, "a percentile is taken of at least one value"
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


def _median_if_complete(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if len(present) == len(values) else None
