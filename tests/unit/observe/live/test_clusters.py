"""Unit tests of proxyless.observe.live.clusters."""

from __future__ import annotations

from contextlib import suppress

import grpc.aio

from proxyless.base import Status, StatusCode
from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route
from proxyless.lb import LbNode
from proxyless.lb.retained_child import NOT_LISTED
from proxyless.observe.live.clusters import find_clusters
from proxyless.sim import UNARY, World, pause


def leaf(address: str, state: str = "READY", detail: str = "") -> LbNode:
    inner = LbNode(address, "", state, detail)
    return LbNode(address, "pick_first", state, children=(inner,))


def locality(zone: str, *endpoints: LbNode) -> LbNode:
    name = f"{{region=eu, zone={zone}, sub_zone=}}"
    return LbNode(name, "round_robin", "READY", children=endpoints)


def cluster(name: str, *priorities: LbNode, detail: str = "") -> LbNode:
    policy = LbNode("", "priority_experimental", "READY", children=priorities)
    impl = LbNode("", "xds_cluster_impl_experimental", "READY", children=(policy,))
    return LbNode(name, "cds_experimental", "READY", detail, (impl,))


def priority(number: int, *children: LbNode, in_use: bool = False, detail: str = "") -> LbNode:
    name = f"{{cluster=web, child_number={number}}}"
    return LbNode(name, "weighted_target_experimental", "READY", detail, children, in_use=in_use)


def tree(*clusters: LbNode) -> LbNode:
    return LbNode("xds:///api", "xds_cluster_manager_experimental", "READY", children=clusters)


def test_endpoints_have_priority_locality_and_whether_they_are_in_use() -> None:
    web = cluster(
        "cluster:web",
        priority(0, locality("a", leaf("10.0.0.1:80", "TRANSIENT_FAILURE", "refused"))),
        priority(1, locality("b", leaf("10.0.0.2:80")), in_use=True),
    )
    (found,) = find_clusters(tree(web))
    assert (found.name, found.priorities, found.priority_in_use) == ("web", 2, 1)
    assert (found.ready, found.ejected) == (1, 0)
    first, second = found.endpoints
    assert (first.priority, first.locality, first.in_use) == (0, "eu/a", False)
    assert (first.state, first.detail) == ("TRANSIENT_FAILURE", "refused")
    assert (second.priority, second.in_use) == (1, True)


def test_ejected_endpoint_is_found_by_the_note_of_outlier_detection() -> None:
    endpoints = (leaf("10.0.0.1:80", detail="ejected 12 s"), leaf("10.0.0.2:80", detail="rejected"))
    (found,) = find_clusters(tree(cluster("cluster:web", priority(0, *endpoints, in_use=True))))
    assert [each.is_ejected for each in found.endpoints] == [True, False]
    assert found.ejected == 1


def test_retained_clusters_and_priorities_are_left_out() -> None:
    old = cluster("cluster:old", detail=NOT_LISTED)
    gone = priority(7, leaf("10.0.0.9:80"), detail=NOT_LISTED)
    new = cluster("cluster:new", priority(0, leaf("10.0.0.1:80"), in_use=True), gone)
    (found,) = find_clusters(tree(old, new))
    assert (found.name, found.priorities, len(found.endpoints)) == ("new", 1, 1)


def test_aggregate_cluster_is_its_leaves_of_which_one_is_in_use() -> None:
    first = cluster("{cluster=near, child_number=0}", priority(0, leaf("10.0.0.1:80"), in_use=True))
    second = cluster("far", priority(0, leaf("10.0.0.2:80"), in_use=True))
    unused = LbNode("far", "cds_experimental", "READY", "", second.children, in_use=False)
    choice = LbNode("", "priority_experimental", "READY", children=(first, unused))
    aggregate = LbNode("cluster:all", "cds_experimental", "READY", children=(choice,))
    near, far = find_clusters(tree(aggregate))
    assert (near.name, near.endpoints[0].in_use) == ("near", True)
    assert (far.name, far.endpoints[0].in_use) == ("far", False)


def test_target_without_xds_is_one_cluster_without_a_name() -> None:
    node = LbNode("dns:///api", "round_robin", "READY", children=(leaf("10.0.0.1:80"),))
    (found,) = find_clusters(node)
    assert (found.name, found.priority_in_use, found.ready) == ("", 0, 1)


def test_idle_channel_has_no_cluster() -> None:
    assert list(find_clusters(None)) == []


def test_ejection_of_the_real_policy_is_found() -> None:
    world = World(seed=1)
    world.backend("web-1").status = Status(StatusCode.UNAVAILABLE, "broken")
    world.backend("web-2")
    web = eds_cluster("web")
    detection = web.outlier_detection
    detection.interval.FromSeconds(1)
    detection.max_ejection_percent.value = 50
    for field in ("minimum_hosts", "request_volume"):
        getattr(detection, f"failure_percentage_{field}").value = 1
    detection.failure_percentage_threshold.value = 50
    detection.enforcing_failure_percentage.value = 100
    addresses = ["10.0.0.1:50051", "10.0.0.2:50051"]
    world.control_plane(
        snapshot=Snapshot.of(
            [listener("api", [route(cluster="web")]), web, endpoints("web", addresses)]
        )
    )

    async def live() -> list[tuple[str, bool]]:
        channel = world.client().channel("xds:///api")
        call = channel.unary_unary(UNARY)
        for _ in range(30):
            with suppress(grpc.aio.AioRpcError):
                await call(b"", timeout=5.0)
            await pause(0.1)
        (found,) = find_clusters(channel.lb_tree())
        return [(each.address, each.is_ejected) for each in found.endpoints]

    assert world.run(live()) == [(addresses[0], True), (addresses[1], False)]
