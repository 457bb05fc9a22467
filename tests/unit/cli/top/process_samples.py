"""Samples of a process for tests: one channel with two clusters, and an idle one."""

from __future__ import annotations

from proxyless.cli.top.samples import (
    ChannelRow,
    ClusterRow,
    EndpointRow,
    EventRow,
    Sample,
    Traffic,
)
from proxyless.lb.description import LbNode

TREE = LbNode(
    "xds:///api",
    "xds_cluster_manager_experimental",
    "READY",
    children=(LbNode("cluster:web", "round_robin", "READY", children=(LbNode("10.0.0.1:80"),)),),
)


def make_sample(started: int = 100, time_s: float = 10.0, failed: int = 0) -> Sample:
    """All RPCs went to the first endpoint."""
    endpoints = (
        EndpointRow("10.0.0.1:80", "READY", 0, "eu/a", traffic=Traffic(started, failed, 2)),
        EndpointRow(
            "10.0.0.2:80", "TRANSIENT_FAILURE", 1, note="refused", traffic=Traffic(0, 0, 0)
        ),
        EndpointRow("10.0.0.3:80", "READY", 1, is_ejected=True, traffic=Traffic(0, 0, 0)),
    )
    web = ClusterRow("web", "READY", "", 2, 0, 1, 1, 3, endpoints, Traffic(started, failed, 2))
    old = ClusterRow("old", "TRANSIENT_FAILURE", "no endpoints", traffic=Traffic(0, 0, 0))
    busy = ChannelRow(
        "1",
        "xds:///api",
        "READY",
        generation=3,
        waiting=0,
        failures={"UNAVAILABLE": failed} if failed else {},
        last_failure="/a/b: UNAVAILABLE: gone" if failed else "",
        clusters=(web, old),
        lb_tree=TREE,
        traffic=Traffic(started, failed, 2),
    )
    idle = ChannelRow("2", "dns:///b", "IDLE", generation=0, waiting=0, traffic=Traffic(0, 0, 0))
    event = EventRow(time_s, f"channel.state state=READY at={started}")
    return Sample("live service", time_s, "pid 7", (busy, idle), (event,))
