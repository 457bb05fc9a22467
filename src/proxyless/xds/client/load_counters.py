"""Load counters of clusters, since the last report.

Specs: LRS v3, A27 (load reporting), A64, A85 (metrics of backends), LRS-01, LRS-02.

A picker looks up the counter of a locality once, and increments it for each RPC. A report resets
the counts, except for RPCs in progress.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from proxyless.xds.client.lrs_codec import ClusterStats, LocalityStats, MetricStats

if TYPE_CHECKING:
    from collections.abc import Callable

# Limits, because localities and drop categories come from a control plane, and names of metrics
# from backends.
LOCALITIES_MAX: Final = 3_000
CATEGORIES_MAX: Final = 1_000
# Metrics of one locality; and of all localities of a cluster, whose report is made in one turn.
NAMED_METRICS_MAX: Final = 1_000
REPORTED_METRICS_MAX: Final = 5_000

# Region, zone, sub-zone.
LocalityKey = tuple[str, str, str]
# By name: the number of requests with the metric, and the sum of its values.
MetricSums = dict[str, tuple[int, float]]


class LocalityLoad:
    """Counter of the RPCs to one locality of one cluster, and of the metrics of their backends."""

    __slots__ = (
        "_named_metrics",
        "_utilization",
        "errors",
        "in_progress",
        "issued",
        "succeeded",
    )

    def __init__(self) -> None:
        self.issued = 0
        self.succeeded = 0
        self.errors = 0
        self.in_progress = 0
        self._utilization: MetricSums = {}
        self._named_metrics: MetricSums = {}

    def on_start(self) -> None:
        self.issued += 1
        self.in_progress += 1

    def on_end(self, ok: bool) -> None:
        self.in_progress -= 1
        if ok:
            self.succeeded += 1
        else:
            self.errors += 1

    def add_utilization(self, name: str, value: float) -> None:
        """Add a metric that has a field of this name in UpstreamLocalityStats."""
        requests, total = self._utilization.get(name, (0, 0.0))
        self._utilization[name] = (requests + 1, total + value)

    def add_named_metric(self, name: str, value: float) -> None:
        requests, total = self._named_metrics.get(name, (0, 0.0))
        # A name beyond the limit is not reported.
        if requests or len(self._named_metrics) < NAMED_METRICS_MAX:
            self._named_metrics[name] = (requests + 1, total + value)

    @property
    def is_idle(self) -> bool:
        return not (self.issued or self.succeeded or self.errors or self.in_progress)

    def take(self, locality: LocalityKey, metrics_max: int = NAMED_METRICS_MAX) -> LocalityStats:
        """Return the counts, with at most this many named metrics, and reset them."""
        stats = LocalityStats(
            *locality,
            self.issued,
            self.succeeded,
            self.errors,
            self.in_progress,
            _metric_stats(self._utilization),
            _metric_stats(self._named_metrics, metrics_max),
        )
        self.issued = self.succeeded = self.errors = 0
        self._utilization.clear()
        self._named_metrics.clear()
        return stats


def _metric_stats(sums: MetricSums, count_max: int | None = None) -> tuple[MetricStats, ...]:
    return tuple(MetricStats(name, *each) for name, each in islice(sums.items(), count_max))


class ClusterLoad:
    """Counters of one cluster and EDS service, shared by its pickers."""

    def __init__(
        self, cluster: str, eds_service: str, now_s: float, on_unused: Callable[[], None]
    ) -> None:
        # Fixed at construction.
        self.cluster = cluster
        self.eds_service = eds_service
        self._on_unused = on_unused
        # Time of the last report.
        self._taken_s = now_s
        # Changed by the users.
        self.users = 0
        self._localities: dict[LocalityKey, LocalityLoad] = {}
        self._dropped: dict[str, int] = {}
        self._dropped_total = 0

    def drop(self, category: str | None) -> None:
        """Count a dropped RPC. The circuit breaker has no category."""
        self._dropped_total += 1
        if category is not None:
            count = self._dropped.get(category, 0)
            if count or len(self._dropped) < CATEGORIES_MAX:
                self._dropped[category] = count + 1

    def locality(self, locality: LocalityKey) -> LocalityLoad:
        load = self._localities.get(locality)
        if load is None:
            load = LocalityLoad()
            # Beyond the limit a counter works, but is not reported.
            if len(self._localities) < LOCALITIES_MAX:
                self._localities[locality] = load
        return load

    def release(self) -> None:
        """Called once for each time the counter was acquired."""
        if not self.users:
            raise ValueError(f"load of cluster {self.cluster!r} is released more than acquired")
        self.users -= 1
        if not self.users:
            self._on_unused()

    def take(self, now_s: float) -> ClusterStats | None:
        """Return the counts and reset them; None if nothing was counted."""
        interval_s, self._taken_s = now_s - self._taken_s, now_s
        localities: list[LocalityStats] = []
        metrics_left = REPORTED_METRICS_MAX
        for key, load in self._localities.items():
            if not load.is_idle:
                stats = load.take(key, metrics_left)
                metrics_left -= len(stats.named_metrics)
                localities.append(stats)
        dropped, self._dropped = tuple(self._dropped.items()), {}
        dropped_total, self._dropped_total = self._dropped_total, 0
        if not localities and not dropped_total:
            return None
        return ClusterStats(
            self.cluster, self.eds_service, tuple(localities), dropped_total, dropped, interval_s
        )
