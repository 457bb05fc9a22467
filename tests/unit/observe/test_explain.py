"""Unit tests of proxyless.observe.explain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from proxyless.base import Locality, Metadata, StatusCode, parse_address
from proxyless.lb import LbNode
from proxyless.observe import Explanation, Rpc, explain, to_json, to_text
from proxyless.observe.explain import HOSTS_SHOWN_MAX, ROUTES_SHOWN_MAX
from proxyless.runtime import seeded_random
from proxyless.xds.config import ClusterConfig, ClusterResult, XdsConfig
from proxyless.xds.filters.fault import FaultAbort, FaultConfig, Percentage
from proxyless.xds.filters.session_filter import SessionEndpoint, format_cookie_value
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import (
    DropCategory,
    EndpointInfo,
    HeaderMatcher,
    HealthStatus,
    HttpFilter,
    LocalityEndpoints,
    NonForwardingAction,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    VirtualHost,
)
from proxyless.xds.resources.filter import FilterOverride
from proxyless.xds.resources.matcher import (
    Fraction,
    PresentMatcher,
    RangeMatcher,
    StringMatcher,
)
from proxyless.xds.resources.route import RetryOnPolicy
from proxyless.xds.routing.route_table import RouteTable
from tests.worlds.xds_resources import (
    action,
    cluster,
    endpoints,
    host,
    hosts,
    listener,
    prioritized,
    route,
)

PATH = "/pkg.Service/Method"


def known(name: str) -> tuple[ClusterConfig, ...]:
    return (ClusterConfig(name, cluster(name), endpoints(name, "127.0.0.1:1")),)


def config(*routes: Route, host_settings: Any = None, **manager: Any) -> XdsConfig:  # noqa: ANN401
    chosen = host(*routes, name="vh", **(host_settings or {}))
    return config_of(chosen, **manager)


def config_of(chosen: VirtualHost, *others: VirtualHost, **manager: Any) -> XdsConfig:  # noqa: ANN401
    names: dict[str, ClusterResult] = {name: known(name) for name in "abc"}
    return XdsConfig(listener(**manager), hosts(*others, chosen), chosen, names)


def lines(explanation: Explanation, kind: str) -> list[str]:
    return [each.text for each in explanation.find(kind)]


def header(name: str, match: Any, *, invert: bool = False) -> Route:  # noqa: ANN401
    matcher = HeaderMatcher(name, match, invert)
    return Route(path=PathMatcher("prefix", "/"), headers=(matcher,), action=action("a"))


# Virtual hosts


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ("api.example", 'exact match of "api.example"'),
        ("*.example", 'suffix match of "*.example"'),
        ("api.*", 'prefix match of "api.*"'),
        ("*", 'universal match of "*"'),
    ],
)
def test_virtual_host_is_shown_with_its_match(domain: str, why: str) -> None:
    chosen = host(route("a"), domains=("other", domain), name="vh")
    explanation = explain(config_of(chosen), Rpc(PATH, authority="API.example"))
    (text,) = lines(explanation, "virtual_host")
    assert text == f'virtual host "vh" of route configuration "routes": {why}'


def test_other_virtual_hosts_are_shown_with_their_match() -> None:
    chosen = host(route("a"), domains=("api",), name="vh")
    others = host(domains=("*",), name="all"), host(domains=("b", "c"))
    explanation = explain(config_of(chosen, *others), Rpc(PATH, authority="api"))
    assert lines(explanation, "other_host") == [
        'not "all": universal match of "*" is not better',
        "not of b, c: no domain matches",
    ]


# Routes


@pytest.mark.parametrize(
    ("tried", "why"),
    [
        (route("a", "/x/"), 'path is not below "/x/"'),
        (
            Route(path=PathMatcher("path", "/x/y"), action=action("a")),
            'path is not equal to "/x/y"',
        ),
        (
            Route(path=PathMatcher("prefix", "/X/", case_sensitive=False), action=action("a")),
            'path is not below "/X/", in any case',
        ),
        (
            Route(path=PathMatcher("regex", "/x.*"), action=action("a")),
            'path is not described by "/x.*"',
        ),
        (
            header("who", StringMatcher("exact", "you")),
            'header "who" is "me", wanted exact "you"',
        ),
        (
            header("who", StringMatcher("prefix", "m"), invert=True),
            'header "who" is "me", wanted not prefix "m"',
        ),
        (
            header("n", StringMatcher("exact", "1")),
            'header "n" is absent, wanted exact "1"',
        ),
        (
            header("who", RangeMatcher(1, 5)),
            'header "who" is "me", wanted from 1 to less than 5',
        ),
        (header("n", PresentMatcher(True)), 'header "n" is absent, wanted it to be there'),
        (header("who", PresentMatcher(False)), 'header "who" is "me", wanted it to be absent'),
    ],
)
def test_route_is_shown_with_its_mismatch(tried: Route, why: str) -> None:
    explanation = explain(config(tried, route("b")), Rpc(PATH, (("who", "me"),)))
    assert lines(explanation, "route_test") == [
        f"route 0: no match: {why}",
        "route 1: takes the RPC",
    ]
    assert explanation.text == f'{PATH} goes to cluster "b"'
    assert not explanation.problem


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-auth-token", "x-api-key"])
def test_secret_header_values_are_not_shown(name: str) -> None:
    tried = header(name, StringMatcher("prefix", "Basic"))
    explanation = explain(config(tried, route("b")), Rpc(PATH, ((name, "Bearer 5e5a3e"),)))
    assert lines(explanation, "route_test")[0] == (
        f'route 0: no match: header "{name}" is something else (a secret, not shown),'
        ' wanted prefix "Basic"'
    )
    assert "5e5a3e" not in f"{explanation}{to_json(explanation)}"


def test_near_misses_are_shown_when_there_are_many_routes() -> None:
    others = [route("a", f"/x{number}/") for number in range(ROUTES_SHOWN_MAX * 2)]
    near = header("who", StringMatcher("exact", "you"))
    explanation = explain(config(*others, near, route("b"), *others), Rpc(PATH))
    shown = lines(explanation, "route_test")
    assert len(shown) == ROUTES_SHOWN_MAX
    assert shown[0] == 'route 0: no match: path is not below "/x0/"'
    assert [text.split(":")[1] for text in shown[-2:]] == [" no match", " takes the RPC"]
    assert lines(explanation, "more") == [f"and {len(others) * 2 + 2 - ROUTES_SHOWN_MAX} more"]


def test_many_virtual_hosts_are_counted() -> None:
    others = [host(route("a"), name=f"o{n}") for n in range(HOSTS_SHOWN_MAX + 3)]
    explanation = explain(config_of(host(route("a"), name="vh"), *others), Rpc(PATH))
    assert len(lines(explanation, "other_host")) == HOSTS_SHOWN_MAX
    assert lines(explanation, "more") == ["and 3 more"]


def test_first_header_mismatch_is_named() -> None:
    two = (
        HeaderMatcher("a", StringMatcher("exact", "1")),
        HeaderMatcher("b", StringMatcher("exact", "2")),
    )
    tried = Route(path=PathMatcher("prefix", "/"), headers=two, action=action("a"))
    explanation = explain(config(tried), Rpc(PATH, (("a", "1"),)))
    assert lines(explanation, "route_test") == [
        'route 0: no match: header "b" is absent, wanted exact "2"'
    ]


def test_missing_route_is_the_problem() -> None:
    explanation = explain(config(route("a", "/x/")), Rpc(PATH))
    assert explanation.problem == (
        f'route configuration "routes": no route in virtual host "vh" matches "{PATH}"'
    )
    assert explanation.text == f"{PATH} fails: {explanation.problem}"


def test_random_route_shows_both_outcomes() -> None:
    some = Route(
        path=PathMatcher("prefix", "/"), fraction=Fraction(250_000), action=action("a"), name="some"
    )
    explanation = explain(config(some, route("b"), route("c")), Rpc(PATH))
    assert lines(explanation, "route_test") == [
        'route 0 "some": takes 250000 of a million RPCs, by chance',
        "route 1: takes the RPC",
        "route 2: not reached",
    ]
    assert explanation.text == f'{PATH} goes to cluster "a" or cluster "b"'


def test_explanation_agrees_with_the_route_table() -> None:
    matchers: list[StringMatcher | RangeMatcher | PresentMatcher] = [
        StringMatcher("exact", "1"),
        StringMatcher("suffix", "2"),
        RangeMatcher(0, 2),
        PresentMatcher(True),
    ]
    routes = [
        Route(
            path=PathMatcher("prefix", prefix),
            headers=(HeaderMatcher(name, matcher, invert),),
            action=action("a"),
        )
        for prefix, name, matcher, invert in product(
            ("/pkg.Service/", "/x/"), ("k", "l"), matchers, (False, True)
        )
    ]
    made = config(*routes)
    table = RouteTable(made.virtual_host, seeded_random(1))
    values: list[Metadata] = [
        tuple((key, value) for key, value in (("k", first), ("l", second)) if value)
        for first, second in product(("", "1", "2", "x"), repeat=2)
    ]
    for path, metadata in product((PATH, "/x/y", "/z/y"), values):
        found = table.find(path, metadata)
        explained = [
            each.facts["index"]
            for each in explain(made, Rpc(path, metadata)).find("route_test")
            if each.facts["verdict"] == "match"
        ]
        assert explained == ([] if found is None else [found.index])


# Actions of routes


def test_route_that_does_not_forward_is_the_problem() -> None:
    redirect = Route(
        path=PathMatcher("prefix", "/"), action=NonForwardingAction("redirect"), name="away"
    )
    explanation = explain(config(redirect), Rpc(PATH))
    assert explanation.problem == (
        'route configuration "routes": route "away" has the action redirect, wanted route'
    )


@pytest.mark.parametrize(
    ("settings", "manager", "text"),
    [
        ({}, {}, "at most 15 s, because neither the route nor the listener has a timeout"),
        ({"timeout_s": 3.0}, {}, "at most 3 s, from the route's timeout"),
        (
            {"timeout_s": 3.0, "max_grpc_timeout_s": 0.0},
            {},
            "no time limit, from the route's max_grpc_timeout",
        ),
        (
            {"timeout_s": 3.0, "has_max_stream_duration": True, "max_stream_duration_s": 2.0},
            {},
            "at most 2 s, from the route's max_stream_duration.max_stream_duration",
        ),
        (
            {"timeout_s": 3.0},
            {"max_stream_duration_s": 7.0},
            "at most 7 s, from the listener's max_stream_duration",
        ),
        (
            {"has_max_stream_duration": True},
            {},
            "no time limit, because the route's max_stream_duration is empty",
        ),
    ],
)
def test_timeout_is_shown_with_its_source(
    settings: dict[str, Any], manager: dict[str, Any], text: str
) -> None:
    explanation = explain(config(route("a", **settings), **manager), Rpc(PATH))
    assert lines(explanation, "timeout") == [f"timeout: {text}"]


def test_retry_policy_is_shown_with_its_source() -> None:
    own = RetryOnPolicy(frozenset({StatusCode.UNAVAILABLE}), 2, 0.1, 1.0)
    other = RetryOnPolicy(frozenset({StatusCode.INTERNAL}), 1, 0.1, 1.0)
    made = config(route("a", retry=own), host_settings={"retry": other})
    assert lines(explain(made, Rpc(PATH)), "retry") == [
        "retry: up to 3 attempts on UNAVAILABLE, from the route"
    ]
    made = config(route("a"), host_settings={"retry": other})
    assert lines(explain(made, Rpc(PATH)), "retry") == [
        "retry: up to 2 attempts on INTERNAL, from the virtual host"
    ]
    assert lines(explain(config(route("a")), Rpc(PATH)), "retry") == ["retry: none"]


def test_missing_weighted_cluster_is_the_problem() -> None:
    explanation = explain(config(route({"a": 1, "z": 3})), Rpc(PATH))
    assert explanation.text == (
        f'{PATH} goes to one of clusters "a" (25 %), "z" (75 %);'
        ' some RPCs fail: cluster "z": is not in the config'
    )
    assert lines(explanation, "cluster")[0] == 'cluster "a" (25 %): endpoints from EDS resource "a"'


def test_verdict_has_drops_of_the_cluster() -> None:
    drops = (DropCategory("off", 0), DropCategory("busy", 900_000))
    found = ClusterConfig("a", cluster("a"), endpoints("a", "127.0.0.1:1", drops=drops))
    chosen = host(route("a"), name="vh")
    explanation = explain(XdsConfig(listener(), hosts(chosen), chosen, {"a": (found,)}), Rpc(PATH))
    assert explanation.text == (
        f'{PATH} goes to cluster "a"; some RPCs fail: cluster "a": drops 90 % of RPCs, for "busy"'
    )
    assert not explanation.problem, "RPCs get through"


READY = LbNode("", "p", "READY")
CONNECTING = LbNode("", "p", "CONNECTING")
BROKEN = LbNode("", "p", "TRANSIENT_FAILURE", problem="a refusal")


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (READY, READY, "goes to {}"),
        (CONNECTING, CONNECTING, 'waits: cluster "a": CONNECTING'),
        (READY, CONNECTING, 'goes to {}; some RPCs wait: cluster "b": CONNECTING'),
        (BROKEN, READY, 'goes to {}; some RPCs fail: cluster "a": a refusal'),
        (
            BROKEN,
            CONNECTING,
            'waits: cluster "b": CONNECTING; some RPCs fail: cluster "a": a refusal',
        ),
        (BROKEN, BROKEN, 'fails: cluster "a": a refusal'),
    ],
)
def test_verdict_combines_all_clusters_of_the_route(
    first: LbNode, second: LbNode, verdict: str
) -> None:
    policies = {"cluster:a": first, "cluster:b": second}
    explanation = explain(config(route({"a": 1, "b": 1})), Rpc(PATH), find_lb=policies.get)
    where = 'one of clusters "a" (50 %), "b" (50 %)'
    assert explanation.text == f"{PATH} {verdict.format(where)}"


ALWAYS, SOMETIMES = Percentage(100, 100), Percentage(25, 100)


def faults(percentage: Percentage) -> dict[str, Any]:
    settings = FaultConfig(abort=FaultAbort(StatusCode.ABORTED, percentage))
    return {"http_filters": (HttpFilter("chaos", "pkg.HTTPFault", settings),)}


def test_filter_that_aborts_every_rpc_is_the_problem() -> None:
    explanation = explain(config(route("a"), **faults(ALWAYS)), Rpc(PATH))
    assert explanation.problem == 'filter "chaos" aborts every RPC with ABORTED'
    assert explanation.text == f"{PATH} fails: {explanation.problem}"
    explanation = explain(config(route("z"), **faults(ALWAYS)), Rpc(PATH))
    assert explanation.problem == (
        'filter "chaos" aborts every RPC with ABORTED; without that: '
        'cluster "z": is not in the config'
    )


def test_verdict_has_aborts_of_a_filter() -> None:
    explanation = explain(config(route("a"), **faults(SOMETIMES)), Rpc(PATH))
    aborts = 'filter "chaos" aborts 25 % of RPCs with ABORTED'
    assert explanation.text == f'{PATH} goes to cluster "a"; some RPCs fail: {aborts}'
    assert not explanation.problem


def test_aborted_rpc_does_not_wait() -> None:
    made = config(route("a"), **faults(ALWAYS))
    explanation = explain(made, Rpc(PATH), find_lb=lambda _key: LbNode("a", "p", "CONNECTING"))
    assert explanation.text == f'{PATH} fails: filter "chaos" aborts every RPC with ABORTED'


def test_session_decides_the_cluster_and_hides_missing_endpoints() -> None:
    place = SessionEndpoint(("127.0.0.1:1",), "b")
    session = StatefulSessionConfig(SessionCookie("sid", "/"))
    chain = (HttpFilter("sessions", "pkg.StatefulSession", session),)
    made = config(route({"a": 1, "b": 1}), http_filters=chain)
    keeps = cluster("b", override_host_status=frozenset({HealthStatus.DRAINING}))
    info = EndpointInfo((parse_address("127.0.0.1:1"),), 1, HealthStatus.DRAINING)
    drained = prioritized("b", [LocalityEndpoints(Locality(), 1, (info,))])
    entry = ClusterConfig("b", keeps, drained)
    made = replace(made, clusters={**made.clusters, "b": (entry,)})
    explanation = explain(made, Rpc(PATH, (("cookie", f"sid={format_cookie_value(place)}"),)))
    assert explanation.text == f'{PATH} goes to cluster "b", where its session lives'
    assert not explanation.problem
    assert explain(made, Rpc(PATH)).problem.startswith('cluster "b": ')
    # A full circuit breaker also fails RPCs of sessions.
    shut = replace(entry, cluster=replace(keeps, max_concurrent_requests=0))
    made = replace(made, clusters={**made.clusters, "b": (shut,)})
    explanation = explain(made, Rpc(PATH, (("cookie", f"sid={format_cookie_value(place)}"),)))
    assert explanation.problem.startswith('cluster "b": circuit breaker lets no RPC through')


def test_plugin_chooses_the_cluster() -> None:
    plugin = Route(path=PathMatcher("prefix", "/"), action=RouteAction(choice=PluginChoice("rls")))
    explanation = explain(config(plugin), Rpc(PATH))
    assert explanation.text == f'{PATH} goes to plugin "rls"'


def test_filters_are_shown_with_their_override() -> None:
    chain = (
        HttpFilter("fault", "x.Fault", "listener's"),
        HttpFilter("off", "x.Off", "listener's", is_disabled=True),
        HttpFilter("plain", "x.Plain", "listener's"),
    )
    by_host = {"fault": FilterOverride("host's"), "off": FilterOverride()}
    by_route = {"fault": FilterOverride("route's")}
    made = Route(path=PathMatcher("prefix", "/"), action=action("a"), filter_overrides=by_route)
    explanation = explain(
        config(made, host_settings={"filter_overrides": by_host}, http_filters=chain), Rpc(PATH)
    )
    assert lines(explanation, "filter") == [
        'filter "fault" (Fault): route\'s, overridden by the route',
        'filter "off" (Off): listener\'s, overridden by the virtual host',
        'filter "plain" (Plain): listener\'s',
    ]
    assert 'filter "off" (Off): off' in to_text(
        explain(config(made, http_filters=chain), Rpc(PATH))
    )


# Authority


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_rewritten_authority_is_shown(is_rewritten: bool) -> None:
    explanation = explain(config(route("a", auto_host_rewrite=is_rewritten)), Rpc(PATH))
    text = "authority: the hostname of the endpoint if it has one, from the route"
    assert lines(explanation, "authority") == ([text] if is_rewritten else [])
