"""A74, dependency manager: its watches, completeness and contents of the XdsConfig."""

from itertools import permutations
from typing import Any

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, StatusCode, parse_address
from proxyless.resolver import ResolverResult
from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from proxyless.xds.config.dependencies import GRAPH_MAX
from proxyless.xds.resources import DropCategory, Listener, NonForwardingAction, PathMatcher, Route
from tests.worlds.xds_dependencies import CDS, EDS, LDS, RDS, DependencyWorld, FakeType, start_plain
from tests.worlds.xds_resources import (
    SERVICE,
    aggregate,
    cluster,
    dns,
    eds,
    endpoints,
    host,
    hosts,
    listener,
    route,
    route_config,
    unavailable,
)

# ---------------------------------------------------------------------------------------------
# Watches


@pytest.mark.spec("A74-03")
def test_construction_starts_the_listener_watch_at_once() -> None:
    world = DependencyWorld()
    assert world.watches.opened == [("LDS", SERVICE)]
    assert world.events == []


@pytest.mark.spec("A74-04")
def test_rds_is_watched_only_when_the_routes_are_not_inline() -> None:
    world = DependencyWorld()
    world.publish(listener(route_config("a")))
    assert world.watches.names(RDS) == set()
    world.publish(listener("routes"))
    assert world.watches.names(RDS) == {"routes"}


@pytest.mark.spec("A74-05")
def test_old_config_is_kept_until_the_routes_of_a_new_rds_name_arrive() -> None:
    world = start_plain("a")
    held = world.manager.subscribe("a")
    before = list(world.events)
    world.publish(listener("other"))
    assert world.watches.names(RDS) == {"other"}
    assert world.events == before
    world.publish(route_config("a", name="other"))
    assert world.config.route_config.name == "other"
    held.release()


@pytest.mark.spec("A74-06")
def test_routes_change_between_inline_and_rds_and_unwatched_ones_are_ignored() -> None:
    world = start_plain("a")
    world.publish(listener(route_config("a", name="inline")))
    assert world.config.route_config.name == "inline"
    assert world.watches.names(RDS) == set()
    count = len(world.events)
    world.publish(route_config("late"))
    assert len(world.events) == count
    world.publish(route_config("a"), listener("routes"))
    assert world.config.route_config.name == "routes"


@pytest.mark.spec("A74-07")
def test_changed_listener_is_published_with_the_current_routes() -> None:
    world = start_plain("a")
    routes = world.config.route_config
    world.publish(listener(max_stream_duration_s=3.0))
    assert world.config.listener.api_listener is not None
    assert world.config.listener.api_listener.max_stream_duration_s == 3.0
    assert world.config.route_config is routes


@pytest.mark.spec("A74-08", "A74-21")
def test_virtual_host_is_the_best_match_for_the_authority() -> None:
    world = DependencyWorld("orders.example")
    routes = hosts(
        host(route("any")),
        host(route("suffix"), domains=("*.example",)),
        host(route("exact"), domains=("Orders.Example",)),
    )
    world.publish(listener(), routes, cluster("exact"), endpoints("exact", "10.0.0.1:80"))
    assert world.config.virtual_host is routes.virtual_hosts[2]
    assert list(world.config.clusters) == ["exact"]


@pytest.mark.spec("A74-09")
def test_only_clusters_of_the_chosen_virtual_host_are_watched() -> None:
    world = DependencyWorld()
    redirect = Route(path=PathMatcher("prefix", "/r"), action=NonForwardingAction("redirect"))
    world.publish(
        listener(),
        hosts(
            host(route("a"), route({"b": 1, "c": 2}), redirect, domains=(SERVICE,)),
            host(route("elsewhere"), domains=("other",)),
        ),
    )
    assert world.watches.names(CDS) == {"a", "b", "c"}
    world.manager.subscribe("dynamic")
    world.settle()
    assert world.watches.names(CDS) == {"a", "b", "c", "dynamic"}


@pytest.mark.spec("A74-10")
def test_eds_is_watched_once_by_service_name_for_all_clusters_that_share_it() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b", "plain"))
    world.publish(eds("a", "shared"), eds("b", "shared"), cluster("plain"))
    assert world.watches.names(EDS) == {"shared", "plain"}
    assert world.watches.count(EDS, "shared") == 1
    world.publish(endpoints("shared", "10.0.0.1:80"), endpoints("plain", "10.0.0.2:80"))
    assert world.entries("a")[0].endpoints is world.entries("b")[0].endpoints


@pytest.mark.spec("A74-11", "A61-01")
def test_logical_dns_is_one_endpoint_with_all_addresses_and_shared_by_name() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"))
    world.publish(dns("a", "backend.example", 81), dns("b", "backend.example", 81))
    assert list(world.dns.resolvers) == ["backend.example:81"]
    assert world.dns.resolvers["backend.example:81"].started == 1
    assert world.events == []
    world.dns.respond("backend.example:81", "10.0.0.1:81", "10.0.0.2:81")
    world.settle()
    found = world.entries("a")[0].endpoints
    assert found is not None
    assert found is world.entries("b")[0].endpoints
    [[only]] = found.priorities
    assert [list(map(str, each.addresses)) for each in only.endpoints] == [
        ["10.0.0.1:81", "10.0.0.2:81"]
    ]


@pytest.mark.spec("A74-11")
def test_service_config_of_a_dns_resolver_is_ignored() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a"), dns("a", "backend.example", 81))
    found = Endpoint((parse_address("10.0.0.1:81"),), EMPTY_ATTRIBUTES)
    service_config: dict[str, object] = {"loadBalancingConfig": [{"pick_first": {}}]}
    resolver = world.dns.resolvers["backend.example:81"]
    assert resolver.listener.on_result(ResolverResult((found,), service_config)) == OK
    world.settle()
    with_service_config = world.config
    world.dns.respond("backend.example:81", "10.0.0.1:81")
    world.settle()
    assert world.config == with_service_config
    [entry] = world.entries("a")
    assert entry.cluster == dns("a", "backend.example", 81)


def test_equal_dns_result_causes_no_update() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a"), dns("a", "name"))
    world.dns.respond("name:80", "10.0.0.1:80")
    world.settle()
    before = list(world.events)
    world.dns.respond("name:80", "10.0.0.1:80")
    world.settle()
    assert world.events == before
    world.dns.respond("name:80", "10.0.0.2:80")
    world.settle()
    assert len(world.events) == len(before) + 1


def test_invalid_dns_name_is_an_error_of_its_cluster_only() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), dns("a", "no name"), cluster("b"))
    world.publish(endpoints("b", "10.0.0.1:80"))
    (entry,) = world.entries("a")
    assert entry.endpoints is None
    assert "no name" in entry.resolution_note
    assert world.leaves("b") == ["b"]
    world.manager.request_reresolution()
    world.manager.reset_backoff()
    world.publish(route_config("b"))
    assert list(world.config.clusters) == ["b"]
    world.manager.close()


@pytest.mark.spec("A37-06")
def test_reresolution_request_reaches_every_dns_name() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), dns("a", "one"), dns("b", "two"))
    world.manager.request_reresolution()
    assert {each.reresolutions for each in world.dns.resolvers.values()} == {1}


@pytest.mark.spec("A74-12", "A74-23")
def test_leaves_of_an_aggregate_are_depth_first_in_listed_order() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("top"))
    world.publish(aggregate("top", "left", "leaf3"))
    assert world.watches.names(CDS) == {"top", "left", "leaf3"}
    world.publish(aggregate("left", "leaf1", "leaf2"))
    assert world.watches.names(CDS) == {"top", "left", "leaf1", "leaf2", "leaf3"}
    for name in ("leaf1", "leaf2", "leaf3"):
        world.publish(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert world.leaves("top") == ["top", "leaf1", "leaf2", "leaf3"]
    assert world.entries("top")[0].endpoints is None


@pytest.mark.spec("A74-13")
def test_leaf_counts_once_at_its_first_position_and_cycles_are_tolerated() -> None:
    world = DependencyWorld()
    world.publish(
        listener(), route_config("top"), aggregate("top", "x", "leaf1", "x", "top", "leaf2")
    )
    world.publish(aggregate("x", "leaf2", "top"))
    for name in ("leaf1", "leaf2"):
        world.publish(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert world.leaves("top") == ["top", "leaf2", "leaf1"]


@pytest.mark.spec("A74-13")
@pytest.mark.parametrize(("aggregates", "works"), [(15, True), (16, False)])
def test_depth_limit_is_sixteen_from_the_root(aggregates: int, works: bool) -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a0"))
    for at in range(aggregates):
        name = f"a{at + 1}" if at + 1 < aggregates else "leaf"
        world.publish(aggregate(f"a{at}", name))
    world.publish(cluster("leaf"), endpoints("leaf", "10.0.0.1:80"))
    result = world.config.clusters["a0"]
    if works:
        assert world.leaves("a0") == ["a0", "leaf"]
    else:
        assert isinstance(result, ClusterError)
        assert "a0" in result.status.details
        assert "16" in result.status.details


@pytest.mark.spec("A74-14")
def test_graph_without_leaf_is_an_error_that_names_the_aggregate_and_recovers() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("top"), aggregate("top", "x"), aggregate("x", "top"))
    result = world.config.clusters["top"]
    assert isinstance(result, ClusterError)
    assert result.status.code is StatusCode.UNAVAILABLE
    assert "top" in result.status.details
    assert not result.does_not_exist
    world.publish(aggregate("x", "leaf"), cluster("leaf"), endpoints("leaf", "10.0.0.1:80"))
    assert world.leaves("top") == ["top", "leaf"]


# ---------------------------------------------------------------------------------------------
# Completeness


@pytest.mark.spec("A74-15")
def test_update_waits_for_every_resource_in_every_order_of_arrival() -> None:
    resources = (
        listener(),
        route_config("a", "b"),
        cluster("a"),
        eds("b", "b-service"),
        endpoints("a", "10.0.0.1:80"),
        endpoints("b-service", "10.0.0.2:80"),
    )
    for order in permutations(resources):
        world = DependencyWorld()
        world.publish_one_by_one(*order[:-1])
        assert world.events == []
        world.publish(order[-1])
        [config] = world.events
        assert isinstance(config, XdsConfig)
        assert list(config.clusters) == ["a", "b"]


@pytest.mark.spec("A74-15")
def test_update_waits_for_the_dns_result() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a"), dns("a", "name"))
    assert world.events == []
    world.dns.respond("name:80", "10.0.0.1:80")
    world.settle()
    assert len(world.events) == 1


@pytest.mark.spec("A74-17", "A74-18")
def test_changes_are_published_as_one_update_when_all_of_them_have_arrived() -> None:
    world = start_plain("old")
    held = world.manager.subscribe("old")
    count = len(world.events)
    world.publish(listener(max_stream_duration_s=1.0), route_config("new"))
    world.remove(CDS, "old")
    world.publish(cluster("new"))
    assert len(world.events) == count, "a new config before its resources are complete"
    world.publish(endpoints("new", "10.0.0.9:80"))
    assert len(world.events) == count + 1
    assert world.config.listener.api_listener is not None
    assert world.config.listener.api_listener.max_stream_duration_s == 1.0
    assert isinstance(world.config.clusters["new"], tuple)
    held.release()


@pytest.mark.spec("A74-19")
def test_update_has_an_error_when_a_cluster_does_not_exist() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    assert world.events == []
    world.remove(CDS, "b")
    result = world.config.clusters["b"]
    assert isinstance(result, ClusterError)
    assert result.does_not_exist
    assert isinstance(world.config.clusters["a"], tuple)


@pytest.mark.spec("A74-19")
def test_update_has_a_note_when_endpoints_do_not_exist() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a"), cluster("a"))
    world.remove(EDS, "a")
    [entry] = world.entries("a")
    assert entry.endpoints is None
    assert entry.resolution_note == 'endpoints "a": does not exist (node id "node-1")'


@pytest.mark.spec("A74-20")
def test_watches_end_when_their_resources_are_no_longer_referenced() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("top", "named"), aggregate("top", "leaf"))
    world.publish(cluster("leaf"), dns("named", "name"), endpoints("leaf", "10.0.0.1:80"))
    world.dns.respond("name:80", "10.0.0.2:80")
    world.settle()
    world.publish(route_config("other"))
    assert world.watches.names(CDS) == {"other"}
    assert world.watches.names(EDS) == set()
    assert world.dns.resolvers == {}


# ---------------------------------------------------------------------------------------------
# XdsConfig


@pytest.mark.spec("A74-21", "A74-22", "A74-23")
def test_config_holds_listener_routes_host_and_clusters() -> None:
    world = DependencyWorld()
    routes = route_config("a")
    world.publish(listener(routes), cluster("a"), endpoints("a", "10.0.0.1:80"))
    config = world.config
    assert config.listener == listener(routes)
    assert config.route_config is routes
    assert config.virtual_host is routes.virtual_hosts[0]
    [entry] = world.entries("a")
    assert entry.cluster_name == "a"
    assert entry.cluster == cluster("a")
    assert entry.endpoints == endpoints("a", "10.0.0.1:80")
    assert entry.resolution_note == 'node id "node-1"'


@pytest.mark.spec("A88-04")
def test_resolution_note_has_the_node_id_only_when_there_is_no_ambient_error() -> None:
    world = start_plain("a")
    [entry] = world.entries("a")
    assert entry.resolution_note == 'node id "node-1"'


@pytest.mark.spec("A88-04")
@pytest.mark.parametrize(
    ("resource_type", "name", "context"),
    [
        (LDS, SERVICE, f'listener "{SERVICE}"'),
        (RDS, "routes", 'route configuration "routes"'),
        (CDS, "a", 'cluster "a"'),
        (EDS, "a", 'endpoints "a"'),
    ],
)
def test_resolution_note_has_the_ambient_errors_of_the_cluster(
    resource_type: FakeType, name: str, context: str
) -> None:
    world = start_plain("a", "b")
    world.publish_ambient_error(resource_type, name, unavailable("stream broke"))
    [entry], [other] = world.entries("a"), world.entries("b")
    assert entry.resolution_note == f'{context}: stream broke (node id "node-1")'
    assert entry.endpoints is not None
    is_shared = resource_type in (LDS, RDS)
    assert ("stream broke" in other.resolution_note) is is_shared


@pytest.mark.spec("A74-24", "A74-25")
def test_leaf_has_its_own_key_only_when_a_route_refers_to_it() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("top"), aggregate("top", "x", "y"))
    for name in ("x", "y"):
        world.publish(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert list(world.config.clusters) == ["top"]
    world.publish(route_config("top", "x"))
    assert list(world.config.clusters) == ["top", "x"]
    assert world.leaves("top") == ["top", "x", "y"]
    assert world.entries("x")[0].cluster_name == "x"
    found = world.config.find("y")
    assert not isinstance(found, ClusterError)
    assert found is not None
    assert found.cluster_name == "y"
    assert world.config.find("other") is None


@pytest.mark.spec("A74-26")
def test_config_does_not_change_when_a_newer_one_is_published() -> None:
    world = start_plain("a")
    held = world.config
    before = dict(held.clusters)
    world.publish(endpoints("a", "10.0.0.7:80"), cluster("a", max_concurrent_requests=7))
    assert world.config is not held
    assert dict(held.clusters) == before


def test_unchanged_clusters_are_the_same_objects_in_the_next_config() -> None:
    world = start_plain("a", "b")
    before = world.config
    world.publish(endpoints("a", "10.0.0.7:80"))
    assert world.config.clusters["b"] is before.clusters["b"]
    assert world.config.clusters["a"] is not before.clusters["a"]


def test_unchanged_resources_cause_no_update() -> None:
    world = start_plain("a")
    count = len(world.events)
    world.publish(world.config.listener, world.config.route_config)
    assert len(world.events) == count


# ---------------------------------------------------------------------------------------------
# Errors


@pytest.mark.spec("A74-27", "A74-28")
@pytest.mark.parametrize(
    ("resource_type", "name", "context"),
    [(LDS, SERVICE, f'listener "{SERVICE}"'), (RDS, "routes", 'route configuration "routes"')],
)
def test_errors_of_lds_and_rds_are_reported_with_their_context(
    resource_type: object, name: str, context: str
) -> None:
    world = DependencyWorld()
    if resource_type is RDS:
        world.publish(listener())
    assert resource_type is LDS or resource_type is RDS
    world.publish_error(resource_type, name, unavailable("no server"))
    assert world.events == [f'error {context}: no server (node id "node-1")']
    world.remove(resource_type, name)
    assert world.events[1:] == [f"does not exist {context}"]


@pytest.mark.spec("A74-28")
def test_errors_of_clusters_and_endpoints_are_reported_in_the_config_only() -> None:
    world = start_plain("a", "b")
    world.publish_error(CDS, "a", unavailable("bad"))
    world.publish_error(EDS, "b", unavailable("bad"))
    assert all(isinstance(event, XdsConfig) for event in world.events)


@pytest.mark.spec("A74-29")
@pytest.mark.parametrize(("resource_type", "name"), [(LDS, SERVICE), (RDS, "routes")])
def test_config_is_published_again_when_a_deleted_resource_returns_unchanged(
    resource_type: object, name: str
) -> None:
    world = start_plain("a")
    routes = world.config.route_config
    assert resource_type is LDS or resource_type is RDS
    world.remove(resource_type, name)
    assert isinstance(world.events[-1], str)
    world.publish(listener(), routes)
    assert world.config.route_config is routes


@pytest.mark.spec("A74-30")
@pytest.mark.parametrize(("resource_type", "name"), [(LDS, SERVICE), (RDS, "routes")])
def test_ambient_error_changes_only_the_notes(resource_type: object, name: str) -> None:
    world = start_plain("a")
    assert resource_type is LDS or resource_type is RDS
    world.publish_ambient_error(resource_type, name, unavailable("stream broke"))
    assert isinstance(world.events[-1], XdsConfig), "not an update with notes"
    [entry] = world.entries("a")
    assert entry.endpoints is not None
    assert "stream broke" in entry.resolution_note


@pytest.mark.spec("A74-31")
def test_socket_listener_is_an_error() -> None:
    world = DependencyWorld()
    world.publish(Listener(SERVICE, None))
    text = f'listener "{SERVICE}": is not an API listener, wanted one with api_listener'
    assert world.events == [f'error {text} (node id "node-1")']


@pytest.mark.spec("A74-32")
def test_missing_virtual_host_is_an_error_even_after_a_good_config() -> None:
    world = start_plain("a")
    world.publish(hosts(host(route("a"), domains=("elsewhere",))))
    text = f'route configuration "routes": has no virtual host for "{SERVICE}"'
    assert world.events[-1] == f'error {text} (node id "node-1")'


@pytest.mark.spec("A74-33")
def test_error_of_a_cluster_without_data_is_its_value_in_the_config() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("b"), endpoints("b", "10.0.0.1:80"))
    world.publish_error(CDS, "a", unavailable("field:lb_policy error:bad"))
    result = world.config.clusters["a"]
    assert isinstance(result, ClusterError)
    assert result.status == unavailable('cluster "a": field:lb_policy error:bad (node id "node-1")')
    assert not result.does_not_exist
    assert isinstance(world.config.clusters["b"], tuple)


@pytest.mark.spec("A74-34")
def test_deleted_cluster_is_an_error_until_it_returns() -> None:
    world = start_plain("a", "b")
    world.remove(CDS, "a")
    result = world.config.clusters["a"]
    assert isinstance(result, ClusterError)
    assert result.does_not_exist
    assert result.status.code is StatusCode.UNAVAILABLE
    assert isinstance(world.config.clusters["b"], tuple)
    assert "a" in world.watches.names(CDS)
    world.publish(cluster("a"))
    assert isinstance(world.config.clusters["a"], tuple)


@pytest.mark.spec("A74-35")
def test_cluster_data_is_kept_with_a_note_when_an_error_follows() -> None:
    world = start_plain("a")
    resource = world.entries("a")[0].cluster
    world.publish_ambient_error(CDS, "a", unavailable("NACKed"))
    [entry] = world.entries("a")
    assert entry.cluster is resource
    assert entry.resolution_note == 'cluster "a": NACKed (node id "node-1")'
    world.publish_ambient_error(CDS, "a", unavailable("").__class__(StatusCode.OK))
    assert world.entries("a")[0].resolution_note == 'node id "node-1"'


@pytest.mark.spec("A74-36")
def test_error_of_endpoints_is_a_note_of_the_cluster() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("a"), dns("b", "name"))
    world.publish_error(EDS, "a", unavailable("bad priorities"))
    world.dns.fail("name:80", unavailable("no such host"))
    world.settle()
    assert [entry.endpoints for name in "ab" for entry in world.entries(name)] == [None, None]
    assert [world.entries(name)[0].resolution_note for name in "ab"] == [
        'endpoints "a": bad priorities (node id "node-1")',
        'dns name "name:80": no such host (node id "node-1")',
    ]


@pytest.mark.spec("A74-37")
def test_endpoints_are_kept_when_an_error_follows() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("a"), dns("b", "name"))
    world.publish(endpoints("a", "10.0.0.1:80"))
    world.dns.respond("name:80", "10.0.0.2:80")
    world.settle()
    before = [world.entries(name)[0].endpoints for name in "ab"]
    world.publish_ambient_error(EDS, "a", unavailable("NACKed"))
    world.dns.fail("name:80", unavailable("timed out"))
    world.settle()
    assert [world.entries(name)[0].endpoints for name in "ab"] == before
    assert "NACKed" in world.entries("a")[0].resolution_note
    assert "timed out" in world.entries("b")[0].resolution_note


def test_empty_endpoints_with_drops_are_in_the_config() -> None:
    world = DependencyWorld()
    drops = (DropCategory("all", 1_000_000),)
    world.publish(listener(), route_config("a"), cluster("a"), endpoints("a", drops=drops))
    [entry] = world.entries("a")
    assert entry.endpoints is not None
    assert entry.endpoints.drops == drops
    assert entry.endpoints.priorities == ()


def test_leaf_in_error_is_omitted_with_a_note_unless_all_leaves_are_in_error() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("top"), aggregate("top", "x", "y"))
    world.publish(cluster("y"), endpoints("y", "10.0.0.1:80"))
    world.remove(CDS, "x")
    assert world.leaves("top") == ["top", "y"]
    note = world.entries("top")[0].resolution_note
    assert note == 'cluster "x": does not exist (node id "node-1")'
    world.remove(CDS, "y")
    result = world.config.clusters["top"]
    assert isinstance(result, ClusterError)
    assert not result.does_not_exist
    assert "top" in result.status.details
    assert "x" in result.status.details


# ---------------------------------------------------------------------------------------------
# Subscriptions


def test_note_of_an_aggregate_is_limited_when_many_leaves_are_in_error() -> None:
    world = DependencyWorld()
    names = [f"leaf{number}" for number in range(100)]
    world.publish(
        listener(), route_config("top"), aggregate("top", "good", *names), cluster("good")
    )
    world.publish(endpoints("good", "10.0.0.1:80"))
    for name in names:
        world.watches.put(CDS, name, unavailable("x" * 1000))
    world.settle()
    note = world.entries("top")[0].resolution_note
    assert len(note) < 6000
    assert note.endswith('; and 95 more (node id "node-1")')


def test_aggregate_of_too_many_clusters_is_an_error() -> None:
    world = DependencyWorld()
    names = [f"leaf{number}" for number in range(GRAPH_MAX + 1)]
    world.publish(listener(), route_config("top"), aggregate("top", *names))
    found = world.config.clusters["top"]
    assert isinstance(found, ClusterError)
    assert "more than 4096 clusters" in found.status.details


def test_leaf_is_that_of_routed_clusters_and_not_of_an_older_config() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("old"), aggregate("old", "x", "y"))
    world.publish(cluster("x"), cluster("y"), endpoints("x", "10.0.0.1:80"))
    world.publish(endpoints("y", "10.0.0.2:80"))
    world.manager.subscribe("old")
    # Leaf z has not been received, so `old` keeps its value of the last config (D25).
    world.publish(route_config("new"), aggregate("new", "x"), aggregate("old", "x", "y", "z"))
    fresh = endpoints("x", "10.0.0.3:80")
    world.publish(fresh)
    leaf = world.config.find("x")
    assert isinstance(leaf, ClusterConfig)
    assert leaf.endpoints is fresh


@pytest.mark.spec("A74-43")
def test_subscription_watches_the_cluster_and_puts_it_into_configs() -> None:
    world = start_plain("a")
    world.manager.subscribe("extra")
    world.settle()
    assert world.watches.names(CDS) == {"a", "extra"}
    world.publish(cluster("extra"), endpoints("extra", "10.0.0.1:80"))
    assert list(world.config.clusters) == ["a", "extra"]


@pytest.mark.spec("A74-44", "A74-45")
def test_subscription_ends_with_the_last_release() -> None:
    world = start_plain("a")
    first, second = world.manager.subscribe("extra"), world.manager.subscribe("extra")
    world.settle()
    world.publish(cluster("extra"), endpoints("extra", "10.0.0.1:80"))
    first.release()
    first.release()
    world.settle()
    assert "extra" in world.watches.names(CDS)
    assert "extra" in world.config.clusters
    second.release()
    world.settle()
    assert world.watches.names(CDS) == {"a"}
    assert world.watches.names(EDS) == {"a"}
    assert list(world.config.clusters) == ["a"]


@pytest.mark.spec("A74-46")
def test_release_of_a_routed_cluster_causes_no_update() -> None:
    world = start_plain("a")
    handle = world.manager.subscribe("a")
    world.settle()
    opened, count = list(world.watches.opened), len(world.events)
    handle.release()
    world.settle()
    assert world.watches.names(CDS) == {"a"}
    assert world.watches.opened == opened
    assert len(world.events) == count


@pytest.mark.spec("A74-47")
def test_update_does_not_wait_for_an_unresolved_subscription() -> None:
    world = start_plain("a")
    world.manager.subscribe("extra")
    world.settle()
    world.publish(endpoints("a", "10.0.0.9:80"))
    assert list(world.config.clusters) == ["a"]
    assert world.entries("a")[0].endpoints == endpoints("a", "10.0.0.9:80")


@pytest.mark.spec("A74-47")
def test_subscribed_cluster_keeps_its_value_while_a_part_is_missing() -> None:
    world = start_plain("a", "gone")
    world.manager.subscribe("gone")
    world.publish(route_config("a"))
    before = world.config.clusters["gone"]
    world.publish(eds("gone", "elsewhere"), endpoints("a", "10.0.0.9:80"))
    assert world.entries("a")[0].endpoints == endpoints("a", "10.0.0.9:80")
    assert world.config.clusters["gone"] is before


@pytest.mark.spec("A74-50")
def test_subscribe_and_release_work_inside_a_callback_and_after_close() -> None:
    world = DependencyWorld()
    handles: list[Any] = []
    on_update = world.watcher.on_update

    def subscribe_inside(config: XdsConfig) -> None:
        on_update(config)
        handles.append(world.manager.subscribe(f"extra{len(handles)}"))
        if len(handles) > 1:
            handles[0].release()

    world.watcher.on_update = subscribe_inside  # type: ignore[method-assign]
    world.publish(listener(), route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.publish(endpoints("a", "10.0.0.2:80"))
    assert world.watches.names(CDS) == {"a", "extra1"}
    world.manager.close()
    late = world.manager.subscribe("late")
    late.release()
    handles[1].release()
    world.settle()
    for resource_type in (LDS, RDS, CDS, EDS):
        assert world.watches.names(resource_type) == set()
    assert ("CDS", "late") not in world.watches.opened


def test_thousand_clusters_give_one_update() -> None:
    world = DependencyWorld()
    names = [f"c{at}" for at in range(1000)]
    world.publish(listener(), route_config(*names))
    world.publish(*(cluster(name) for name in names))
    world.publish(*(endpoints(name, "10.0.0.1:80") for name in names))
    assert len(world.events) == 1
