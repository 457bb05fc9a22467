"""Mesh whose XdsClient reports load."""

from __future__ import annotations

from typing import Any

from proxyless.xds.bootstrap import Bootstrap
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_clients import LoadStatsResponse, XdsClientWorld, server_config


class LoadReportWorld(MeshWorld):
    """Mesh with a real XdsClient, which reports load to its server each second."""

    def __init__(self, *servers: str) -> None:
        super().__init__()
        self.reports = XdsClientWorld(
            bootstrap=Bootstrap(servers=tuple(map(server_config, servers or ("a",))))
        )
        self.load_stats = self.reports.client.load_stats

    def take_report(self, uri: str = "a") -> dict[tuple[str, str], Any]:
        """Return the report that the server receives a second later, by cluster and service."""
        self.reports.settle()
        response = LoadStatsResponse(send_all_clusters=True)
        response.load_reporting_interval.FromSeconds(1)
        lrs = self.reports.server(uri).lrs
        if not getattr(lrs, "has_response", False):
            lrs.send_to_client(response.SerializeToString())
            lrs.has_response = True  # type: ignore[attr-defined]
        self.reports.settle()
        lrs.take_requests()
        self.reports.clock.advance(1)
        [report] = lrs.take_requests()
        return {
            (each.cluster_name, each.cluster_service_name): each for each in report.cluster_stats
        }


def localities_of(stats: Any) -> dict[str, tuple[int, int, int, int]]:  # noqa: ANN401
    """Return the numbers of RPCs by zone: issued, succeeded, failed, in progress."""
    return {
        each.locality.zone: (
            each.total_issued_requests,
            each.total_successful_requests,
            each.total_error_requests,
            each.total_requests_in_progress,
        )
        for each in stats.upstream_locality_stats
    }
