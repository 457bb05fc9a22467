"""Route table: finds the same route as a linear search; its cache is limited."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.base import Status, StatusCode
from proxyless.channel.service_config import MethodConfig
from proxyless.runtime import seeded_random
from proxyless.xds.config import XdsConfig
from proxyless.xds.resources import (
    ClusterChoice,
    HeaderMatcher,
    HttpConnectionManager,
    Listener,
    NonForwardingAction,
    PathMatcher,
    RetryOnPolicy,
    Route,
    RouteAction,
    RouteConfiguration,
    StringMatcher,
    VirtualHost,
)
from proxyless.xds.resources.matcher import Fraction, PresentMatcher, RangeMatcher
from proxyless.xds.routing import route_table as routing
from proxyless.xds.routing.route_table import (
    RouteDefaults,
    RouteTable,
    no_route,
    not_forwarding,
    route_method_config,
)

if TYPE_CHECKING:
    from proxyless.base import Metadata

ACTION = RouteAction(choice=ClusterChoice("c"))

# ---------------------------------------------------------------------------------------------
# Reference implementation: a linear search


def matches_text(kind: str, pattern: str, text: str, *, ignore_case: bool) -> bool:
    if kind == "regex":
        return re.fullmatch(pattern, text) is not None
    if ignore_case:
        pattern, text = pattern.lower(), text.lower()
    return {
        "exact": text == pattern,
        "path": text == pattern,
        "prefix": text.startswith(pattern),
        "suffix": text.endswith(pattern),
        "contains": pattern in text,
    }[kind]


def matches_header(matcher: HeaderMatcher, metadata: Metadata) -> bool:
    values = [str(value) for key, value in metadata if key == matcher.name]
    match = matcher.match
    if isinstance(match, PresentMatcher):
        return (bool(values) == match.present) != matcher.invert
    if not values:
        return False
    text = ",".join(values)
    if isinstance(match, RangeMatcher):
        is_number = re.fullmatch(r"[-+]?[0-9]+", text) is not None
        is_match = is_number and match.start <= int(text) < match.end
    else:
        is_match = matches_text(match.kind, match.value, text, ignore_case=match.ignore_case)
    return is_match != matcher.invert


def scan(routes: list[Route], path: str, metadata: Metadata) -> int | None:
    for index, route in enumerate(routes):
        matcher = route.path
        if (
            matches_text(matcher.kind, matcher.value, path, ignore_case=not matcher.case_sensitive)
            and all(matches_header(each, metadata) for each in route.headers)
            and (route.fraction is None or route.fraction.per_million > 0)
        ):
            return index
    return None


# Few values, so that most routes match most RPCs and the order decides.
TEXTS = st.sampled_from(["a", "A", "b", "ab"])
PATHS = st.sampled_from(["/a/a", "/a/A", "/b/a"])
PATH_MATCHERS = st.one_of(
    st.builds(PathMatcher, st.just("path"), PATHS, st.booleans()),
    st.builds(
        PathMatcher, st.just("prefix"), st.sampled_from(["", "/", "/a", "/a/A"]), st.booleans()
    ),
    st.builds(PathMatcher, st.just("regex"), st.sampled_from(["/a.*", ".*/a", "/[aA]+/.*"])),
)
NAMES = st.sampled_from(["x", "y"])
# Matchers that the table indexes by value, and similar ones.
EXACT_MATCHERS = st.builds(
    HeaderMatcher,
    NAMES,
    st.builds(StringMatcher, st.just("exact"), TEXTS, st.sampled_from([False, False, True])),
    st.sampled_from([False, False, True]),
)
OTHER_MATCHERS = st.builds(
    HeaderMatcher,
    NAMES,
    st.one_of(
        st.builds(
            StringMatcher, st.sampled_from(["prefix", "suffix", "contains"]), TEXTS, st.booleans()
        ),
        st.builds(StringMatcher, st.just("regex"), st.sampled_from(["a.*", ".*b", "[aAb]+"])),
        st.builds(RangeMatcher, st.integers(-2, 1), st.integers(1, 4)),
        st.builds(PresentMatcher, st.booleans()),
    ),
    st.booleans(),
)
HEADERS = st.one_of(
    EXACT_MATCHERS.map(lambda one: (one,)),
    EXACT_MATCHERS.map(lambda one: (one,)),
    st.lists(st.one_of(EXACT_MATCHERS, OTHER_MATCHERS), max_size=2).map(tuple),
)
FRACTIONS = st.sampled_from([None, None, None, None, Fraction(0), Fraction(1_000_000)])
ROUTES = st.builds(
    Route,
    path=PATH_MATCHERS,
    headers=HEADERS,
    fraction=FRACTIONS,
    action=st.just(ACTION),
)
METADATA = st.one_of(
    st.tuples(st.tuples(st.just("x"), TEXTS), st.tuples(st.just("y"), TEXTS)),
    st.lists(st.tuples(NAMES, st.one_of(TEXTS, st.integers(-3, 4).map(str))), max_size=3).map(
        tuple
    ),
)
RPCS = st.lists(st.tuples(PATHS, METADATA), min_size=4, max_size=8)


def table_of(*routes: Route) -> RouteTable:
    return RouteTable(VirtualHost(domains=("*",), routes=routes), seeded_random(1))


def index_of(table: RouteTable, path: str, metadata: Metadata = ()) -> int | None:
    found = table.find(path, metadata)
    return None if found is None else found.index


@settings(max_examples=300)
@given(st.lists(ROUTES, min_size=2, max_size=8), RPCS)
def test_table_finds_the_route_of_a_linear_search(
    routes: list[Route], rpcs: list[tuple[str, Metadata]]
) -> None:
    table = table_of(*routes)
    # Twice: the second search uses the cache.
    for path, metadata in rpcs * 2:
        assert index_of(table, path, metadata) == scan(routes, path, metadata)


@given(st.lists(ROUTES, max_size=6), RPCS)
def test_table_finds_the_same_route_when_the_cache_is_full(
    routes: list[Route], rpcs: list[tuple[str, Metadata]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "CACHED_PATHS_MAX", 2)
        patch.setattr(routing, "CACHED_ROUTES_MAX", 3)
        table = table_of(*routes)
        for path, metadata in rpcs * 2:
            assert index_of(table, path, metadata) == scan(routes, path, metadata)


# ---------------------------------------------------------------------------------------------
# Limits


def route_for_header(value: str) -> Route:
    header = HeaderMatcher("x", StringMatcher("exact", value))
    return Route(path=PathMatcher("prefix", "/"), headers=(header,), action=ACTION)


def test_number_of_cached_paths_is_limited() -> None:
    table = table_of(Route(path=PathMatcher("prefix", "/"), action=ACTION))
    for number in range(routing.CACHED_PATHS_MAX + 10):
        assert index_of(table, f"/s/{number}") == 0
    assert len(table._by_path) <= routing.CACHED_PATHS_MAX


def test_paths_share_candidates_when_they_match_the_same_routes() -> None:
    table = table_of(*(route_for_header(str(number)) for number in range(50)))
    for number in range(100):
        assert index_of(table, f"/s/{number}", (("x", "49"),)) == 49
    assert len({id(each) for each in table._by_path.values()}) == 1


def test_number_of_cached_routes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "CACHED_ROUTES_MAX", 100)
    prefixes = [f"/s{number}/" for number in range(50)]
    routes = [
        Route(
            path=PathMatcher("prefix", prefix), headers=route_for_header("1").headers, action=ACTION
        )
        for prefix in prefixes
    ]
    table = table_of(*routes, *(route_for_header(str(number)) for number in range(40)))
    for prefix in prefixes:
        assert index_of(table, f"{prefix}m", (("x", "39"),)) == 89
        assert len(table._candidates) <= 3


def test_fraction_is_a_random_choice_for_each_rpc() -> None:
    half = Route(path=PathMatcher("prefix", "/"), fraction=Fraction(500_000), action=ACTION)
    table = table_of(half, Route(path=PathMatcher("prefix", "/"), action=ACTION))
    found = [index_of(table, "/s/m") for _ in range(200)]
    assert 60 < sum(index == 0 for index in found) < 140


# ---------------------------------------------------------------------------------------------
# Settings and errors


def test_route_without_retry_codes_disables_retries_of_the_virtual_host() -> None:
    of_host = RetryOnPolicy(frozenset({StatusCode.INTERNAL}), 2, 0.1, 0.2)
    of_route = RetryOnPolicy(frozenset(), 2, 0.1, 0.2)
    action = RouteAction(choice=ClusterChoice("c"), timeout_s=0.0, retry=of_route)
    assert route_method_config(action, RouteDefaults(retry=of_host)) == MethodConfig()


def test_error_names_resource_virtual_host_and_route() -> None:
    named = config_of(VirtualHost(name="web", domains=("*",), routes=()), "routes")
    assert no_route(named, "/s/m").details == (
        'route configuration "routes": no route in virtual host "web" matches "/s/m" (node id "n")'
    )
    bare = config_of(VirtualHost(domains=("a", "b", "c", "d"), routes=()))
    assert no_route(bare, "/s/m").details == (
        'listener "l": no route in virtual host "a,b,c" matches "/s/m" (node id "n")'
    )
    action, path = NonForwardingAction("redirect"), PathMatcher("prefix", "")
    away = Route(path=path, action=action, name="away")
    assert not_forwarding(named, away, "redirect") == Status(
        StatusCode.UNAVAILABLE,
        'route configuration "routes": route "away" has the action redirect, wanted route'
        ' (node id "n")',
    )
    nameless = not_forwarding(bare, Route(path=path, action=action), "redirect")
    assert 'listener "l": the matching route has the action' in nameless.details


def config_of(host: VirtualHost, route_config_name: str = "") -> XdsConfig:
    """A config with RDS routes, or without a name with routes inline in the listener."""
    routes = RouteConfiguration(name=route_config_name, virtual_hosts=(host,))
    listener = Listener("l", HttpConnectionManager(route_config_name or routes))
    return XdsConfig(listener, routes, host, {}, "n")
