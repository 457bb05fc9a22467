"""Metric propagation: copies the metrics of per-call ORCA reports to the load of a locality.

Specs: A64, A85. Out-of-band reports are not copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.lb import LoadReport
    from proxyless.xds.client.load_counters import LocalityLoad
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
