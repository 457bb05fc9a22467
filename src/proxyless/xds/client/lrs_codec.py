"""Requests and responses of LRS on the wire.

Specs: LRS v3, A27 (features), A64, A85 (metrics in load reports).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.xds.client.codec import encode_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.xds.bootstrap import Node

LRS_PATH: Final = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
LRS_FEATURES: Final = ("envoy.lrs.supports_send_all_clusters",)

# 10,000 names of clusters. Longer lists are not needed: a server may request all clusters.
LOAD_RESPONSE_BYTES_MAX: Final = 512 * 1024


@frozen
class MetricStats:
    """Sum of a metric, and the number of requests whose ORCA reports had it."""

    name: str
    requests: int
    total: float


@frozen
class LocalityStats:
    """Load of a locality in one report: counts since the last one, except for in_progress."""

    region: str
    zone: str
    sub_zone: str
    issued: int
    succeeded: int
    errors: int
    in_progress: int
    # Metrics with a field of their own, and all others.
    utilization: tuple[MetricStats, ...] = ()
    named_metrics: tuple[MetricStats, ...] = ()


@frozen
class ClusterStats:
    """Load of a cluster in one report."""

    cluster: str
    eds_service: str
    localities: tuple[LocalityStats, ...]
    dropped_total: int
    dropped: tuple[tuple[str, int], ...]
    interval_s: float


@frozen
class LoadStatsResponse:
    """Clusters and interval of the reports that a server requests."""

    interval_s: float
    # None: all clusters.
    clusters: frozenset[str] | None


def encode_load_report(stats: Sequence[ClusterStats], node: Node | None = None) -> bytes:
    """Encode a report. The first request of a stream has the node and no stats."""
    message = message_class("envoy.service.load_stats.v3.LoadStatsRequest")()
    if node is not None:
        message.node.CopyFrom(encode_node(node, LRS_FEATURES))
    for each in stats:
        cluster = message.cluster_stats.add(
            cluster_name=each.cluster,
            cluster_service_name=each.eds_service,
            total_dropped_requests=each.dropped_total,
        )
        seconds = int(each.interval_s)
        cluster.load_report_interval.seconds = seconds
        cluster.load_report_interval.nanos = int((each.interval_s - seconds) * 1e9)
        for category, count in each.dropped:
            cluster.dropped_requests.add(category=category, dropped_count=count)
        for locality in each.localities:
            _add_locality(cluster, locality)
    serialized: bytes = message.SerializeToString()
    return serialized


def _add_locality(cluster: Proto, stats: LocalityStats) -> None:
    message = cluster.upstream_locality_stats.add(
        total_successful_requests=stats.succeeded,
        total_requests_in_progress=stats.in_progress,
        total_error_requests=stats.errors,
        total_issued_requests=stats.issued,
    )
    message.locality.region = stats.region
    message.locality.zone = stats.zone
    message.locality.sub_zone = stats.sub_zone
    for metric in stats.utilization:
        field = getattr(message, metric.name)
        field.num_requests_finished_with_metric = metric.requests
        field.total_metric_value = metric.total
    for metric in stats.named_metrics:
        message.load_metric_stats.add(
            metric_name=metric.name,
            num_requests_finished_with_metric=metric.requests,
            total_metric_value=metric.total,
        )


def decode_load_response(serialized: bytes) -> LoadStatsResponse | None:
    """Decode a response; None if the bytes are not one, or are too many."""
    if len(serialized) > LOAD_RESPONSE_BYTES_MAX:
        return None
    message = message_class("envoy.service.load_stats.v3.LoadStatsResponse")()
    try:
        message.ParseFromString(serialized)
    except DECODE_ERRORS:
        return None
    interval = message.load_reporting_interval
    clusters = None if message.send_all_clusters else frozenset(message.clusters)
    return LoadStatsResponse(interval.seconds + interval.nanos / 1e9, clusters)
