"""Unit tests of proxyless.observe.mesh_diff and of the facts that it compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.controlplane import (
    FailurePercentage,
    Locality,
    aggregate_cluster,
    circuit_breaker,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    match_header,
    outlier_detection,
    retry,
    ring_hash,
    route,
    route_config,
    virtual_host,
)
from proxyless.observe.mesh_diff import ChangeKind, diff_meshes
from tests.worlds.short_form_mesh import make_mesh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.protos import Proto


def changes(before: Sequence[Proto], after: Sequence[Proto]) -> list[str]:
    return [str(each) for each in diff_meshes(before, after)]


def of_routes(before: Proto, after: Proto) -> list[str]:
    prefix = "route of all RPCs of 'r': "
    found = changes([route_config("r", before)], [route_config("r", after)])
    return [each.removeprefix(prefix) for each in found]


def test_equal_meshes_have_no_changes() -> None:
    assert changes(make_mesh(), make_mesh()) == []


def test_every_field_of_a_mesh_is_compared() -> None:
    """No change of a message is left out, whatever field it is in."""
    for number, message in enumerate(make_mesh()):
        for field, _ in message.ListFields():
            after = make_mesh()
            after[number].ClearField(field.name)
            assert changes(make_mesh(), after), f"{message.DESCRIPTOR.name}.{field.name}"


def test_changed_weights_are_shares() -> None:
    before, after = route(weighted={"a": 95, "b": 5}), route(weighted={"a": 1, "b": 1, "c": 0})
    assert of_routes(before, after) == ["clusters: a 95 %, b 5 % → a 50 %, b 50 %, c 0 %"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            route(cluster="a", timeout_s=1.0),
            route(cluster="a", timeout_s=2.5),
            "timeout: 1s → 2.500s",
        ),
        (route(cluster="a"), route(cluster="b"), "clusters: a 100 % → b 100 %"),
        (
            route(cluster="a"),
            retry(route(cluster="a"), times=2),
            "retry: none → 2 retries on unavailable",
        ),
    ],
)
def test_change_of_a_route_is_a_sentence(before: Proto, after: Proto, text: str) -> None:
    assert of_routes(before, after) == [text]


def test_new_route_changes_the_order() -> None:
    beta = match_header(route(cluster="b"), "ring", "exact", "beta")
    found = changes(
        [route_config("r", route(cluster="a"))], [route_config("r", beta, route(cluster="a"))]
    )
    assert found == [
        "route of all RPCs with ring=beta of 'r': added: to b 100 %",
        "routes of 'r': order: of all RPCs → of all RPCs with ring=beta; of all RPCs",
    ]


def test_routes_of_virtual_hosts_are_apart() -> None:
    hosts = [virtual_host(route(cluster=name), domains=[name]) for name in "ab"]
    others = [virtual_host(route(cluster="c"), domains=[name]) for name in "ab"]
    found = changes([route_config("r", *hosts)], [route_config("r", hosts[0], others[1])])
    assert found == ["route of all RPCs of 'r', domains b: clusters: b 100 % → c 100 %"]


def test_inline_routes_are_compared() -> None:
    found = changes([listener("l", [route(cluster="a")])], [listener("l", [route(cluster="b")])])
    assert found == ["route of all RPCs of 'l': clusters: a 100 % → b 100 %"]


def test_endpoints_are_added_moved_and_removed() -> None:
    before = endpoints("e", {Locality("a"): ["10.0.0.1:1", "10.0.0.2:1"]})
    moved = Locality("b", priority=1, weight=2)
    after = endpoints(
        "e", {Locality("a"): [lb_endpoint("10.0.0.1:1", health="DRAINING")], moved: ["10.0.0.3:1"]}
    )
    assert changes([before], [after]) == [
        "endpoint 10.0.0.1:1 of 'e': health: HEALTHY → DRAINING",
        "locality zone b, priority 1 of 'e': added: 1 endpoint",
        "endpoint 10.0.0.3:1 of 'e': added: zone b, priority 1",
        "endpoint 10.0.0.2:1 of 'e': removed: zone a, priority 0",
    ]


def test_change_of_a_cluster_has_only_the_fields_that_differ() -> None:
    before = outlier_detection(
        eds_cluster("c"), interval_s=5.0, failure_percentage=FailurePercentage(50)
    )
    after = outlier_detection(
        circuit_breaker(ring_hash(eds_cluster("c")), 10),
        interval_s=9.0,
        failure_percentage=FailurePercentage(50),
    )
    assert changes([before], [after]) == [
        "cluster 'c': policy: ROUND_ROBIN → RING_HASH",
        "cluster 'c': outlier detection: interval 5s → interval 9s",
        "cluster 'c': circuit breaker: none → thresholds[0].max_requests 10",
    ]


def test_kind_of_a_cluster_is_compared() -> None:
    found = changes(
        [eds_cluster("c"), aggregate_cluster("d", ["a", "b"])],
        [dns_cluster("c", "host", 80), aggregate_cluster("d", ["b", "a"])],
    )
    assert found[0] == "cluster 'c': kind: EDS → DNS name host:80"
    assert found[-1] == "cluster 'd': kind: aggregate of a, b → aggregate of b, a"


def test_kinds_of_changes() -> None:
    found = diff_meshes([eds_cluster("a")], [eds_cluster("b")])
    assert [(each.kind, each.subject, each.before, each.after) for each in found] == [
        (ChangeKind.ADDED, "cluster 'b'", None, "EDS"),
        (ChangeKind.REMOVED, "cluster 'a'", "EDS", None),
    ]
