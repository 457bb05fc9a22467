"""The decision of the dependency manager: pure, with the needed resources only; reuses objects."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.base import StatusCode
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.config import ClusterError, XdsConfig
from proxyless.xds.config.dependencies import resolve
from proxyless.xds.config.plan import (
    ConfigError,
    ConfigTarget,
    Missing,
    ResourceState,
    ResourceStates,
)
from proxyless.xds.config.virtual_hosts import routed_clusters
from proxyless.xds.resources import NonForwardingAction, PathMatcher, PluginChoice, Route
from tests.worlds.xds_resources import (
    NOT_FOUND,
    aggregate,
    cluster,
    dns,
    eds,
    endpoints,
    host,
    listener,
    route,
    route_config,
)

if TYPE_CHECKING:
    from proxyless.xds.resources import Cluster, EndpointResource, RouteConfiguration

TARGET = ConfigTarget("orders", "orders", "node-1")
MISSING: ResourceState[Any] = ResourceState()
GONE: ResourceState[Any] = ResourceState(error=NOT_FOUND)
AWAY = NoAnswer(StatusCode.UNAVAILABLE, 'xds server "td": does not answer')
NAMES = st.sampled_from("abcd")
CLUSTERS = st.one_of(
    st.just(MISSING),
    st.just(GONE),
    NAMES.map(lambda name: ResourceState(cluster(name))),
    NAMES.map(lambda name: ResourceState(dns(name, "host.example"))),
    st.lists(NAMES, min_size=1, max_size=3).map(
        lambda below: ResourceState(aggregate("x", *below))
    ),
)
ENDPOINTS = st.one_of(
    st.just(MISSING),
    st.just(GONE),
    NAMES.map(lambda name: ResourceState(endpoints(name, "10.0.0.1:80"))),
)
STATES = st.builds(
    ResourceStates,
    listeners=st.just({"orders": ResourceState(listener())}),
    route_configs=st.lists(NAMES, max_size=3).map(
        lambda names: {"routes": ResourceState(route_config(*names))}
    ),
    clusters=st.dictionaries(NAMES, CLUSTERS),
    endpoints=st.dictionaries(NAMES, ENDPOINTS),
    dns=st.one_of(st.just({}), ENDPOINTS.map(lambda answer: {("host.example", 80): answer})),
)


@settings(max_examples=200)
@given(STATES, st.lists(NAMES, max_size=2, unique=True))
def test_resolve_is_pure_and_has_a_config_only_when_no_routed_resource_is_missing(
    states: ResourceStates, subscribed: list[str]
) -> None:
    before = deepcopy(states)
    plan = resolve(TARGET, states, subscribed)
    assert states == before
    assert resolve(TARGET, states, subscribed) == plan or isinstance(plan.outcome, XdsConfig)
    assert set(subscribed) <= set(plan.clusters)
    host_found = states.route_configs["routes"].resource.virtual_hosts[0]  # type: ignore[union-attr]
    routed = set(routed_clusters(host_found))
    if isinstance(plan.outcome, XdsConfig):
        assert routed <= set(plan.outcome.clusters) <= routed | set(subscribed)
    else:
        answers = [states.clusters.get(name, MISSING) for name in plan.clusters]
        answers += [states.endpoints.get(name, MISSING) for name in plan.endpoints]
        answers += [states.dns.get(key, MISSING) for key in plan.dns]
        assert plan.outcome is None
        assert any(answer.is_missing for answer in answers)


@settings(max_examples=200)
@given(STATES)
def test_unchanged_entries_are_the_same_objects(states: ResourceStates) -> None:
    first = resolve(TARGET, states).outcome
    if isinstance(first, XdsConfig):
        again = resolve(TARGET, states, previous=first).outcome
        assert isinstance(again, XdsConfig)
        for name, result in again.clusters.items():
            assert result is first.clusters[name] or isinstance(result, ClusterError)


@settings(max_examples=300)
@given(STATES, STATES, st.sets(NAMES), st.booleans())
def test_config_does_not_depend_on_the_previous_one(
    first: ResourceStates, second: ResourceStates, unchanged: set[str], are_routes_same: bool
) -> None:
    # A resource that has not changed is the same object.
    if are_routes_same:
        second.route_configs = first.route_configs
    for name in unchanged:
        for kind in ("clusters", "endpoints"):
            before, after = getattr(first, kind), getattr(second, kind)
            after.pop(name, None)
            if name in before:
                after[name] = before[name]
    previous = resolve(TARGET, first).outcome
    if not isinstance(previous, XdsConfig):
        return
    found, alone = resolve(TARGET, second, previous=previous), resolve(TARGET, second)
    for plan in (found, alone):
        if isinstance(plan.outcome, XdsConfig):
            # Configs compare by identity.
            plan.subscribed, plan.outcome = plan.outcome.clusters, None
    assert found == alone


def test_unchanged_cluster_gets_an_ambient_error_of_its_resources() -> None:
    found, found_endpoints, routes = parts()
    states = ResourceStates(
        listeners={"orders": ResourceState(listener())},
        route_configs={"routes": ResourceState(routes)},
        clusters={"a": ResourceState(found)},
        endpoints={"a": ResourceState(found_endpoints)},
    )
    first = resolve(TARGET, states).outcome
    assert isinstance(first, XdsConfig)
    by_types: list[dict[str, ResourceState[Any]]] = [
        *(states.listeners, states.route_configs, states.clusters, states.endpoints)
    ]
    for by_name in by_types:
        [(name, state)] = by_name.items()
        by_name[name] = ResourceState(state.resource, ambient_error=NOT_FOUND)
        outcome = resolve(TARGET, states, previous=first).outcome
        assert isinstance(outcome, XdsConfig)
        [entry] = outcome.clusters["a"]  # type: ignore[misc]
        assert "does not exist" in entry.resolution_note
        by_name[name] = state


def test_plan_needs_only_the_listener_at_first() -> None:
    plan = resolve(TARGET, ResourceStates())
    assert plan.outcome is None
    assert [*plan.route_configs, *plan.clusters, *plan.endpoints, *plan.dns] == []


def test_subscribed_clusters_are_needed_when_the_listener_does_not_exist() -> None:
    states = ResourceStates(
        listeners={"orders": ResourceState(error=NOT_FOUND)},
        clusters={"a": ResourceState(cluster("a"))},
    )
    plan = resolve(TARGET, states, ["a"])
    assert isinstance(plan.outcome, ConfigError)
    assert plan.outcome.does_not_exist
    assert (list(plan.clusters), list(plan.endpoints)) == (["a"], ["a"])


def test_routed_clusters_are_those_of_forwarding_actions() -> None:
    away = Route(path=PathMatcher("prefix", ""), action=NonForwardingAction("redirect"))
    plugged = route("x")
    object.__setattr__(plugged.action, "choice", PluginChoice("p"))
    found = host(away, plugged, route({"b": 1, "a": 2}), route("a"), route("c"))
    assert list(routed_clusters(found)) == ["b", "a", "c"]


def parts() -> tuple[Cluster, EndpointResource, RouteConfiguration]:
    return cluster("a"), endpoints("a", "10.0.0.1:80"), route_config("a")


def test_note_has_ambient_errors_or_only_the_node_id() -> None:
    found, found_endpoints, routes = parts()
    states = ResourceStates(
        listeners={"orders": ResourceState(listener(), ambient_error=NOT_FOUND)},
        route_configs={"routes": ResourceState(routes)},
        clusters={"a": ResourceState(found)},
        endpoints={"a": ResourceState(found_endpoints)},
    )
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    assert entry.resolution_note == 'listener "orders": does not exist (node id "node-1")'
    states.listeners["orders"] = ResourceState(listener())
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    assert entry.resolution_note == 'node id "node-1"'


def test_note_has_an_error_when_no_endpoint_is_usable() -> None:
    found, _, routes = parts()
    states = ResourceStates(
        listeners={"orders": ResourceState(listener())},
        route_configs={"routes": ResourceState(routes)},
        clusters={"a": ResourceState(found)},
        endpoints={"a": ResourceState(endpoints("a"))},
    )
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    note = 'endpoints "a": has no endpoint that may be used (node id "node-1")'
    assert entry.resolution_note == note


def test_note_names_an_outage_once() -> None:
    found, _, routes = parts()
    states = ResourceStates(
        listeners={"orders": ResourceState(listener(), ambient_error=AWAY)},
        route_configs={"routes": ResourceState(routes, ambient_error=AWAY)},
        clusters={"a": ResourceState(found, ambient_error=AWAY)},
        endpoints={"a": ResourceState(error=AWAY)},
    )
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    note = 'endpoints "a": xds server "td": does not answer (node id "node-1")'
    assert entry.resolution_note == note


def test_error_of_an_aggregate_names_an_outage_once() -> None:
    states = ResourceStates(
        listeners={"orders": ResourceState(listener())},
        route_configs={"routes": ResourceState(route_config("a"))},
        clusters={
            "a": ResourceState(aggregate("a", "b", "c", "d")),
            "b": ResourceState(error=AWAY),
            "c": GONE,
            "d": ResourceState(error=AWAY),
        },
    )
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    error = outcome.clusters["a"]
    assert isinstance(error, ClusterError)
    assert error.status.details == (
        'cluster "a": aggregate has no leaf cluster: cluster "b", cluster "d": xds server "td": '
        'does not answer; cluster "c": does not exist (node id "node-1")'
    )


def error_of_loop(**below: tuple[str, ...]) -> str:
    """The error text of aggregates with these children."""
    states = ResourceStates(
        listeners={"orders": ResourceState(listener())},
        route_configs={"routes": ResourceState(route_config("a"))},
        clusters={name: ResourceState(aggregate(name, *names)) for name, names in below.items()},
    )
    outcome = resolve(TARGET, states).outcome
    assert isinstance(outcome, XdsConfig)
    error = outcome.clusters["a"]
    assert isinstance(error, ClusterError)
    return error.status.details


def test_error_names_a_loop_of_aggregates() -> None:
    assert error_of_loop(a=("b",), b=("c",), c=("b",)) == (
        'cluster "a": aggregate has no leaf cluster: "b" > "c" > "b" is a loop (node id "node-1")'
    )
    assert '"a" > "a" is a loop' in error_of_loop(a=("a",))


def missing_texts(states: ResourceStates, *subscribed: str) -> list[str]:
    plan = resolve(TARGET, states, subscribed)
    assert (plan.outcome is None) is bool(plan.missing)
    return list(map(str, plan.missing))


def test_missing_has_the_next_resources_at_each_step() -> None:
    states = ResourceStates()
    assert missing_texts(states) == ['listener "orders"']
    states.listeners["orders"] = ResourceState(listener())
    assert missing_texts(states) == ['route configuration "routes"']
    states.route_configs["routes"] = ResourceState(route_config("a", "all"))
    assert missing_texts(states) == ['cluster "a"', 'cluster "all"']
    states.clusters["a"] = ResourceState(eds("a", "service"))
    states.clusters["all"] = ResourceState(aggregate("all", "a", "b", "c"))
    states.clusters["b"] = ResourceState(dns("b", "host.example"))
    assert missing_texts(states) == [
        'endpoints "service" of cluster "a"',
        'dns name "host.example:80" of cluster "b"',
        'cluster "c" of cluster "all"',
    ]
    states.endpoints["service"] = ResourceState(endpoints("service", "10.0.0.1:80"))
    states.dns["host.example", 80] = states.clusters["c"] = GONE
    assert missing_texts(states) == []


def test_missing_is_empty_when_only_subscribed_cluster_lacks_parts() -> None:
    found, found_endpoints, routes = parts()
    states = ResourceStates(
        listeners={"orders": ResourceState(listener())},
        route_configs={"routes": ResourceState(routes)},
        clusters={"a": ResourceState(found), "c": ResourceState(cluster("c"))},
        endpoints={"a": ResourceState(found_endpoints)},
    )
    assert missing_texts(states, "b", "c") == []
    del states.clusters["a"]
    assert missing_texts(states, "b", "c") == ['cluster "a"']


def test_missing_is_empty_when_listener_does_not_exist() -> None:
    plan = resolve(TARGET, ResourceStates(listeners={"orders": GONE}), ["a"])
    assert isinstance(plan.outcome, ConfigError)
    assert plan.missing == {}
    assert str(Missing('cluster "a"')) == 'cluster "a"'
