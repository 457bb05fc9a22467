"""Unit tests of proxyless.controlplane.builders."""

import pytest

from proxyless.base import IpAddress
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    http_connection_manager,
    http_filter,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    route_config,
    session_filter,
    simple_mesh,
    socket_listener,
    use_http2,
    virtual_host,
)
from proxyless.protos import Proto, message_class

HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def unpack(packed: Proto) -> Proto:
    return message_class(packed.type_url.rpartition("/")[2]).FromString(packed.value)


# Listeners


def test_listener_gets_its_route_config_over_ads() -> None:
    manager = unpack(listener("api", "routes").api_listener.api_listener)
    assert manager.DESCRIPTOR.full_name == HCM
    assert manager.rds.route_config_name == "routes"
    assert manager.rds.config_source.HasField("ads")


def test_listener_may_have_inline_routes() -> None:
    by_list = listener("api", [route(cluster="a")])
    by_config = listener("api", route_config("inline", route(cluster="a")))
    assert by_list == by_config
    manager = unpack(by_list.api_listener.api_listener)
    assert manager.route_config.virtual_hosts[0].routes[0].route.cluster == "a"


def test_listener_may_have_a_given_connection_manager() -> None:
    manager = http_connection_manager("routes")
    manager.common_http_protocol_options.max_stream_duration.FromSeconds(3)
    assert unpack(listener("api", manager).api_listener.api_listener) == manager


def test_router_is_the_last_filter() -> None:
    fault = http_filter("f", message_class("envoy.extensions.filters.http.fault.v3.HTTPFault")())
    manager = http_connection_manager("routes", filters=[fault])
    assert [each.name for each in manager.http_filters] == ["f", "router"]


def test_socket_listener_has_an_address() -> None:
    built = socket_listener("in", "[::1]:80", "routes")
    place = built.address.socket_address
    assert (place.address, place.port_value) == ("::1", 80)
    assert unpack(built.filter_chains[0].filters[0].typed_config).HasField("rds")


# Routes


def test_route_matches_by_prefix_path_and_headers() -> None:
    assert route(cluster="a").match.prefix == "/"
    assert route("/s/", cluster="a").match.prefix == "/s/"
    exact = route(path="/s/m", headers={"k": "v"}, cluster="a")
    assert exact.match.path == "/s/m"
    [header] = exact.match.headers
    assert (header.name, header.string_match.exact) == ("k", "v")


def test_route_has_one_cluster_or_several_by_weight() -> None:
    assert route(cluster="a").route.cluster == "a"
    clusters = route(weighted={"a": 3, "b": 1}).route.weighted_clusters.clusters
    assert [(each.name, each.weight.value) for each in clusters] == [("a", 3), ("b", 1)]


def test_route_has_a_timeout_only_when_it_is_given() -> None:
    assert not route(cluster="a").route.HasField("max_stream_duration")
    duration = route(cluster="a", timeout_s=1.25).route.max_stream_duration.max_stream_duration
    assert duration.ToMilliseconds() == 1250


def test_route_config_has_virtual_hosts_or_routes() -> None:
    host = virtual_host(route(cluster="a"), domains=["a.test", "b.test"])
    built = route_config("r", host, route(cluster="b"))
    assert [list(each.domains) for each in built.virtual_hosts] == [["a.test", "b.test"], ["*"]]


# Clusters


def test_eds_cluster_gets_its_endpoints_over_ads() -> None:
    built = eds_cluster("c", "e", lb_policy="RING_HASH")
    assert built.type == built.EDS
    assert built.lb_policy == built.RING_HASH
    assert built.eds_cluster_config.service_name == "e"
    assert built.eds_cluster_config.eds_config.HasField("ads")
    with pytest.raises(ValueError, match="MAGIC"):
        eds_cluster("c", lb_policy="MAGIC")


def test_dns_cluster_has_one_name() -> None:
    built = dns_cluster("c", "host.test", 80)
    assert built.type == built.LOGICAL_DNS
    place = built.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
    assert (place.address, place.port_value) == ("host.test", 80)


def test_aggregate_cluster_lists_its_clusters() -> None:
    built = aggregate_cluster("c", ["a", "b"])
    assert built.cluster_type.name == "envoy.clusters.aggregate"
    assert list(unpack(built.cluster_type.typed_config).clusters) == ["a", "b"]


def test_use_http2_sets_the_protocol_of_the_cluster() -> None:
    cluster = eds_cluster("c")
    assert use_http2(cluster) is cluster
    [options] = cluster.typed_extension_protocol_options.values()
    assert unpack(options).explicit_http_config.HasField("http2_protocol_options")


def test_session_filter_has_a_cookie() -> None:
    built = session_filter("s", path="/pkg.Service", ttl_s=1.5, name="affinity")
    assert built.name == "affinity"
    cookie = unpack(unpack(built.typed_config).session_state.typed_config).cookie
    assert (cookie.name, cookie.path, cookie.ttl.ToNanoseconds()) == (
        "s",
        "/pkg.Service",
        15 * 10**8,
    )


def test_keep_sessions_sets_health_statuses_and_idle_timeout() -> None:
    cluster = eds_cluster("c")
    assert keep_sessions(cluster, ["HEALTHY", "DRAINING"], idle_timeout_s=2.5) is cluster
    assert list(cluster.common_lb_config.override_host_status.statuses) == [1, 3]
    options = unpack(cluster.upstream_config.typed_config)
    assert options.common_http_protocol_options.idle_timeout.ToNanoseconds() == 25 * 10**8


def test_keep_sessions_may_have_no_health_statuses() -> None:
    cluster = keep_sessions(eds_cluster("c"), [])
    assert cluster.common_lb_config.HasField("override_host_status")
    assert not cluster.HasField("upstream_config")


# Endpoints


def test_endpoints_may_be_given_by_priority() -> None:
    built = endpoints("c", {0: ["10.0.0.1:80"], 1: [IpAddress("10.0.0.2", 81)]})
    assert [group.priority for group in built.endpoints] == [0, 1]
    place = built.endpoints[1].lb_endpoints[0].endpoint.address.socket_address
    assert (place.address, place.port_value) == ("10.0.0.2", 81)
    # Localities of different priorities have different names.
    assert len({group.locality.zone for group in built.endpoints}) == 2


def test_endpoints_may_be_given_by_locality() -> None:
    where = Locality("z", region="r", sub_zone="s", priority=1, weight=7)
    [group] = endpoints("c", {where: []}).endpoints
    locality = group.locality
    assert (locality.region, locality.zone, locality.sub_zone) == ("r", "z", "s")
    assert (group.priority, group.load_balancing_weight.value) == (1, 7)


def test_endpoint_has_weight_health_and_hostname() -> None:
    built = lb_endpoint("10.0.0.1:80", weight=3, health="DRAINING", hostname="h.test")
    assert built.load_balancing_weight.value == 3
    assert built.health_status == 3
    assert built.endpoint.hostname == "h.test"
    assert endpoints("c", [built]).endpoints[0].lb_endpoints[0] == built


@pytest.mark.parametrize(
    ("address", "path"), [("unix:/run/s", "/run/s"), ("unix-abstract:s", "@s")]
)
def test_endpoint_may_be_a_unix_socket(address: str, path: str) -> None:
    assert lb_endpoint(address).endpoint.address.pipe.path == path


def test_drops_are_converted_to_millionths() -> None:
    [drop] = endpoints("c", [], drops={"lb": 0.25}).policy.drop_overloads
    assert drop.category == "lb"
    assert drop.drop_percentage.numerator == 250_000
    assert drop.drop_percentage.denominator == drop.drop_percentage.MILLION


# A mesh


def test_simple_mesh_is_complete() -> None:
    snapshot = simple_mesh("api", {"a": ["10.0.0.1:80"], "b": ["10.0.0.2:80"]}, version="7")
    assert snapshot.check().ok
    assert snapshot.version == "7"
    counts = [len(snapshot.resources(url)) for url in (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)]
    assert counts == [1, 1, 2, 2]


def test_simple_mesh_of_one_cluster_has_a_route_to_it() -> None:
    routes = simple_mesh("api", {"a": []}).get(ROUTE_CONFIG, "api-routes")
    assert routes is not None
    assert routes.message().virtual_hosts[0].routes[0].route.cluster == "a"
