"""A55 and A60: stateful session affinity through filter, config selector, policies and channel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from proxyless.base import Status, StatusCode
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from proxyless.xds.config import XdsConfig
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.filters.attributes import CLUSTER, OVERRIDE_HOST
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import HealthStatus, PathMatcher, PluginChoice, Route, RouteAction
from proxyless.xds.resources.filter import FilterOverride
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector
from tests.worlds.meshes import PATH
from tests.worlds.session_meshes import COOKIE, SessionWorld, cookie, session_listener, value_of
from tests.worlds.xds_resources import (
    cluster,
    endpoints,
    host,
    hosts,
    locality,
    prioritized,
    route,
    route_config,
)

if TYPE_CHECKING:
    from proxyless.channel import CallConfig

ALL: Final = frozenset(HealthStatus)


A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


@pytest.fixture
def world() -> SessionWorld:
    return SessionWorld()


def one_cluster(world: SessionWorld, config: SessionCookie = COOKIE) -> None:
    world.begin(route_config("blue"), cluster("blue"), endpoints("blue", A, B, C), config=config)


# ---------------------------------------------------------------------------------------------
# The cookie


@pytest.mark.spec("A55-03", "A55-09")
def test_cookie_is_set_once_at_the_start_of_a_session(world: SessionWorld) -> None:
    one_cluster(world)
    served, cookies = world.exchange()
    assert cookies == [f"session={value_of(f'{served};blue')}; HttpOnly"]
    for _ in range(6):
        assert world.exchange(cookie(f"{served};blue")) == (served, [])


@pytest.mark.spec("A55-09")
def test_cookie_has_path_and_age(world: SessionWorld) -> None:
    one_cluster(world, SessionCookie("session", "/pkg.Service", 90.0))
    served, cookies = world.exchange()
    value = value_of(f"{served};blue")
    assert cookies == [f"session={value}; HttpOnly; Path=/pkg.Service; Max-Age=90"]


@pytest.mark.spec("A55-03")
def test_session_gets_a_new_cookie_when_it_moved(world: SessionWorld) -> None:
    one_cluster(world)
    # The host of the cookie was removed.
    served, cookies = world.exchange(cookie("10.9.9.9:80;blue"))
    assert cookies == [f"session={value_of(f'{served};blue')}; HttpOnly"]
    # The host is there, but the cookie has another cluster, or none.
    for place in (f"{A};red", A):
        assert world.exchange(cookie(place)) == (
            A,
            [f"session={value_of(f'{A};blue')}; HttpOnly"],
        )


@pytest.mark.spec("A55-04")
def test_a_response_without_a_head_has_the_cookie_in_its_trailers(world: SessionWorld) -> None:
    one_cluster(world)
    _, observer = world.open(cookie(f"{A};red"))
    (stream,) = world.streams(A)
    stream.end(StreamEnd(Status(StatusCode.NOT_FOUND, "no"), (("k", "v"),)))
    world.settle()
    assert observer.heads == 0
    value = value_of(f"{A};blue")
    assert observer.ends[0].trailers == (("k", "v"), ("set-cookie", f"session={value}; HttpOnly"))
    assert observer.status == Status(StatusCode.NOT_FOUND, "no")


@pytest.mark.spec("A55-04")
def test_a_response_with_a_head_has_no_cookie_in_its_trailers(world: SessionWorld) -> None:
    one_cluster(world)
    _, observer = world.open(cookie(f"{A};red"))
    (stream,) = world.streams(A)
    stream.head()
    assert len(observer.cookies) == 1
    stream.respond()
    assert observer.ends[0].trailers == ()


@pytest.mark.spec("A55-02")
@pytest.mark.parametrize("cookie_path", ["/pkg.Service/Other", "/pkg", "/pkg.Service/Method/"])
def test_rpc_has_no_session_when_the_cookie_path_does_not_match(
    world: SessionWorld, cookie_path: str
) -> None:
    one_cluster(world, SessionCookie("session", cookie_path))
    exchanges = [world.exchange(cookie(f"{A};red")) for _ in range(6)]
    assert {served for served, _ in exchanges} == {A, B, C}
    assert all(cookies == [] for _, cookies in exchanges)


@pytest.mark.spec("A55-02")
@pytest.mark.parametrize("cookie_path", ["", "/", "/pkg.Service", "/pkg.Service/", PATH])
def test_rpc_has_a_session_when_the_cookie_path_matches(
    world: SessionWorld, cookie_path: str
) -> None:
    one_cluster(world, SessionCookie("session", cookie_path))
    assert {world.exchange(cookie(f"{A};blue"))[0] for _ in range(6)} == {A}


@pytest.mark.spec("A55-08")
def test_first_cookie_is_used_and_ignored_when_malformed(world: SessionWorld) -> None:
    one_cluster(world)
    first, second = value_of(f"{A};blue"), value_of(f"{B};blue")
    metadata = (("cookie", f"x=1; session={first}; session={second}"),)
    assert {world.exchange(metadata)[0] for _ in range(6)} == {A}
    bad = (("cookie", f"session=%%%; session={second}"),)
    exchanges = [world.exchange(bad) for _ in range(6)]
    assert {served for served, _ in exchanges} == {A, B, C}
    assert all(len(cookies) == 1 for _, cookies in exchanges)


@pytest.mark.spec("A55-10")
@pytest.mark.parametrize(
    ("statuses", "is_kept"),
    [(None, True), (frozenset(), False), (frozenset({HealthStatus.HEALTHY}), False), (ALL, True)],
)
def test_session_is_kept_only_for_hosts_with_an_override_host_status(
    world: SessionWorld, statuses: frozenset[HealthStatus] | None, is_kept: bool
) -> None:
    settings = {} if statuses is None else {"override_host_status": statuses}
    blue = cluster("blue", None, **cast("Any", settings))
    # The endpoints have health status UNKNOWN.
    world.begin(route_config("blue"), blue, endpoints("blue", A, B, C))
    served = {world.exchange(cookie(f"{A};blue"))[0] for _ in range(6)}
    assert served == ({A} if is_kept else {A, B, C})


@pytest.mark.spec("A75-47", "A75-41")
def test_a_session_follows_its_endpoint_through_the_whole_tree(world: SessionWorld) -> None:
    first = prioritized("blue", [locality("x", A), locality("y", B)])
    world.begin(route_config("blue"), cluster("blue"), first)
    assert world.exchange(cookie(f"{B};blue"))[0] == B
    world.publish(prioritized("blue", [locality("x", A)], [locality("y", B)]))
    assert {world.exchange(cookie(f"{B};blue"))[0] for _ in range(4)} == {B}
    assert {world.exchange()[0] for _ in range(4)} == {A}
    assert world.backend(B).accepts == 1, "the connection was not kept"


@pytest.mark.spec("A75-49", "A75-64")
def test_rpc_waits_for_a_connection_when_its_host_is_in_an_unused_priority(
    world: SessionWorld,
) -> None:
    two = prioritized("blue", [locality("x", A)], [locality("y", B, C)])
    world.begin(route_config("blue"), cluster("blue"), two)
    assert world.exchange()[0] == A
    assert world.backend(B).accepts == 0
    assert world.exchange(cookie(f"{B};blue")) == (B, [])
    assert (world.backend(B).accepts, world.backend(C).accepts) == (1, 0)


# ---------------------------------------------------------------------------------------------
# Clusters


def two_clusters(world: SessionWorld) -> None:
    world.begin(
        route_config({"blue": 99, "red": 1}),
        cluster("blue"),
        cluster("red"),
        endpoints("blue", A, B),
        endpoints("red", C),
    )


@pytest.mark.spec("A60-01")
def test_a_cookie_chooses_among_the_clusters_of_its_route(world: SessionWorld) -> None:
    two_clusters(world)
    for _ in range(10):
        assert world.exchange(cookie(f"{C};red")) == (C, [])


@pytest.mark.spec("A60-03")
def test_a_cluster_that_the_route_does_not_have_is_not_chosen(world: SessionWorld) -> None:
    table = hosts(host(route("blue", "/pkg"), route("red", "/")))
    world.begin(table, cluster("blue"), cluster("red"), endpoints("blue", A), endpoints("red", C))
    served, cookies = world.exchange(cookie(f"{C};red"))
    assert served == A
    assert cookies == [f"session={value_of(f'{A};blue')}; HttpOnly"]


@pytest.mark.spec("A60-02")
def test_rpc_holds_a_reference_to_the_cluster_of_its_cookie_only(world: SessionWorld) -> None:
    two_clusters(world)
    world.backend(C).down()
    world.settle()
    before = world.in_use("blue"), world.in_use("red")
    call, _ = world.open(cookie(f"{C};red"), wait_for_ready=True)
    assert (world.in_use("blue"), world.in_use("red")) == (before[0], before[1] + 1)
    # The route no longer uses red, but it is kept until the RPC commits.
    world.publish(route_config("blue"))
    assert world.children == {"blue", "red"}
    call.cancel()
    world.settle()
    assert world.children == {"blue"}


class NoSubscriptions:
    """Replacement for the dependency manager."""

    def subscribe(self, name: str) -> NoSubscriptions:
        return self

    def release(self) -> None:
        return


@pytest.mark.spec("A60-04")
def test_route_with_a_cluster_specifier_plugin_ignores_the_cluster_of_the_cookie(
    world: SessionWorld,
) -> None:
    action = RouteAction(choice=PluginChoice("lookup"))
    plugin_host = host(Route(path=PathMatcher("prefix", "/"), action=action))
    config = XdsConfig(session_listener(), hosts(plugin_host), plugin_host, {})
    tools = SelectorTools(
        ClusterRefs(lambda: None),
        NoSubscriptions(),
        FilterRegistry(FILTER_FACTORIES),
        seeded_random(1),
        1,
    )
    selector = XdsConfigSelector(config, RouteTable(plugin_host, tools.random), tools)
    selected = cast("CallConfig", selector.select(PATH, cookie(f"{A};blue")))
    assert selected.attributes.get(CLUSTER) == "cluster_specifier_plugin:lookup"
    override = selected.attributes.get(OVERRIDE_HOST)
    assert override is not None
    assert override.cookie_addresses == (A,)


@pytest.mark.spec("A55-07")
def test_override_of_the_route_disables_sessions(world: SessionWorld) -> None:
    off = {"affinity": FilterOverride(StatefulSessionConfig())}
    disabled = replace(route("blue"), filter_overrides=off)
    world.begin(hosts(host(disabled)), cluster("blue"), endpoints("blue", A, B))
    exchanges = [world.exchange(cookie(f"{A};blue")) for _ in range(4)]
    assert {served for served, _ in exchanges} == {A, B}
    assert all(cookies == [] for _, cookies in exchanges)
