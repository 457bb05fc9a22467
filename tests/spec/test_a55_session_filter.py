"""A55, A60: a session stays where its cookie says, through filter, selector, tree and channel."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.channel import Call
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from proxyless.xds.config import XdsConfig
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.filters.attributes import CLUSTER, OVERRIDE_HOST
from proxyless.xds.filters.stateful_session import (
    STATEFUL_SESSION_TYPE,
    SessionCookie,
    StatefulSessionConfig,
)
from proxyless.xds.resources import (
    Cluster,
    EndpointResource,
    HealthStatus,
    Listener,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
)
from proxyless.xds.resources.filter import FilterOverride, HttpFilter
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector
from tests.spec.channel_world import Observer
from tests.spec.mesh_world import PATH, MeshWorld
from tests.spec.xds_world import (
    cluster,
    endpoints,
    host,
    hosts,
    listener,
    locality,
    prioritized,
    route,
    route_config,
)

if TYPE_CHECKING:
    from proxyless.channel import CallConfig

COOKIE: Final = SessionCookie("session")
ALL: Final = frozenset(HealthStatus)


def session_listener(cookie: SessionCookie = COOKIE) -> Listener:
    config = StatefulSessionConfig(cookie)
    return listener(http_filters=(HttpFilter("affinity", STATEFUL_SESSION_TYPE, config),))


def value_of(place: str) -> str:
    return b64encode(place.encode()).decode()


def cookie(place: str) -> Metadata:
    return (("cookie", f"session={value_of(place)}"),)


@dataclass
class SessionObserver(Observer):
    """An application that looks at metadata."""

    cookies: list[str] = field(default_factory=list)

    def on_head(self, metadata: Metadata) -> None:
        super().on_head(metadata)
        self._collect(metadata)

    def on_end(self, end: StreamEnd) -> None:
        super().on_end(end)
        self._collect(end.trailers)

    def _collect(self, metadata: Metadata) -> None:
        self.cookies += [str(value) for key, value in metadata if key == "set-cookie"]


class SessionWorld(MeshWorld):
    """A mesh with sessions."""

    def begin(
        self,
        *resources: Cluster | EndpointResource | RouteConfiguration,
        config: SessionCookie = COOKIE,
    ) -> None:
        self.say(session_listener(config), *resources)
        self.channel.request_connection()
        self.settle()

    def open(
        self, metadata: Metadata = (), path: str = PATH, *, wait_for_ready: bool = False
    ) -> tuple[Call, SessionObserver]:
        observer = SessionObserver()
        method = self.channel.method(path)
        call = Call(self.channel, method, observer, metadata, None, wait_for_ready)
        call.start_unary(b"request")
        self.settle()
        return call, observer

    def exchange(self, metadata: Metadata = (), path: str = PATH) -> tuple[str, list[str]]:
        """Who served an RPC, and which cookies its client was told to set."""
        _, observer = self.open(metadata, path)
        served = [at for at, backend in self._backends.items() if backend.streams]
        assert len(served) == 1, f"served by {served}"
        self.answer_all()
        assert observer.status == OK
        return served[0], observer.cookies


A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


@pytest.fixture
def world() -> SessionWorld:
    return SessionWorld()


def one_cluster(world: SessionWorld, config: SessionCookie = COOKIE) -> None:
    world.begin(route_config("blue"), cluster("blue"), endpoints("blue", A, B, C), config=config)


# ---------------------------------------------------------------------------------------------
# The cookie


@pytest.mark.spec("A55-03", "A55-04")
def test_a_session_begins_with_a_cookie_and_needs_no_other(world: SessionWorld) -> None:
    one_cluster(world)
    served, cookies = world.exchange()
    assert cookies == [f"session={value_of(f'{served};blue')}; HttpOnly"]
    for _ in range(6):
        assert world.exchange(cookie(f"{served};blue")) == (served, [])


@pytest.mark.spec("A55-03")
def test_path_and_age_are_told(world: SessionWorld) -> None:
    one_cluster(world, SessionCookie("session", "/pkg.Service", 90.0))
    served, cookies = world.exchange()
    value = value_of(f"{served};blue")
    assert cookies == [f"session={value}; HttpOnly; Path=/pkg.Service; Max-Age=90"]


@pytest.mark.spec("A55-03")
def test_a_session_that_moved_is_told(world: SessionWorld) -> None:
    one_cluster(world)
    # Its host is gone.
    served, cookies = world.exchange(cookie("10.9.9.9:80;blue"))
    assert cookies == [f"session={value_of(f'{served};blue')}; HttpOnly"]
    # Its host stayed, but the cookie says another cluster, or none.
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
    stream.answer()
    assert observer.ends[0].trailers == ()


@pytest.mark.spec("A55-02")
@pytest.mark.parametrize("cookie_path", ["/pkg.Service/Other", "/pkg", "/pkg.Service/Method/"])
def test_other_paths_have_no_sessions(world: SessionWorld, cookie_path: str) -> None:
    one_cluster(world, SessionCookie("session", cookie_path))
    exchanges = [world.exchange(cookie(f"{A};red")) for _ in range(6)]
    assert {served for served, _ in exchanges} == {A, B, C}
    assert all(cookies == [] for _, cookies in exchanges)


@pytest.mark.spec("A55-02")
@pytest.mark.parametrize("cookie_path", ["", "/", "/pkg.Service", "/pkg.Service/", PATH])
def test_matching_paths_have_sessions(world: SessionWorld, cookie_path: str) -> None:
    one_cluster(world, SessionCookie("session", cookie_path))
    assert {world.exchange(cookie(f"{A};blue"))[0] for _ in range(6)} == {A}


@pytest.mark.spec("A55-02")
def test_the_first_cookie_counts_and_a_bad_one_is_none(world: SessionWorld) -> None:
    one_cluster(world)
    first, second = value_of(f"{A};blue"), value_of(f"{B};blue")
    metadata = (("cookie", f"x=1; session={first}; session={second}"),)
    assert {world.exchange(metadata)[0] for _ in range(6)} == {A}
    bad = (("cookie", f"session=%%%; session={second}"),)
    exchanges = [world.exchange(bad) for _ in range(6)]
    assert {served for served, _ in exchanges} == {A, B, C}
    assert all(len(cookies) == 1 for _, cookies in exchanges)


@pytest.mark.spec("A55-05")
@pytest.mark.parametrize(
    ("statuses", "is_kept"),
    [(None, True), (frozenset(), False), (frozenset({HealthStatus.HEALTHY}), False), (ALL, True)],
)
def test_the_cluster_says_which_hosts_keep_sessions(
    world: SessionWorld, statuses: frozenset[HealthStatus] | None, is_kept: bool
) -> None:
    settings = {} if statuses is None else {"override_host_status": statuses}
    blue = cluster("blue", None, **cast("Any", settings))
    # Of health UNKNOWN.
    world.begin(route_config("blue"), blue, endpoints("blue", A, B, C))
    served = {world.exchange(cookie(f"{A};blue"))[0] for _ in range(6)}
    assert served == ({A} if is_kept else {A, B, C})


@pytest.mark.spec("A75-47", "A75-41")
def test_a_session_follows_its_endpoint_through_the_whole_tree(world: SessionWorld) -> None:
    first = prioritized("blue", [locality("x", A), locality("y", B)])
    world.begin(route_config("blue"), cluster("blue"), first)
    assert world.exchange(cookie(f"{B};blue"))[0] == B
    world.say(prioritized("blue", [locality("x", A)], [locality("y", B)]))
    assert {world.exchange(cookie(f"{B};blue"))[0] for _ in range(4)} == {B}
    assert {world.exchange()[0] for _ in range(4)} == {A}
    assert world.backend(B).accepts == 1, "one connection all the time"


@pytest.mark.spec("A75-49", "A75-64")
def test_a_session_of_an_idle_priority_waits_for_its_connection(world: SessionWorld) -> None:
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


@pytest.mark.spec("A60-01")
def test_a_cluster_that_the_route_does_not_have_is_not_chosen(world: SessionWorld) -> None:
    table = hosts(host(route("blue", "/pkg"), route("red", "/")))
    world.begin(table, cluster("blue"), cluster("red"), endpoints("blue", A), endpoints("red", C))
    served, cookies = world.exchange(cookie(f"{C};red"))
    assert served == A
    assert cookies == [f"session={value_of(f'{A};blue')}; HttpOnly"]


@pytest.mark.spec("A60-02")
def test_the_final_cluster_is_marked_and_no_other(world: SessionWorld) -> None:
    two_clusters(world)
    world.backend(C).down()
    world.settle()
    before = world.in_use("blue"), world.in_use("red")
    call, _ = world.open(cookie(f"{C};red"), wait_for_ready=True)
    assert (world.in_use("blue"), world.in_use("red")) == (before[0], before[1] + 1)
    # The route does not have it any more, but the RPC does, as long as it may be picked for.
    world.say(route_config("blue"))
    assert world.children == {"blue", "red"}
    call.cancel()
    world.settle()
    assert world.children == {"blue"}


class NoSubscriptions:
    """Where a dependency manager stands."""

    def subscribe(self, name: str) -> NoSubscriptions:
        return self

    def release(self) -> None:
        return


@pytest.mark.spec("A60-01")
def test_a_plugins_route_keeps_its_plugin(world: SessionWorld) -> None:
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


def test_an_override_of_the_route_turns_sessions_off(world: SessionWorld) -> None:
    off = {"affinity": FilterOverride(StatefulSessionConfig())}
    quiet = replace(route("blue"), filter_overrides=off)
    world.begin(hosts(host(quiet)), cluster("blue"), endpoints("blue", A, B))
    exchanges = [world.exchange(cookie(f"{A};blue")) for _ in range(4)]
    assert {served for served, _ in exchanges} == {A, B}
    assert all(cookies == [] for _, cookies in exchanges)
