"""Unit tests of proxyless.controlplane.resource."""

import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    Resource,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
    socket_listener,
)
from proxyless.controlplane.resource import type_name
from proxyless.protos import Proto, message_class


def references(message: Proto) -> list[tuple[str, str, str]]:
    return [
        (each.path, type_name(each.type_url), each.name) for each in Resource.of(message).references
    ]


@pytest.mark.parametrize(
    ("message", "type_url"),
    [
        (listener("x", "r"), LISTENER),
        (route_config("x"), ROUTE_CONFIG),
        (eds_cluster("x"), CLUSTER),
        (endpoints("x", []), ENDPOINTS),
    ],
)
def test_resource_has_type_and_name_of_the_message(message: Proto, type_url: str) -> None:
    resource = Resource.of(message)
    assert (resource.type_url, resource.name) == (type_url, "x")
    assert resource.message() == message


def test_resource_of_another_type_has_its_name() -> None:
    secret = message_class("envoy.extensions.transport_sockets.tls.v3.Secret")(name="key")
    assert Resource.of(secret).name == "key"


def test_resource_without_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="cluster has no name"):
        Resource.of(eds_cluster(""))


def test_resource_does_not_change_with_the_message() -> None:
    cluster = eds_cluster("a")
    resource = Resource.of(cluster)
    cluster.name = "b"
    assert resource.message().name == "a"
    assert resource == Resource.of(eds_cluster("a"))


def test_listener_refers_to_the_route_config_of_each_manager() -> None:
    inside = "rds.route_config_name"
    assert references(listener("l", "r")) == [
        (f"api_listener.api_listener.{inside}", "route config", "r")
    ]
    with_default = socket_listener("l", "1.2.3.4:80", "r")
    with_default.default_filter_chain.CopyFrom(with_default.filter_chains[0])
    assert references(with_default) == [
        (f"filter_chains[0].filters[0].typed_config.{inside}", "route config", "r"),
        (f"default_filter_chain.filters[0].typed_config.{inside}", "route config", "r"),
    ]


def test_listener_with_inline_routes_refers_to_their_clusters() -> None:
    place = "api_listener.api_listener.route_config.virtual_hosts[0].routes[1].route.cluster"
    found = references(listener("l", [route(cluster="a"), route(cluster="b")]))
    assert found[1] == (place, "cluster", "b")


def test_routes_refer_to_single_weighted_and_mirror_clusters() -> None:
    mirrored = route(cluster="a")
    mirrored.route.request_mirror_policies.add(cluster="m")
    weighted = route(weighted={"b": 1, "c": 2})
    weighted.route.weighted_clusters.clusters.add(cluster_header="x-cluster")
    mirrored.route.request_mirror_policies.add(cluster_header="x-mirror")
    by_header = route()
    by_header.route.cluster_header = "x-cluster"
    redirect = route()
    redirect.redirect.host_redirect = "elsewhere"
    found = references(route_config("r", mirrored, weighted, by_header, redirect))
    routes = "virtual_hosts[0].routes"
    assert found == [
        (f"{routes}[0].route.cluster", "cluster", "a"),
        (f"{routes}[0].route.request_mirror_policies[0].cluster", "cluster", "m"),
        (f"{routes}[1].route.weighted_clusters.clusters[0].name", "cluster", "b"),
        (f"{routes}[1].route.weighted_clusters.clusters[1].name", "cluster", "c"),
    ]


@pytest.mark.parametrize(("given", "wanted"), [(None, "c"), ("e", "e")])
def test_cluster_refers_to_endpoints_by_its_own_or_another_name(
    given: str | None, wanted: str
) -> None:
    found = references(eds_cluster("c", given))
    assert found == [("eds_cluster_config.service_name", "endpoints", wanted)]


def test_aggregate_refers_to_its_clusters_in_order() -> None:
    found = references(aggregate_cluster("c", ["b", "a"]))
    assert [name for _, _, name in found] == ["b", "a"]
    assert found[0][0] == "cluster_type.typed_config.clusters[0]"


def test_resources_of_other_sources_are_not_references() -> None:
    from_file = eds_cluster("c")
    from_file.eds_cluster_config.eds_config.path_config_source.path = "/etc/endpoints.yaml"
    assert references(from_file) == []
    assert references(dns_cluster("c", "host", 80)) == []


def test_other_network_filters_have_no_references() -> None:
    built = socket_listener("l", "1.2.3.4:80", "r")
    built.filter_chains[0].filters[0].typed_config.type_url = "type.googleapis.com/other.Filter"
    assert references(built) == []


def test_undecodable_config_has_no_references() -> None:
    broken = listener("l", "r")
    broken.api_listener.api_listener.value = b"\xff"
    assert references(broken) == []


MEMBER = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web/1"


def test_member_of_a_collection_has_the_name_that_it_is_given() -> None:
    message = lb_endpoint("10.0.0.1:80")
    resource = Resource.of(message, MEMBER)
    assert (resource.type_url, resource.name) == (LB_ENDPOINT, MEMBER)
    assert resource.message() == message
    wrapper = message_class("envoy.service.discovery.v3.Resource")(name=MEMBER)
    wrapper.resource.type_url = LB_ENDPOINT
    wrapper.resource.value = message.SerializeToString()
    assert Resource.of(wrapper) == resource
    with pytest.raises(ValueError, match="endpoint has no name"):
        Resource.of(message)


@pytest.mark.parametrize("kind", ["", "type.googleapis.com/no.such.Message", LB_ENDPOINT])
def test_wrapper_without_a_message_is_refused(kind: str) -> None:
    wrapper = message_class("envoy.service.discovery.v3.Resource")(name="x")
    wrapper.resource.type_url, wrapper.resource.value = kind, b"\xff"
    with pytest.raises(ValueError, match="resource 'x' has no message of a known type"):
        Resource.of(wrapper)
