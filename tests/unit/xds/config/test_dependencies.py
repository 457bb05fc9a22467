"""The decision: it is pure, it asks for no more than it needs, and keeps what did not change."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.xds.config import ClusterError, XdsConfig
from proxyless.xds.config.dependencies import (
    Answer,
    Known,
    Missing,
    Trouble,
    Wanted,
    resolve,
    routed_clusters,
)
from proxyless.xds.resources import NonForwardingAction, PathMatcher, PluginChoice, Route
from tests.spec.xds_world import (
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

WANTED = Wanted("orders", "orders", "node-1")
MISSING: Answer[Any] = Answer()
GONE: Answer[Any] = Answer(error=NOT_FOUND)
NAMES = st.sampled_from("abcd")
CLUSTERS = st.one_of(
    st.just(MISSING),
    st.just(GONE),
    NAMES.map(lambda name: Answer(cluster(name))),
    NAMES.map(lambda name: Answer(dns(name, "host.example"))),
    st.lists(NAMES, min_size=1, max_size=3).map(lambda below: Answer(aggregate("x", *below))),
)
ENDPOINTS = st.one_of(
    st.just(MISSING),
    st.just(GONE),
    NAMES.map(lambda name: Answer(endpoints(name, "10.0.0.1:80"))),
)
KNOWN = st.builds(
    Known,
    listener=st.just(Answer(listener())),
    route_configs=st.lists(NAMES, max_size=3).map(
        lambda names: {"routes": Answer(route_config(*names))}
    ),
    clusters=st.dictionaries(NAMES, CLUSTERS),
    endpoints=st.dictionaries(NAMES, ENDPOINTS),
    dns=st.one_of(st.just({}), ENDPOINTS.map(lambda answer: {("host.example", 80): answer})),
)


@settings(max_examples=200)
@given(KNOWN, st.lists(NAMES, max_size=2, unique=True))
def test_decision_is_pure_and_complete_only_if_nothing_routed_is_missing(
    known: Known, subscribed: list[str]
) -> None:
    before = deepcopy(known)
    plan = resolve(WANTED, known, subscribed)
    assert known == before
    assert resolve(WANTED, known, subscribed) == plan or isinstance(plan.outcome, XdsConfig)
    assert set(subscribed) <= set(plan.clusters)
    host_found = known.route_configs["routes"].resource.virtual_hosts[0]  # type: ignore[union-attr]
    routed = set(routed_clusters(host_found))
    if isinstance(plan.outcome, XdsConfig):
        assert routed <= set(plan.outcome.clusters) <= routed | set(subscribed)
    else:
        answers = [known.clusters.get(name, MISSING) for name in plan.clusters]
        answers += [known.endpoints.get(name, MISSING) for name in plan.endpoints]
        answers += [known.dns.get(key, MISSING) for key in plan.dns]
        assert plan.outcome is None
        assert any(answer.is_missing for answer in answers)


@settings(max_examples=200)
@given(KNOWN)
def test_what_did_not_change_is_the_same_object(known: Known) -> None:
    first = resolve(WANTED, known).outcome
    if isinstance(first, XdsConfig):
        again = resolve(WANTED, known, previous=first).outcome
        assert isinstance(again, XdsConfig)
        for name, result in again.clusters.items():
            assert result is first.clusters[name] or isinstance(result, ClusterError)


def test_nothing_known_needs_nothing_but_the_listener() -> None:
    plan = resolve(WANTED, Known())
    assert plan.outcome is None
    assert [*plan.route_configs, *plan.clusters, *plan.endpoints, *plan.dns] == []


def test_subscribed_clusters_are_needed_even_while_there_is_no_listener() -> None:
    known = Known(listener=Answer(error=NOT_FOUND), clusters={"a": Answer(cluster("a"))})
    plan = resolve(WANTED, known, ["a"])
    assert isinstance(plan.outcome, Trouble)
    assert plan.outcome.does_not_exist
    assert (list(plan.clusters), list(plan.endpoints)) == (["a"], ["a"])


def test_only_actions_that_forward_name_clusters() -> None:
    away = Route(path=PathMatcher("prefix", ""), action=NonForwardingAction("redirect"))
    plugged = route("x")
    object.__setattr__(plugged.action, "choice", PluginChoice("p"))
    found = host(away, plugged, route({"b": 1, "a": 2}), route("a"), route("c"))
    assert list(routed_clusters(found)) == ["b", "a", "c"]


def parts() -> tuple[Cluster, EndpointResource, RouteConfiguration]:
    return cluster("a"), endpoints("a", "10.0.0.1:80"), route_config("a")


def test_note_says_what_is_wrong_or_who_asks() -> None:
    found, places, routes = parts()
    known = Known(
        listener=Answer(listener(), ambient_error=NOT_FOUND),
        route_configs={"routes": Answer(routes)},
        clusters={"a": Answer(found)},
        endpoints={"a": Answer(places)},
    )
    outcome = resolve(WANTED, known).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    assert entry.resolution_note == 'listener "orders": does not exist (node id "node-1")'
    known.listener = Answer(listener())
    outcome = resolve(WANTED, known).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    assert entry.resolution_note == 'node id "node-1"'


def test_note_says_that_no_endpoint_may_be_used() -> None:
    found, _, routes = parts()
    known = Known(
        listener=Answer(listener()),
        route_configs={"routes": Answer(routes)},
        clusters={"a": Answer(found)},
        endpoints={"a": Answer(endpoints("a"))},
    )
    outcome = resolve(WANTED, known).outcome
    assert isinstance(outcome, XdsConfig)
    [entry] = outcome.clusters["a"]  # type: ignore[misc]
    note = 'endpoints "a": has no endpoint that may be used (node id "node-1")'
    assert entry.resolution_note == note


def loop_of(**below: tuple[str, ...]) -> str:
    """What is said about aggregates that lead to these."""
    known = Known(
        listener=Answer(listener()),
        route_configs={"routes": Answer(route_config("a"))},
        clusters={name: Answer(aggregate(name, *names)) for name, names in below.items()},
    )
    outcome = resolve(WANTED, known).outcome
    assert isinstance(outcome, XdsConfig)
    error = outcome.clusters["a"]
    assert isinstance(error, ClusterError)
    return error.status.details


def test_a_loop_of_aggregates_is_named() -> None:
    assert loop_of(a=("b",), b=("c",), c=("b",)) == (
        'cluster "a": aggregate has no leaf cluster: "b" > "c" > "b" is a loop (node id "node-1")'
    )
    assert '"a" > "a" is a loop' in loop_of(a=("a",))


def missing_texts(known: Known, *subscribed: str) -> list[str]:
    plan = resolve(WANTED, known, subscribed)
    assert (plan.outcome is None) is bool(plan.missing)
    return list(map(str, plan.missing))


def test_missing_is_what_config_is_withheld_for_at_each_step() -> None:
    known = Known()
    assert missing_texts(known) == ['listener "orders"']
    known.listener = Answer(listener())
    assert missing_texts(known) == ['route configuration "routes"']
    known.route_configs["routes"] = Answer(route_config("a", "all"))
    assert missing_texts(known) == ['cluster "a"', 'cluster "all"']
    known.clusters["a"] = Answer(eds("a", "service"))
    known.clusters["all"] = Answer(aggregate("all", "a", "b", "c"))
    known.clusters["b"] = Answer(dns("b", "host.example"))
    assert missing_texts(known) == [
        'endpoints "service" of cluster "a"',
        'dns name "host.example:80" of cluster "b"',
        'cluster "c" of cluster "all"',
    ]
    known.endpoints["service"] = Answer(endpoints("service", "10.0.0.1:80"))
    known.dns["host.example", 80] = known.clusters["c"] = GONE
    assert missing_texts(known) == []


def test_missing_is_empty_when_only_subscribed_cluster_lacks_parts() -> None:
    found, places, routes = parts()
    known = Known(
        listener=Answer(listener()),
        route_configs={"routes": Answer(routes)},
        clusters={"a": Answer(found), "c": Answer(cluster("c"))},
        endpoints={"a": Answer(places)},
    )
    assert missing_texts(known, "b", "c") == []
    del known.clusters["a"]
    assert missing_texts(known, "b", "c") == ['cluster "a"']


def test_missing_is_empty_when_listener_does_not_exist() -> None:
    plan = resolve(WANTED, Known(listener=GONE), ["a"])
    assert isinstance(plan.outcome, Trouble)
    assert plan.missing == {}
    assert str(Missing('cluster "a"')) == 'cluster "a"'
