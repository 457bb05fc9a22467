"""Backends that end RPCs with ORCA reports, and a mesh that propagates them to load reports."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from proxyless.protos import Proto, message_class
from tests.interop.drop_in import Untyped
from tests.worlds.grpcio_peers import NamedBackend
from tests.worlds.transports import until

TARGET: Final = "xds:///api"

# By metric, "load_metric_stats." before the names in that field: the number of requests, the sum.
Sums = dict[str, tuple[int, float]]


class OrcaBackend(NamedBackend):
    """A backend whose RPCs end with this ORCA report."""

    def __init__(self, name: str, **report: Any) -> None:  # noqa: ANN401 - fields of a message
        super().__init__(name)
        message = message_class("xds.data.orca.v3.OrcaLoadReport")(**report)
        self._report: Final = message.SerializeToString()

    async def _answer(self, request: bytes, context: Untyped) -> bytes:
        context.set_trailing_metadata((("endpoint-load-metrics-bin", self._report),))
        return await super()._answer(request, context)


def reporting_cluster(name: str, metrics: Sequence[str]) -> Proto:
    cluster = eds_cluster(name)
    cluster.lrs_server.self.SetInParent()
    cluster.lrs_report_endpoint_metrics.extend(metrics)
    return cluster


def reporting_mesh(backend: NamedBackend, clusters: Mapping[str, Sequence[str]]) -> Snapshot:
    """Clusters with one backend, by name the metrics to propagate; `/name/` routes to them."""
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", *(route(f"/{name}/", cluster=name) for name in clusters)),
            *(reporting_cluster(name, metrics) for name, metrics in clusters.items()),
            *(endpoints(name, [backend.address]) for name in clusters),
        ]
    )


def sums_of(reports: Sequence[Proto], cluster: str) -> tuple[int, Sums]:
    """The requests of a cluster that ended, and its metrics, in all reports."""
    requests, sums = 0, Sums()

    def add(name: str, stats: Proto) -> None:
        count, total = sums.get(name, (0, 0.0))
        count += stats.num_requests_finished_with_metric
        sums[name] = (count, total + stats.total_metric_value)

    for report in reports:
        for stats in report.cluster_stats:
            if stats.cluster_name == cluster:
                for locality in stats.upstream_locality_stats:
                    requests += locality.total_successful_requests + locality.total_error_requests
                    for name in ("cpu_utilization", "mem_utilization", "application_utilization"):
                        if locality.HasField(name):
                            add(name, getattr(locality, name))
                    for metric in locality.load_metric_stats:
                        add(f"load_metric_stats.{metric.metric_name}", metric)
    return requests, sums


async def wait_for_sums(control_plane: ControlPlane, cluster: str, requests: int) -> Sums:
    """Wait until this many RPCs are reported as ended, and return their metrics."""

    def has_all() -> bool:
        return sums_of(list(control_plane.load_reports), cluster)[0] >= requests

    await until(has_all, f"load reports of {requests} RPCs to {cluster}")
    count, sums = sums_of(list(control_plane.load_reports), cluster)
    assert count == requests
    return sums
