"""Metric propagation: copies the metrics of per-call ORCA reports to the load of a locality.

Specs: A64, A85. Out-of-band reports are not copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.lb.orca import find_load_report
from proxyless.xds.lb.cluster_impl.call_counters import ClusterTracker

if TYPE_CHECKING:
    from proxyless.lb import CallEnd, LoadReport
    from proxyless.xds.client.load_counters import LocalityLoad
    from proxyless.xds.lb.cluster_impl.call_counters import CallCounter
    from proxyless.xds.resources.cluster import BackendMetricPropagation


def propagate_metrics(
    report: LoadReport, propagation: BackendMetricPropagation, load: LocalityLoad
) -> None:
    """Add the metrics of one RPC's report."""
    for name in propagation.utilization:
        load.add_utilization(name, report.metric(name))
    keys = propagation.named_metrics
    for key, value in report.named_metrics.items():
        if keys is None or key in keys:
            load.add_named_metric(propagation.prefix + key, value)


class MetricsTracker(ClusterTracker):
    """Also counts metrics of the ORCA reports in trailing metadata (A64, A85)."""

    __slots__ = ("_propagation",)

    def __init__(
        self, counter: CallCounter, load: LocalityLoad, propagation: BackendMetricPropagation
    ) -> None:
        super().__init__(counter, load)
        self._propagation = propagation

    def on_end(self, end: CallEnd) -> None:
        super().on_end(end)
        report = find_load_report(end.trailing_metadata)
        if report is not None and self._load is not None:
            propagate_metrics(report, self._propagation, self._load)
