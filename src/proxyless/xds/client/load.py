"""Load counters of clusters, since the last report.

Specs: LRS v3, A27 (load reporting), A64 (named metrics), LRS-01, LRS-02.

Plain counters, cheap enough for every RPC: a picker looks up a locality's counter once and then
only adds to it. A report resets the counts, except for RPCs in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.xds.client.codec import ClusterStats, LocalityStats

if TYPE_CHECKING:
    from collections.abc import Callable

# Who counts is configured by a control plane, so what is counted has limits.
LOCALITIES_MAX: Final = 10_000
CATEGORIES_MAX: Final = 1_000
METRICS_MAX: Final = 100

# Region, zone, sub-zone.
LocalityKey = tuple[str, str, str]


class LocalityLoad:
    """The RPCs sent to one locality of one cluster. Called by the cluster's picker."""

    __slots__ = ("errors", "in_progress", "issued", "metrics", "succeeded")

    def __init__(self) -> None:
        self.issued = 0
        self.succeeded = 0
        self.errors = 0
        self.in_progress = 0
        # By name: how many RPCs brought a value, and the sum of the values.
        self.metrics: dict[str, tuple[int, float]] = {}

    def on_start(self) -> None:
        """An RPC was sent there."""
        self.issued += 1
        self.in_progress += 1

    def on_end(self, ok: bool) -> None:
        """An RPC that was started has ended."""
        self.in_progress -= 1
        if ok:
            self.succeeded += 1
        else:
            self.errors += 1

    def add_metric(self, name: str, value: float) -> None:
        """A backend reported this about an RPC. Past the limit, only known names count."""
        count, total = self.metrics.get(name, (0, 0.0))
        if count or len(self.metrics) < METRICS_MAX:
            self.metrics[name] = (count + 1, total + value)

    @property
    def is_idle(self) -> bool:
        return not (
            self.issued or self.succeeded or self.errors or self.in_progress or self.metrics
        )

    def take(self, locality: LocalityKey) -> LocalityStats:
        """The counts since they were taken last."""
        metrics = tuple((name, *counts) for name, counts in self.metrics.items())
        stats = LocalityStats(
            *locality, self.issued, self.succeeded, self.errors, self.in_progress, metrics
        )
        self.issued = self.succeeded = self.errors = 0
        self.metrics = {}
        return stats


class ClusterLoad:
    """What happened to the RPCs of one cluster and EDS service. Shared by all who count there."""

    def __init__(
        self, cluster: str, eds_service: str, now_s: float, on_unused: Callable[[], None]
    ) -> None:
        # Fixed at construction.
        self.cluster = cluster
        self.eds_service = eds_service
        self._on_unused = on_unused
        # Changed by the reports.
        self._taken_s = now_s
        # Changed by those who count.
        self.users = 0
        self._localities: dict[LocalityKey, LocalityLoad] = {}
        self._dropped: dict[str, int] = {}
        self._dropped_total = 0

    def drop(self, category: str | None) -> None:
        """An RPC was dropped: for a reason with a name, or because of the circuit breaker."""
        self._dropped_total += 1
        if category is not None:
            count = self._dropped.get(category, 0)
            if count or len(self._dropped) < CATEGORIES_MAX:
                self._dropped[category] = count + 1

    def locality(self, locality: LocalityKey) -> LocalityLoad:
        """Where to count the RPCs of a locality: always the same object for the same one."""
        load = self._localities.get(locality)
        if load is None:
            load = LocalityLoad()
            # Past the limit it counts, and is not reported.
            if len(self._localities) < LOCALITIES_MAX:
                self._localities[locality] = load
        return load

    def release(self) -> None:
        """Give it back, once for each time it was acquired."""
        if not self.users:
            raise ValueError(f"load of cluster {self.cluster!r} is released more than acquired")
        self.users -= 1
        if not self.users:
            self._on_unused()

    def take(self, now_s: float) -> ClusterStats | None:
        """What happened since it was taken last; None if nothing did."""
        interval_s, self._taken_s = now_s - self._taken_s, now_s
        localities = tuple(
            load.take(key) for key, load in self._localities.items() if not load.is_idle
        )
        dropped, self._dropped = tuple(self._dropped.items()), {}
        dropped_total, self._dropped_total = self._dropped_total, 0
        if not localities and not dropped_total:
            return None
        return ClusterStats(
            self.cluster, self.eds_service, localities, dropped_total, dropped, interval_s
        )
