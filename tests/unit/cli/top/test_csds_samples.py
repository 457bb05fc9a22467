"""Unit tests of proxyless.cli.top.csds_samples."""

from __future__ import annotations

from proxyless.cli.top.csds_samples import NO_LIVE_SERVICE, read_clients
from proxyless.cli.top.samples import Traffic
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    Resource,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
)
from proxyless.observe import ClientStatus, ResourceRow


def row(
    type_url: str, name: str, value: bytes = b"", status: str = "ACKED", error: str = ""
) -> ResourceRow:
    return ResourceRow(type_url, name, status, "1", "", error, "", value)


def client(*rows: ResourceRow) -> ClientStatus:
    return ClientStatus("xds:/api", "me", "gRPC C-core", rows)


def test_cluster_has_the_endpoints_of_its_eds_resource_and_no_counts() -> None:
    held = Snapshot.of([eds_cluster("web"), endpoints("web", ["10.0.0.1:80", "10.0.0.2:80"])])
    rows = [row(each.type_url, each.name, each.value) for each in held]
    sample = read_clients([client(*rows)], 5.0)
    assert (sample.time_s, sample.process, sample.notes) == (5.0, "gRPC C-core", (NO_LIVE_SERVICE,))
    (channel,) = sample.channels
    assert (channel.target, channel.state, channel.problem) == ("xds:/api", "ACKED", "")
    (cluster,) = channel.clusters
    assert (cluster.name, cluster.state, cluster.total, cluster.ready) == ("web", "ACKED", 2, None)
    assert [each.address for each in cluster.endpoints] == ["10.0.0.1:80", "10.0.0.2:80"]
    assert {each.state for each in cluster.endpoints} == {"HEALTHY"}
    assert channel.traffic == cluster.traffic == cluster.endpoints[0].traffic == Traffic()


def test_locality_has_the_members_of_its_collection() -> None:
    path = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint"
    held = Snapshot.of(
        [
            eds_cluster("web"),
            endpoints("web", {0: f"{path}/web/*"}),
            Resource.of(lb_endpoint("10.0.0.1:80"), f"{path}/web/1"),
            Resource.of(lb_endpoint("10.0.0.2:80"), f"{path}/other/1"),
        ]
    )
    rows = [row(each.type_url, each.name, each.value) for each in held]
    # A row of the collection itself, and a member that cannot be read.
    rows += [row(LB_ENDPOINT, f"{path}/web/*"), row(LB_ENDPOINT, f"{path}/web/2", b"\xff")]
    (channel,) = read_clients([client(*rows)], 0.0).channels
    (cluster,) = channel.clusters
    assert [each.address for each in cluster.endpoints] == ["10.0.0.1:80"]


def test_bad_resources_are_the_problem_of_the_client() -> None:
    rows = [
        row(CLUSTER, "web", status="NACKED", error="is bad\x1b"),
        row(ENDPOINTS, "web", status="DOES_NOT_EXIST"),
        row(CLUSTER, "new", status="REQUESTED"),
    ]
    (channel,) = read_clients([client(*rows)], 0.0).channels
    assert channel.state == "DOES_NOT_EXIST, NACKED, REQUESTED"
    assert channel.problem == r"web: is bad\x1b; and 1 more resource"
    assert [each.name for each in channel.clusters] == ["new", "web"]


def test_contents_that_cannot_be_read_are_named() -> None:
    (channel,) = read_clients([client(row(CLUSTER, "web", b"\xff"))], 0.0).channels
    assert channel.clusters[0].problem == "its contents cannot be read"
