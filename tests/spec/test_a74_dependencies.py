"""A74: what is watched, when a config is complete, and what is in it."""

from itertools import permutations
from typing import Any

import pytest

from proxyless.base import StatusCode
from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from proxyless.xds.config.dependencies import GRAPH_MAX
from proxyless.xds.resources import DropCategory, Listener, NonForwardingAction, PathMatcher, Route
from tests.spec.xds_world import (
    CDS,
    EDS,
    LDS,
    RDS,
    SERVICE,
    World,
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
    start_plain,
    unavailable,
)

# ---------------------------------------------------------------------------------------------
# Where watches live


@pytest.mark.spec("A74-03")
def test_construction_starts_the_listener_watch_at_once() -> None:
    world = World()
    assert world.watches.opened == [("LDS", SERVICE)]
    assert world.events == []


@pytest.mark.spec("A74-04")
def test_rds_is_watched_only_if_the_routes_are_not_inline() -> None:
    world = World()
    world.say(listener(route_config("a")))
    assert world.watches.names(RDS) == set()
    world.say(listener("routes"))
    assert world.watches.names(RDS) == {"routes"}


@pytest.mark.spec("A74-05")
def test_new_rds_name_keeps_the_old_config_until_its_routes_are_here() -> None:
    world = start_plain("a")
    held = world.manager.subscribe("a")
    before = list(world.events)
    world.say(listener("other"))
    assert world.watches.names(RDS) == {"other"}
    assert world.events == before
    world.say(route_config("a", name="other"))
    assert world.config.route_config.name == "other"
    held.release()


@pytest.mark.spec("A74-06")
def test_routes_move_between_inline_and_rds_and_late_ones_are_ignored() -> None:
    world = start_plain("a")
    world.say(listener(route_config("a", name="inline")))
    assert world.config.route_config.name == "inline"
    assert world.watches.names(RDS) == set()
    count = len(world.events)
    world.say(route_config("late"))
    assert len(world.events) == count
    world.say(route_config("a"), listener("routes"))
    assert world.config.route_config.name == "routes"


@pytest.mark.spec("A74-07")
def test_changed_listener_comes_with_the_routes_that_are_there() -> None:
    world = start_plain("a")
    routes = world.config.route_config
    world.say(listener(max_stream_duration_s=3.0))
    assert world.config.listener.api_listener is not None
    assert world.config.listener.api_listener.max_stream_duration_s == 3.0
    assert world.config.route_config is routes


@pytest.mark.spec("A74-08", "A74-21")
def test_virtual_host_is_the_best_match_for_the_authority() -> None:
    world = World("orders.example")
    routes = hosts(
        host(route("any")),
        host(route("suffix"), domains=("*.example",)),
        host(route("exact"), domains=("Orders.Example",)),
    )
    world.say(listener(), routes, cluster("exact"), endpoints("exact", "10.0.0.1:80"))
    assert world.config.virtual_host is routes.virtual_hosts[2]
    assert list(world.config.clusters) == ["exact"]


@pytest.mark.spec("A74-09")
def test_only_clusters_of_the_chosen_virtual_host_are_watched() -> None:
    world = World()
    redirect = Route(path=PathMatcher("prefix", "/r"), action=NonForwardingAction("redirect"))
    world.say(
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
def test_eds_is_watched_by_service_name_once_for_all_who_share_it() -> None:
    world = World()
    world.say(listener(), route_config("a", "b", "plain"))
    world.say(eds("a", "shared"), eds("b", "shared"), cluster("plain"))
    assert world.watches.names(EDS) == {"shared", "plain"}
    assert world.watches.count(EDS, "shared") == 1
    world.say(endpoints("shared", "10.0.0.1:80"), endpoints("plain", "10.0.0.2:80"))
    assert world.entries("a")[0].endpoints is world.entries("b")[0].endpoints


@pytest.mark.spec("A74-11", "A61-01")
def test_logical_dns_is_one_endpoint_with_all_addresses_and_shared_by_name() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"))
    world.say(dns("a", "backend.example", 81), dns("b", "backend.example", 81))
    assert list(world.dns.resolvers) == ["backend.example:81"]
    assert world.dns.resolvers["backend.example:81"].started == 1
    assert world.events == []
    world.dns.answer("backend.example:81", "10.0.0.1:81", "10.0.0.2:81")
    world.settle()
    found = world.entries("a")[0].endpoints
    assert found is not None
    assert found is world.entries("b")[0].endpoints
    [[only]] = found.priorities
    assert [list(map(str, each.addresses)) for each in only.endpoints] == [
        ["10.0.0.1:81", "10.0.0.2:81"]
    ]


def test_dns_answer_that_says_the_same_is_no_news() -> None:
    world = World()
    world.say(listener(), route_config("a"), dns("a", "name"))
    world.dns.answer("name:80", "10.0.0.1:80")
    world.settle()
    before = list(world.events)
    world.dns.answer("name:80", "10.0.0.1:80")
    world.settle()
    assert world.events == before
    world.dns.answer("name:80", "10.0.0.2:80")
    world.settle()
    assert len(world.events) == len(before) + 1


def test_dns_name_that_is_none_is_trouble_of_its_cluster_only() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), dns("a", "no name"), cluster("b"))
    world.say(endpoints("b", "10.0.0.1:80"))
    (entry,) = world.entries("a")
    assert entry.endpoints is None
    assert "no name" in entry.resolution_note
    assert world.leaves("b") == ["b"]
    world.manager.request_reresolution()
    world.manager.reset_backoff()
    world.say(route_config("b"))
    assert list(world.config.clusters) == ["b"]
    world.manager.close()


@pytest.mark.spec("A37-04")
def test_reresolution_request_reaches_every_dns_name() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), dns("a", "one"), dns("b", "two"))
    world.manager.request_reresolution()
    assert {each.asked_again for each in world.dns.resolvers.values()} == {1}


@pytest.mark.spec("A74-12", "A74-23")
def test_aggregate_is_walked_depth_first_in_listed_order() -> None:
    world = World()
    world.say(listener(), route_config("top"))
    world.say(aggregate("top", "left", "leaf3"))
    assert world.watches.names(CDS) == {"top", "left", "leaf3"}
    world.say(aggregate("left", "leaf1", "leaf2"))
    assert world.watches.names(CDS) == {"top", "left", "leaf1", "leaf2", "leaf3"}
    for name in ("leaf1", "leaf2", "leaf3"):
        world.say(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert world.leaves("top") == ["top", "leaf1", "leaf2", "leaf3"]
    assert world.entries("top")[0].endpoints is None


@pytest.mark.spec("A74-13")
def test_leaf_counts_once_at_its_first_position_and_cycles_are_tolerated() -> None:
    world = World()
    world.say(listener(), route_config("top"), aggregate("top", "x", "leaf1", "x", "top", "leaf2"))
    world.say(aggregate("x", "leaf2", "top"))
    for name in ("leaf1", "leaf2"):
        world.say(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert world.leaves("top") == ["top", "leaf2", "leaf1"]


@pytest.mark.spec("A74-13")
@pytest.mark.parametrize(("aggregates", "works"), [(15, True), (16, False)])
def test_depth_limit_is_sixteen_from_the_root(aggregates: int, works: bool) -> None:
    world = World()
    world.say(listener(), route_config("a0"))
    for at in range(aggregates):
        name = f"a{at + 1}" if at + 1 < aggregates else "leaf"
        world.say(aggregate(f"a{at}", name))
    world.say(cluster("leaf"), endpoints("leaf", "10.0.0.1:80"))
    result = world.config.clusters["a0"]
    if works:
        assert world.leaves("a0") == ["a0", "leaf"]
    else:
        assert isinstance(result, ClusterError)
        assert "a0" in result.status.details
        assert "16" in result.status.details


@pytest.mark.spec("A74-14")
def test_graph_without_leaf_is_an_error_that_names_the_aggregate_and_recovers() -> None:
    world = World()
    world.say(listener(), route_config("top"), aggregate("top", "x"), aggregate("x", "top"))
    result = world.config.clusters["top"]
    assert isinstance(result, ClusterError)
    assert result.status.code is StatusCode.UNAVAILABLE
    assert "top" in result.status.details
    assert not result.does_not_exist
    world.say(aggregate("x", "leaf"), cluster("leaf"), endpoints("leaf", "10.0.0.1:80"))
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
        world = World()
        world.say_one_by_one(*order[:-1])
        assert world.events == []
        world.say(order[-1])
        [config] = world.events
        assert isinstance(config, XdsConfig)
        assert list(config.clusters) == ["a", "b"]


@pytest.mark.spec("A74-15")
def test_missing_dns_answer_withholds_the_update() -> None:
    world = World()
    world.say(listener(), route_config("a"), dns("a", "name"))
    assert world.events == []
    world.dns.answer("name:80", "10.0.0.1:80")
    world.settle()
    assert len(world.events) == 1


@pytest.mark.spec("A74-17", "A74-18")
def test_changes_are_told_once_when_all_of_them_are_here() -> None:
    world = start_plain("old")
    held = world.manager.subscribe("old")
    count = len(world.events)
    world.say(listener(max_stream_duration_s=1.0), route_config("new"))
    world.remove(CDS, "old")
    world.say(cluster("new"))
    assert len(world.events) == count, "the old config stays in force"
    world.say(endpoints("new", "10.0.0.9:80"))
    assert len(world.events) == count + 1
    assert world.config.listener.api_listener is not None
    assert world.config.listener.api_listener.max_stream_duration_s == 1.0
    assert isinstance(world.config.clusters["new"], tuple)
    held.release()


@pytest.mark.spec("A74-19")
def test_resource_that_never_comes_releases_the_gate_with_an_error() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    assert world.events == []
    world.remove(CDS, "b")
    result = world.config.clusters["b"]
    assert isinstance(result, ClusterError)
    assert result.does_not_exist
    assert isinstance(world.config.clusters["a"], tuple)


@pytest.mark.spec("A74-19")
def test_endpoints_that_never_come_release_the_gate_with_a_note() -> None:
    world = World()
    world.say(listener(), route_config("a"), cluster("a"))
    world.remove(EDS, "a")
    [entry] = world.entries("a")
    assert entry.endpoints is None
    assert entry.resolution_note == 'endpoints "a": does not exist (node id "node-1")'


@pytest.mark.spec("A74-20")
def test_what_is_not_reachable_any_more_is_not_watched() -> None:
    world = World()
    world.say(listener(), route_config("top", "named"), aggregate("top", "leaf"))
    world.say(cluster("leaf"), dns("named", "name"), endpoints("leaf", "10.0.0.1:80"))
    world.dns.answer("name:80", "10.0.0.2:80")
    world.settle()
    world.say(route_config("other"))
    assert world.watches.names(CDS) == {"other"}
    assert world.watches.names(EDS) == set()
    assert world.dns.resolvers == {}


# ---------------------------------------------------------------------------------------------
# XdsConfig


@pytest.mark.spec("A74-21", "A74-22", "A74-23", "A88-04")
def test_config_holds_listener_routes_host_and_clusters() -> None:
    world = World()
    routes = route_config("a")
    world.say(listener(routes), cluster("a"), endpoints("a", "10.0.0.1:80"))
    config = world.config
    assert config.listener == listener(routes)
    assert config.route_config is routes
    assert config.virtual_host is routes.virtual_hosts[0]
    [entry] = world.entries("a")
    assert entry.cluster_name == "a"
    assert entry.cluster == cluster("a")
    assert entry.endpoints == endpoints("a", "10.0.0.1:80")
    assert entry.resolution_note == 'node id "node-1"'


@pytest.mark.spec("A74-24", "A74-25")
def test_leaf_has_a_key_of_its_own_only_if_a_route_names_it() -> None:
    world = World()
    world.say(listener(), route_config("top"), aggregate("top", "x", "y"))
    for name in ("x", "y"):
        world.say(cluster(name), endpoints(name, "10.0.0.1:80"))
    assert list(world.config.clusters) == ["top"]
    world.say(route_config("top", "x"))
    assert list(world.config.clusters) == ["top", "x"]
    assert world.leaves("top") == ["top", "x", "y"]
    assert world.entries("x")[0].cluster_name == "x"
    found = world.config.find("y")
    assert not isinstance(found, ClusterError)
    assert found is not None
    assert found.cluster_name == "y"
    assert world.config.find("nobody") is None


@pytest.mark.spec("A74-26")
def test_config_that_somebody_holds_does_not_change() -> None:
    world = start_plain("a")
    held = world.config
    before = dict(held.clusters)
    world.say(endpoints("a", "10.0.0.7:80"), cluster("a", max_concurrent_requests=7))
    assert world.config is not held
    assert dict(held.clusters) == before


def test_unchanged_parts_are_the_same_objects() -> None:
    world = start_plain("a", "b")
    before = world.config
    world.say(endpoints("a", "10.0.0.7:80"))
    assert world.config.clusters["b"] is before.clusters["b"]
    assert world.config.clusters["a"] is not before.clusters["a"]


def test_nothing_new_is_not_told_again() -> None:
    world = start_plain("a")
    count = len(world.events)
    world.say(world.config.listener, world.config.route_config)
    assert len(world.events) == count


# ---------------------------------------------------------------------------------------------
# Errors


@pytest.mark.spec("A74-27", "A74-28")
@pytest.mark.parametrize(
    ("resource_type", "name", "context"),
    [(LDS, SERVICE, f'listener "{SERVICE}"'), (RDS, "routes", 'route configuration "routes"')],
)
def test_lds_and_rds_trouble_is_told_with_its_context(
    resource_type: object, name: str, context: str
) -> None:
    world = World()
    if resource_type is RDS:
        world.say(listener())
    assert resource_type is LDS or resource_type is RDS
    world.refuse(resource_type, name, unavailable("no server"))
    assert world.events == [f'error {context}: no server (node id "node-1")']
    world.remove(resource_type, name)
    assert world.events[1:] == [f"does not exist {context}"]


@pytest.mark.spec("A74-28")
def test_cluster_and_endpoint_trouble_raises_no_event_of_its_own() -> None:
    world = start_plain("a", "b")
    world.refuse(CDS, "a", unavailable("bad"))
    world.refuse(EDS, "b", unavailable("bad"))
    assert all(isinstance(event, XdsConfig) for event in world.events)


@pytest.mark.spec("A74-29")
@pytest.mark.parametrize(("resource_type", "name"), [(LDS, SERVICE), (RDS, "routes")])
def test_same_resource_returning_unchanged_gives_the_config_again(
    resource_type: object, name: str
) -> None:
    world = start_plain("a")
    routes = world.config.route_config
    assert resource_type is LDS or resource_type is RDS
    world.remove(resource_type, name)
    assert isinstance(world.events[-1], str)
    world.say(listener(), routes)
    assert world.config.route_config is routes


@pytest.mark.spec("A74-30")
@pytest.mark.parametrize(("resource_type", "name"), [(LDS, SERVICE), (RDS, "routes")])
def test_error_with_earlier_data_disturbs_nobody(resource_type: object, name: str) -> None:
    world = start_plain("a")
    assert resource_type is LDS or resource_type is RDS
    world.trouble(resource_type, name, unavailable("stream broke"))
    assert isinstance(world.events[-1], XdsConfig), "only notes change"
    [entry] = world.entries("a")
    assert entry.endpoints is not None
    assert "stream broke" in entry.resolution_note


@pytest.mark.spec("A74-31")
def test_socket_listener_is_an_error() -> None:
    world = World()
    world.say(Listener(SERVICE, None))
    text = f'listener "{SERVICE}": is not an API listener, wanted one with api_listener'
    assert world.events == [f'error {text} (node id "node-1")']


@pytest.mark.spec("A74-32")
def test_no_virtual_host_is_an_error_that_names_the_authority_even_after_a_good_config() -> None:
    world = start_plain("a")
    world.say(hosts(host(route("a"), domains=("elsewhere",))))
    text = f'route configuration "routes": has no virtual host for "{SERVICE}"'
    assert world.events[-1] == f'error {text} (node id "node-1")'


@pytest.mark.spec("A74-33")
def test_cluster_error_without_data_is_that_clusters_value_only() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), cluster("b"), endpoints("b", "10.0.0.1:80"))
    world.refuse(CDS, "a", unavailable("field:lb_policy error:bad"))
    result = world.config.clusters["a"]
    assert isinstance(result, ClusterError)
    assert result.status == unavailable('cluster "a": field:lb_policy error:bad (node id "node-1")')
    assert not result.does_not_exist
    assert isinstance(world.config.clusters["b"], tuple)


@pytest.mark.spec("A74-34")
def test_deleted_cluster_is_an_error_and_its_return_restores_it() -> None:
    world = start_plain("a", "b")
    world.remove(CDS, "a")
    result = world.config.clusters["a"]
    assert isinstance(result, ClusterError)
    assert result.does_not_exist
    assert result.status.code is StatusCode.UNAVAILABLE
    assert isinstance(world.config.clusters["b"], tuple)
    assert "a" in world.watches.names(CDS)
    world.say(cluster("a"))
    assert isinstance(world.config.clusters["a"], tuple)


@pytest.mark.spec("A74-35")
def test_cluster_error_after_data_keeps_the_data_and_is_noted() -> None:
    world = start_plain("a")
    resource = world.entries("a")[0].cluster
    world.trouble(CDS, "a", unavailable("NACKed"))
    [entry] = world.entries("a")
    assert entry.cluster is resource
    assert entry.resolution_note == 'cluster "a": NACKed (node id "node-1")'
    world.trouble(CDS, "a", unavailable("").__class__(StatusCode.OK))
    assert world.entries("a")[0].resolution_note == 'node id "node-1"'


@pytest.mark.spec("A74-36")
def test_endpoint_trouble_never_makes_the_cluster_an_error() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), cluster("a"), dns("b", "name"))
    world.refuse(EDS, "a", unavailable("bad priorities"))
    world.dns.fail("name:80", unavailable("no such host"))
    world.settle()
    assert [entry.endpoints for name in "ab" for entry in world.entries(name)] == [None, None]
    assert [world.entries(name)[0].resolution_note for name in "ab"] == [
        'endpoints "a": bad priorities (node id "node-1")',
        'dns name "name:80": no such host (node id "node-1")',
    ]


@pytest.mark.spec("A74-37")
def test_endpoint_trouble_after_good_ones_keeps_them() -> None:
    world = World()
    world.say(listener(), route_config("a", "b"), cluster("a"), dns("b", "name"))
    world.say(endpoints("a", "10.0.0.1:80"))
    world.dns.answer("name:80", "10.0.0.2:80")
    world.settle()
    before = [world.entries(name)[0].endpoints for name in "ab"]
    world.trouble(EDS, "a", unavailable("NACKed"))
    world.dns.fail("name:80", unavailable("timed out"))
    world.settle()
    assert [world.entries(name)[0].endpoints for name in "ab"] == before
    assert "NACKed" in world.entries("a")[0].resolution_note
    assert "timed out" in world.entries("b")[0].resolution_note


def test_empty_endpoints_with_drops_are_a_cluster_like_any_other() -> None:
    world = World()
    drops = (DropCategory("all", 1_000_000),)
    world.say(listener(), route_config("a"), cluster("a"), endpoints("a", drops=drops))
    [entry] = world.entries("a")
    assert entry.endpoints is not None
    assert entry.endpoints.drops == drops
    assert entry.endpoints.priorities == ()


def test_leaf_in_error_is_left_out_with_a_note_until_none_is_left() -> None:
    world = World()
    world.say(listener(), route_config("top"), aggregate("top", "x", "y"))
    world.say(cluster("y"), endpoints("y", "10.0.0.1:80"))
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


def test_note_of_an_aggregate_stays_short_whatever_is_wrong_below() -> None:
    world = World()
    names = [f"leaf{number}" for number in range(100)]
    world.say(listener(), route_config("top"), aggregate("top", "good", *names), cluster("good"))
    world.say(endpoints("good", "10.0.0.1:80"))
    for name in names:
        world.watches.put(CDS, name, unavailable("x" * 1000))
    world.settle()
    note = world.entries("top")[0].resolution_note
    assert len(note) < 6000
    assert note.endswith('; and 95 more (node id "node-1")')


def test_aggregate_of_too_many_clusters_is_an_error_that_says_so() -> None:
    world = World()
    names = [f"leaf{number}" for number in range(GRAPH_MAX + 1)]
    world.say(listener(), route_config("top"), aggregate("top", *names))
    found = world.config.clusters["top"]
    assert isinstance(found, ClusterError)
    assert "more than 10000 clusters" in found.status.details


def test_leaf_is_what_routed_clusters_say_not_what_an_older_config_said() -> None:
    world = World()
    world.say(listener(), route_config("old"), aggregate("old", "x", "y"))
    world.say(cluster("x"), cluster("y"), endpoints("x", "10.0.0.1:80"))
    world.say(endpoints("y", "10.0.0.2:80"))
    world.manager.subscribe("old")
    # A leaf that is not known yet: what the last config said about `old` stands (D25).
    world.say(route_config("new"), aggregate("new", "x"), aggregate("old", "x", "y", "z"))
    fresh = endpoints("x", "10.0.0.3:80")
    world.say(fresh)
    leaf = world.config.find("x")
    assert isinstance(leaf, ClusterConfig)
    assert leaf.endpoints is fresh


@pytest.mark.spec("A74-43")
def test_subscription_watches_the_cluster_and_puts_it_into_configs() -> None:
    world = start_plain("a")
    world.manager.subscribe("extra")
    world.settle()
    assert world.watches.names(CDS) == {"a", "extra"}
    world.say(cluster("extra"), endpoints("extra", "10.0.0.1:80"))
    assert list(world.config.clusters) == ["a", "extra"]


@pytest.mark.spec("A74-44", "A74-45")
def test_subscription_ends_with_the_last_release() -> None:
    world = start_plain("a")
    first, second = world.manager.subscribe("extra"), world.manager.subscribe("extra")
    world.settle()
    world.say(cluster("extra"), endpoints("extra", "10.0.0.1:80"))
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
def test_releasing_a_routed_cluster_changes_nothing() -> None:
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
def test_unresolved_subscription_holds_nothing_back() -> None:
    world = start_plain("a")
    world.manager.subscribe("extra")
    world.settle()
    world.say(endpoints("a", "10.0.0.9:80"))
    assert list(world.config.clusters) == ["a"]
    assert world.entries("a")[0].endpoints == endpoints("a", "10.0.0.9:80")


@pytest.mark.spec("A74-47")
def test_known_subscription_that_lost_a_part_stays_as_it_was() -> None:
    world = start_plain("a", "gone")
    world.manager.subscribe("gone")
    world.say(route_config("a"))
    before = world.config.clusters["gone"]
    world.say(eds("gone", "elsewhere"), endpoints("a", "10.0.0.9:80"))
    assert world.entries("a")[0].endpoints == endpoints("a", "10.0.0.9:80")
    assert world.config.clusters["gone"] is before


@pytest.mark.spec("A74-50")
def test_subscribe_and_release_inside_a_callback_and_after_close() -> None:
    world = World()
    handles: list[Any] = []
    on_update = world.watcher.on_update

    def subscribe_inside(config: XdsConfig) -> None:
        on_update(config)
        handles.append(world.manager.subscribe(f"extra{len(handles)}"))
        if len(handles) > 1:
            handles[0].release()

    world.watcher.on_update = subscribe_inside  # type: ignore[method-assign]
    world.say(listener(), route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.say(endpoints("a", "10.0.0.2:80"))
    assert world.watches.names(CDS) == {"a", "extra1"}
    world.manager.close()
    late = world.manager.subscribe("late")
    late.release()
    handles[1].release()
    world.settle()
    for resource_type in (LDS, RDS, CDS, EDS):
        assert world.watches.names(resource_type) == set()
    assert ("CDS", "late") not in world.watches.opened


def test_thousand_clusters_cost_one_look_for_each_message() -> None:
    """The dependency on one resource must never cost a scan of all of them, each time."""
    world = World()
    names = [f"c{at}" for at in range(1000)]
    world.say(listener(), route_config(*names))
    world.say(*(cluster(name) for name in names))
    world.say(*(endpoints(name, "10.0.0.1:80") for name in names))
    assert len(world.events) == 1
