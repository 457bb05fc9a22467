"""Unit tests of proxyless.observe.lint_mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import StatusCode
from proxyless.controlplane import (
    LB_ENDPOINT,
    FailurePercentage,
    Resource,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    fault,
    hash_on,
    lb_endpoint,
    listener,
    outlier_detection,
    ring_hash,
    route,
    route_config,
    service_resources,
    session_filter,
)
from proxyless.observe import Audience, LintedResource, lint_mesh
from proxyless.protos import message_class

if TYPE_CHECKING:
    from proxyless.protos import Proto


def lint(*messages: Proto, audience: Audience = Audience.PROXYLESS) -> list[tuple[str, str, str]]:
    """The name of the resource, the rule and the path of each finding."""
    linted = []
    for resource in map(Resource.of, messages):
        references = tuple(
            (each.type_url.rpartition("/")[2], each.name) for each in resource.references
        )
        key = (resource.type_url.rpartition("/")[2], resource.name)
        linted.append(LintedResource(key, resource.message(), references))
    return [
        (linted[number].key[1], finding.rule, finding.path)
        for number, finding in lint_mesh(linted, frozenset({audience}))
    ]


def cart(**options: str) -> list[Proto]:
    return [eds_cluster("cart", **options), endpoints("cart", ["10.0.0.1:80"])]


def test_good_mesh_has_no_findings() -> None:
    assert lint(*service_resources("api", route(cluster="cart")), *cart()) == []
    assert lint(listener("api", [route(cluster="cart")]), *cart()) == []


def test_resource_that_no_listener_leads_to_is_unused() -> None:
    found = lint(
        *service_resources("api", route(cluster="cart")),
        *cart(),
        route_config("old-routes", route(cluster="old")),
        eds_cluster("old"),
        endpoints("old", []),
        endpoints("lost", []),
    )
    names = ["old-routes", "old", "lost"]
    assert found == [(name, "unused", "") for name in names]


def test_clusters_without_a_listener_are_a_part_of_a_mesh() -> None:
    assert lint(*cart()) == []


def test_aggregate_that_contains_itself_is_an_error() -> None:
    found = lint(
        *service_resources("api", route(cluster="a")),
        aggregate_cluster("a", ["b", "cart"]),
        aggregate_cluster("b", ["a"]),
        *cart(),
    )
    assert found == [(name, "aggregate-loop", "cluster_type") for name in "ab"]


def test_session_path_without_a_route_is_reported_at_the_filter() -> None:
    session = session_filter("id", path="/shop.Users/")
    [found] = lint(
        *service_resources("api", route("/shop.Cart/", cluster="cart"), filters=[session]), *cart()
    )
    assert found[:2] == ("api", "session-path")
    assert ".http_filters[0].typed_config" in found[2]
    for prefix in ("/shop.Users/Get", "/"):
        made = route(prefix, cluster="cart")
        assert lint(*service_resources("api", made, filters=[session]), *cart()) == []


def test_filter_config_without_its_filter_is_reported_at_the_route() -> None:
    made = fault(route(cluster="cart"), abort=StatusCode.INTERNAL)
    path = 'virtual_hosts[0].routes[0].typed_per_filter_config["fault"]'
    found = lint(listener("api", "routes"), route_config("routes", made), *cart())
    assert found == [("routes", "unused-filter-config", path)]
    [inline] = lint(listener("api", [made]), *cart())
    assert inline[0] == "api"
    assert inline[2].endswith(f".route_config.{path}")


def test_ring_hash_needs_a_hash_of_each_route_to_it() -> None:
    ring = ring_hash(eds_cluster("cart"))
    all_of_them = aggregate_cluster("all", ["cart"])
    where = endpoints("cart", ["10.0.0.1:80"])
    path = "virtual_hosts[0].routes[1].route.hash_policy"
    routes = [hash_on(route("/a.B/", cluster="all"), "user"), route(cluster="all")]
    found = lint(*service_resources("api", *routes), all_of_them, ring, where)
    assert found == [("api-routes", "unhashed", path)]


def test_hash_without_ring_hash_is_not_used() -> None:
    made = hash_on(route(weighted={"cart": 1}), "user")
    path = "virtual_hosts[0].routes[0].route.hash_policy"
    assert lint(*service_resources("api", made), *cart()) == [("api-routes", "unused-hash", path)]


def test_outlier_detection_needs_enough_endpoints() -> None:
    def found(hosts: int | None) -> list[tuple[str, str, str]]:
        cluster = eds_cluster("cart")
        outlier_detection(cluster, failure_percentage=FailurePercentage(minimum_hosts=hosts))
        where = endpoints("cart", ["10.0.0.1:80", "10.0.0.2:80"])
        return lint(*service_resources("api", route(cluster="cart")), cluster, where)

    assert found(2) == []
    assert found(None) == found(3) == [("cart", "few-endpoints", "outlier_detection")]


def test_leaf_that_a_route_names_is_reported_for_grpcio() -> None:
    routes = [route("/a.B/", cluster="cart"), route(cluster="all")]
    mesh = [*service_resources("api", *routes), aggregate_cluster("all", ["cart"]), *cart()]
    assert lint(*mesh) == []
    path = "cluster_type.typed_config.clusters[0]"
    assert lint(*mesh, audience=Audience.GRPCIO) == [("all", "shared-leaf", path)]


def test_member_of_a_collection_is_used_if_its_collection_is() -> None:
    path = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint"
    members = []
    for name in ("cart/1", "other/1"):
        wrapper = message_class("envoy.service.discovery.v3.Resource")(name=f"{path}/{name}")
        wrapper.resource.type_url = LB_ENDPOINT
        wrapper.resource.value = lb_endpoint("10.0.0.1:80").SerializeToString()
        members.append(wrapper)
    cluster = eds_cluster("cart")
    # Five endpoints are needed for ejections, and the collection may have them.
    outlier_detection(cluster, failure_percentage=FailurePercentage())
    found = lint(
        *service_resources("api", route(cluster="cart")),
        cluster,
        endpoints("cart", {0: f"{path}/cart/*"}),
        *members,
    )
    assert found == [(f"{path}/other/1", "unused", "")]
