"""Unit tests of proxyless.observe.explain_clusters."""

from __future__ import annotations

import pytest

from proxyless.base import Locality, Status, StatusCode, parse_address
from proxyless.base.explanation import Explanation, to_text
from proxyless.observe.explain_clusters import (
    ENDPOINTS_SHOWN_MAX,
    describe_policy,
    explain_cluster,
)
from proxyless.xds.config import ClusterConfig, ClusterError
from proxyless.xds.resources import (
    Cluster,
    DropCategory,
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
    OutlierDetection,
)
from tests.worlds.xds_resources import aggregate, cluster, dns, endpoints, locality, prioritized


def explained(made: Cluster, found: EndpointResource | None, note: str = "") -> Explanation:
    return explain_cluster(made.name, (ClusterConfig(made.name, made, found, note),))


def test_cluster_is_shown_with_all_parts() -> None:
    made = cluster("a", max_concurrent_requests=7, outlier_detection=OutlierDetection({}))
    found = prioritized(
        "a",
        [locality("x", "127.0.0.1:1", weight=3), locality("y", "127.0.0.1:2")],
        [locality("z", "127.0.0.1:3")],
        drops=(DropCategory("lb", 50_000),),
    )
    assert to_text(explained(made, found)) == "\n".join(
        [
            'cluster "a": endpoints from EDS resource "a"',
            "  LB policy round_robin",
            "  circuit breaker: at most 7 RPCs at a time",
            "  outlier detection is on",
            '  drops 5 % of RPCs, for "lb"',
            "  priority 0: 2 endpoints in 2 localities",
            "    locality {region=, zone=x, sub_zone=}: weight 3, 75 % of its priority",
            "      127.0.0.1:1: UNKNOWN",
            "    locality {region=, zone=y, sub_zone=}: weight 1, 25 % of its priority",
            "      127.0.0.1:2: UNKNOWN",
            "  priority 1: 1 endpoint in 1 locality",
            "    locality {region=, zone=z, sub_zone=}: weight 1, 100 % of its priority",
            "      127.0.0.1:3: UNKNOWN",
        ]
    )


def test_endpoint_is_shown_with_its_hostname() -> None:
    info = EndpointInfo((parse_address("127.0.0.1:1"),), hostname="a.test:80")
    found = prioritized("a", [LocalityEndpoints(Locality(), 1, (info,))])
    (line,) = explained(cluster("a"), found).find("endpoint")
    assert line.text == '127.0.0.1:1: UNKNOWN, hostname "a.test:80"'
    assert line.facts["hostname"] == "a.test:80"


GOOD = endpoints("a", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("made", "found", "problem"),
    [
        (cluster("a"), endpoints("a"), 'endpoints "a": has no endpoint that may be used'),
        (
            cluster("a"),
            endpoints("a", "127.0.0.1:1", drops=(DropCategory("all", 1_000_000),)),
            'drops every RPC, for "all"',
        ),
        (
            cluster("a", max_concurrent_requests=0),
            GOOD,
            "circuit breaker lets no RPC through: max_requests is 0",
        ),
        (cluster("a"), None, "EDS resource a: gone"),
    ],
)
def test_problem_is_the_reason_for_which_every_rpc_fails(
    made: Cluster, found: EndpointResource | None, problem: str
) -> None:
    explanation = explained(made, found, "EDS resource a: gone")
    assert explanation.problem == f'cluster "a": {problem}'
    assert explanation.text == explanation.problem


def test_first_problem_of_several_comes_first() -> None:
    """The order is drops, circuit breaker, missing endpoints."""
    dropped = endpoints("a", drops=(DropCategory("all", 1_000_000),))
    nowhere = 'endpoints "a": has no endpoint that may be used'
    assert explained(cluster("a", max_concurrent_requests=0), dropped).problem == (
        f'cluster "a": drops every RPC, for "all"; without that: {nowhere}'
    )
    explanation = explained(cluster("a", max_concurrent_requests=0), endpoints("a"))
    breaker = "circuit breaker lets no RPC through: max_requests is 0"
    assert explanation.problem == f'cluster "a": {breaker}; without that: {nowhere}'
    assert explanation.facts["barrier"] == breaker


def test_draining_endpoints_are_for_sessions_only() -> None:
    info = EndpointInfo((parse_address("127.0.0.1:1"),), 3, HealthStatus.DRAINING)
    found = prioritized("a", [LocalityEndpoints(Locality(), 1, (info,))])
    explanation = explained(cluster("a"), found)
    (line,) = explanation.find("endpoint")
    assert line.text == "127.0.0.1:1: DRAINING, weight 3, only for sessions that it has"
    assert explanation.problem


def test_locality_with_draining_endpoints_has_no_share() -> None:
    info = EndpointInfo((parse_address("127.0.0.1:1"),), 1, HealthStatus.DRAINING)
    draining = LocalityEndpoints(Locality("r"), 3, (info,))
    found = prioritized("a", [draining, locality("y", "127.0.0.1:2")])
    explanation = explained(cluster("a"), found)
    shares = [each.text.rpartition(", ")[2] for each in explanation.find("locality")]
    assert shares == ["0 % of its priority", "100 % of its priority"]


def test_many_endpoints_are_counted() -> None:
    addresses = [f"127.0.0.1:{port}" for port in range(1, ENDPOINTS_SHOWN_MAX + 4)]
    explanation = explained(cluster("a"), endpoints("a", *addresses))
    assert len(list(explanation.find("endpoint"))) == ENDPOINTS_SHOWN_MAX
    assert [each.text for each in explanation.find("more")] == ["and 3 more"]


def test_cluster_error_has_the_text_of_the_rpc_status() -> None:
    error = ClusterError(Status(StatusCode.UNAVAILABLE, "CDS resource a: gone"), True)
    explanation = explain_cluster("a", error, " (50 %)")
    assert explanation.text == 'cluster "a" (50 %): CDS resource a: gone'
    assert explanation.facts["does_not_exist"] is True


def test_aggregate_has_no_problem_if_one_leaf_has_endpoints() -> None:
    first = ClusterConfig("all", aggregate("all", "a", "b"), None, "CDS resource c: gone")
    empty = ClusterConfig("a", cluster("a"), endpoints("a"))
    named = ClusterConfig("b", dns("b", "host"), EndpointResource(name="host:80"))
    explanation = explain_cluster("all", (first, empty, named))
    assert not explanation.problem
    assert explanation.text.endswith("(CDS resource c: gone)")
    assert [leaf.text for leaf in explanation.find("leaf")] == [
        'leaf 0: cluster "a": endpoints "a": has no endpoint that may be used',
        'leaf 1: cluster "b": one endpoint, DNS name host:80',
    ]
    assert explain_cluster("all", (first, empty)).problem.startswith('cluster "a":')


def test_aggregate_uses_a_leaf_that_drops_all() -> None:
    first = ClusterConfig("all", aggregate("all", "a", "b", "c"), None)
    empty = ClusterConfig("a", cluster("a"), endpoints("a"))
    dropped = endpoints("b", "127.0.0.1:1", drops=(DropCategory("all", 1_000_000),))
    dropping = ClusterConfig("b", cluster("b"), dropped)
    sound = ClusterConfig("c", cluster("c"), endpoints("c", "127.0.0.1:1"))
    explanation = explain_cluster("all", (first, empty, dropping, sound))
    assert explanation.problem == 'cluster "b": drops every RPC, for "all"'
    assert not explain_cluster("all", (first, empty, sound, dropping)).problem


def test_aggregate_uses_a_leaf_without_endpoints_that_drops_all() -> None:
    first = ClusterConfig("all", aggregate("all", "a", "b"), None)
    dropping = endpoints("a", drops=(DropCategory("all", 1_000_000),))
    sound = ClusterConfig("b", cluster("b"), endpoints("b", "127.0.0.1:1"))
    explanation = explain_cluster("all", (first, ClusterConfig("a", cluster("a"), dropping), sound))
    assert explanation.problem.startswith('cluster "a": drops every RPC, for "all"')


def test_aggregate_without_endpoints_uses_the_last_leaf() -> None:
    first = ClusterConfig("all", aggregate("all", "a", "b"), None)
    empty = [ClusterConfig(name, cluster(name), endpoints(name)) for name in "ab"]
    explanation = explain_cluster("all", (first, *empty))
    assert explanation.problem == 'cluster "b": endpoints "b": has no endpoint that may be used'


def test_policies_are_a_chain() -> None:
    assert describe_policy([{"a": {"childPolicy": [{"b": {}}]}}]) == "a → b"
    assert describe_policy([]) == "of the leaves"
