"""A74, policies: cds, the names of its children, its updates and its reports."""

from __future__ import annotations

import gc
import logging
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest

from proxyless.assembly import Registries
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Locality,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.lb import Update
from proxyless.lb.config import parse_policy_list
from proxyless.lb.hierarchy import path_of
from proxyless.testing.fakes import FakeHelper
from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from proxyless.xds.config.attributes import (
    CLUSTER_SUBSCRIPTIONS,
    HEALTH_STATUS,
    LOCALITY,
    LOCALITY_WEIGHT,
    XDS_CONFIG,
)
from proxyless.xds.lb.cds import CdsFactory
from proxyless.xds.lb.cds.policy import CdsConfig
from proxyless.xds.lb.cds.priority_children import ChildNumbers, assign_numbers, child_name
from proxyless.xds.resources import (
    ClusterSpecifierPlugin,
    DropCategory,
    HealthStatus,
    HttpFilter,
    LocalityEndpoints,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
)
from tests.worlds.meshes import MeshWorld, spying
from tests.worlds.xds_dependencies import CDS, EDS
from tests.worlds.xds_resources import (
    aggregate,
    cluster,
    dns,
    endpoints,
    host,
    listener,
    locality,
    prioritized,
    route,
    route_config,
    unavailable,
)

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


def mesh(registries: Registries | None = None) -> MeshWorld:
    """A channel with one route to cluster a at A."""
    world = MeshWorld(registries)
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    return world


def plugin_routes(*, name: str = "dynamic", routed: str = "a") -> RouteConfiguration:
    """A route whose plugin chooses the cluster of this name, and a plain route."""
    lb_config = ({"cds_experimental": {"cluster": name, "isDynamic": True}},)
    to_plugin = RouteAction(choice=PluginChoice("plugin"))
    routes = (Route(path=PathMatcher("prefix", "/dynamic."), action=to_plugin), route(routed))
    plugin = ClusterSpecifierPlugin("plugin", lb_config)
    return RouteConfiguration(name="routes", virtual_hosts=(host(*routes),), plugins=(plugin,))


# ---------------------------------------------------------------------------------------------
# Updates of the policies


@pytest.mark.spec("A74-41", "A74-42")
def test_config_and_subscriptions_reach_the_policies_as_attributes() -> None:
    registries, spies = spying("cds_experimental")
    world = mesh(registries)
    update = spies["cds_experimental"].updates[-1]
    assert update.config == CdsConfig("a"), "the JSON config has more than the name"
    config = update.attributes.get(XDS_CONFIG)
    assert config is not None
    assert list(config.clusters) == ["a"]
    subscriptions = update.attributes.get(CLUSTER_SUBSCRIPTIONS)
    assert subscriptions is not None
    subscriptions.subscribe("another")
    world.settle()
    assert "another" in world.watches.names(CDS)


@pytest.mark.spec("A74-01", "A74-51")
def test_policies_start_no_watch() -> None:
    registries, spies = spying("cds_experimental")
    world = MeshWorld(registries)
    world.start(
        route_config("top", "a"),
        aggregate("top", "a", "b"),
        *(cluster(name) for name in "ab"),
        *(endpoints(name, A) for name in "ab"),
    )
    assert len(spies["cds_experimental"].alive) == 3, "top, a, and the first leaf of top"
    for name in ("top", "a", "b"):
        assert world.watches.count(CDS, name) == 1
    assert world.watches.count(EDS, "a") == 1


@pytest.mark.spec("A74-14")
def test_rpcs_fail_until_an_aggregate_without_a_leaf_is_fixed() -> None:
    world = MeshWorld()
    world.start(route_config("top"), aggregate("top", "other"), aggregate("other", "top"))
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'cluster "top"' in observer.status.details
    world.publish(aggregate("other", "leaf"), cluster("leaf"), endpoints("leaf", A))
    assert world.send_rpc() == A


@pytest.mark.spec("A74-32")
def test_rpcs_fail_when_the_virtual_host_of_the_authority_is_removed() -> None:
    world = mesh()
    assert world.send_rpc() == A
    elsewhere = host(route("a"), domains=("elsewhere",))
    world.publish(RouteConfiguration(name="routes", virtual_hosts=(elsewhere,)))
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'has no virtual host for "orders"' in observer.status.details
    world.publish(route_config("a"))
    assert world.send_rpc() == A


@pytest.mark.spec("A74-65")
def test_xds_cluster_resolver_policy_is_not_registered() -> None:
    registry = Registries().policies
    errors = ValidationErrors()
    assert parse_policy_list([{"xds_cluster_resolver_experimental": {}}], errors, registry) is None
    assert "xds_cluster_resolver" in str(errors)
    assert not any("cluster_resolver" in name for name in registry.names)


# ---------------------------------------------------------------------------------------------
# Empty clusters and errors


@pytest.mark.spec("A74-38", "A74-39")
def test_rpcs_fail_with_the_resolution_note_when_a_cluster_has_no_endpoints() -> None:
    world = MeshWorld()
    world.watches.put(EDS, "a", unavailable("bad priorities"))
    world.start(route_config("a"), cluster("a"))
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'endpoints "a": bad priorities' in observer.status.details
    world.publish(endpoints("a", A))
    assert world.send_rpc() == A


@pytest.mark.spec("A74-38", "A32-10")
def test_cluster_without_endpoints_is_ready_when_all_rpcs_are_dropped() -> None:
    world = MeshWorld()
    drops = (DropCategory("throttle", 1_000_000),)
    world.start(route_config("a"), cluster("a"), endpoints("a", drops=drops))
    assert world.channel.state is State.READY
    for wait_for_ready in (True, False):
        _, observer = world.call(wait_for_ready=wait_for_ready)
        assert observer.status.code is StatusCode.UNAVAILABLE
        assert "throttle" in observer.status.details


@pytest.mark.spec("A74-38")
def test_aggregate_fails_over_past_a_leaf_without_endpoints() -> None:
    world = MeshWorld()
    world.start(
        route_config("top"),
        aggregate("top", "empty", "a"),
        cluster("empty"),
        endpoints("empty"),
        cluster("a"),
        endpoints("a", A),
    )
    assert world.send_rpc() == A


@pytest.mark.spec("A74-39")
def test_resolution_note_is_in_the_status_when_a_cluster_cannot_be_reached() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    world.watches.publish_ambient_error(CDS, "a", unavailable("NACKed by this client"))
    world.clock.advance(1.0)
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'cluster "a": NACKed by this client' in observer.status.details


@pytest.mark.spec("A74-40")
def test_rpcs_do_not_fail_when_one_leaf_is_in_error_and_another_serves() -> None:
    world = MeshWorld()
    world.start(
        route_config("top"),
        aggregate("top", "x", "a"),
        *(cluster(name) for name in "xa"),
        endpoints("x", B),
        endpoints("a", A),
    )
    assert world.send_rpc() == B
    world.remove(CDS, "x")
    assert world.send_rpc() == A
    world.publish(cluster("x"))
    assert world.send_rpc() == B


@pytest.mark.spec("A74-33", "A74-57", "A54-02")
def test_cluster_in_error_fails_only_its_own_rpcs_and_recovers() -> None:
    registries, spies = spying("xds_cluster_impl_experimental")
    world = MeshWorld(registries)
    world.watches.put(CDS, "b", unavailable("bad"))
    routes = RouteConfiguration(
        name="routes", virtual_hosts=(host(route("b", "/to.B/"), route("a")),)
    )
    world.start(routes, cluster("a"), endpoints("a", A))
    assert world.send_rpc() == A
    _, observer = world.call("/to.B/Method")
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'cluster "b": bad' in observer.status.details
    world.publish(cluster("b"), endpoints("b", B))
    assert world.send_rpc("/to.B/Method") == B
    assert len(spies["xds_cluster_impl_experimental"].alive) == 2
    world.remove(CDS, "b")
    assert len(spies["xds_cluster_impl_experimental"].alive) == 1, "the child is not closed"
    world.publish(cluster("b"))
    assert world.send_rpc("/to.B/Method") == B


# ---------------------------------------------------------------------------------------------
# The config of cds, and dynamic clusters


@pytest.mark.spec("A74-52")
@pytest.mark.parametrize("spelling", ["isDynamic", "is_dynamic"])
def test_config_of_cds_has_a_cluster_and_a_dynamic_flag(spelling: str) -> None:
    registry = Registries().policies
    errors = ValidationErrors()
    factory = CdsFactory()
    assert factory.parse_config({"cluster": "a"}, errors, registry) == CdsConfig("a")
    dynamic = factory.parse_config({"cluster": "a", spelling: True}, errors, registry)
    assert dynamic == CdsConfig("a", is_dynamic=True)
    assert errors.ok
    factory.parse_config({spelling: "yes"}, errors, registry)
    assert "field:isDynamic error:is 'yes', wanted a boolean" in str(errors)
    assert "field:cluster error:is missing or empty" in str(errors)


@pytest.mark.spec("A74-53", "A74-55", "A74-43")
def test_dynamic_cluster_is_subscribed_once_until_its_policy_is_closed() -> None:
    world = MeshWorld()
    world.start(plugin_routes(), cluster("a"), endpoints("a", A))
    assert "dynamic" in world.watches.names(CDS)
    _, waiting = world.call("/dynamic.Service/Method")
    assert waiting.is_running, "the cluster has not been received"
    for address in (B, A):
        world.publish(endpoints("a", address))
    assert world.resolver._manager._subscribed["dynamic"] == 1  # type: ignore[union-attr]  # noqa: SLF001
    world.publish(cluster("dynamic"), endpoints("dynamic", C))
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    world.remove(CDS, "dynamic")
    assert "dynamic" in world.watches.names(CDS)
    # The plugin's child is retained by the cluster manager before it is destroyed.
    world.publish(route_config("a"))
    world.clock.advance(15 * 60.0)
    assert "dynamic" not in world.watches.names(CDS)


@pytest.mark.spec("A74-55")
def test_child_is_kept_when_an_update_lacks_the_dynamic_cluster() -> None:
    helper = FakeHelper(registry=Registries().policies)
    policy = CdsFactory().create(helper)
    config = CdsConfig("d", is_dynamic=True)
    subscriptions = _Subscriptions()
    absent, present = _attributes({}, subscriptions), _attributes({"d": _entry("d")}, subscriptions)
    policy.update(Update((), config, absent))
    assert helper.reports[-1].state is State.CONNECTING
    assert subscriptions.taken == ["d"]
    policy.update(Update((), config, present))
    count = len(helper.reports)
    policy.update(Update((), config, absent))
    assert len(helper.reports) == count
    assert subscriptions.taken == ["d"]
    policy.close()
    assert subscriptions.released == ["d"]


@pytest.mark.spec("A74-54")
def test_subscription_of_a_dynamic_cluster_is_released_only_by_close() -> None:
    policy = CdsFactory().create(FakeHelper(registry=Registries().policies))
    config, subscriptions = CdsConfig("d", is_dynamic=True), _Subscriptions()
    failed = ClusterError(unavailable("rejected"))
    gone = ClusterError(Status(StatusCode.UNAVAILABLE, "does not exist"), does_not_exist=True)
    for value in (None, _entry("d"), failed, _entry("d"), gone, None, _entry("d")):
        clusters = {} if value is None else {"d": value}
        policy.update(Update((), config, _attributes(clusters, subscriptions)))
        assert (subscriptions.taken, subscriptions.released) == (["d"], [])
    policy.close()
    assert subscriptions.released == ["d"]


@pytest.mark.spec("A74-53", "A74-54")
def test_dynamic_cluster_is_subscribed_when_it_is_only_a_leaf() -> None:
    """D46: the data of the leaf is used at once, and kept when the aggregate changes."""
    world = MeshWorld()
    world.start(
        plugin_routes(name="leaf", routed="all"),
        *(aggregate("all", "leaf"), cluster("leaf"), endpoints("leaf", A)),
        *(cluster("other"), endpoints("other", B)),
    )
    assert world.send_rpc("/dynamic.Service/Method") == A
    for address in (C, A):
        world.publish(endpoints("other", address))
    assert world.resolver._manager._subscribed["leaf"] == 1  # type: ignore[union-attr]  # noqa: SLF001
    opened = world.watches.opened.count(("CDS", "leaf"))
    world.publish(aggregate("all", "other"))
    assert world.send_rpc("/dynamic.Service/Method") == A
    assert world.watches.opened.count(("CDS", "leaf")) == opened, "its watch ended"
    world.publish(endpoints("leaf", B))
    assert world.send_rpc("/dynamic.Service/Method") == B
    # The plugin's child is retained by the cluster manager before it is destroyed.
    world.publish(route_config("all"))
    world.clock.advance(15 * 60.0)
    assert "leaf" not in world.watches.names(CDS)


@pytest.mark.spec("A74-53")
def test_leaf_is_not_subscribed_when_it_is_not_dynamic() -> None:
    world = MeshWorld()
    world.start(route_config("all"), aggregate("all", "leaf"), cluster("leaf"))
    world.publish(endpoints("leaf", A))
    assert world.send_rpc() == A
    assert set(world.resolver._manager._subscribed) == {"all"}  # type: ignore[union-attr]  # noqa: SLF001


@pytest.mark.spec("A74-53")
def test_dynamic_cluster_is_subscribed_when_plugin_names_another_one() -> None:
    world = MeshWorld()
    world.start(plugin_routes(name="one"), cluster("a"), endpoints("a", A))
    world.publish(cluster("one"), endpoints("one", B))
    assert world.send_rpc("/dynamic.Service/Method") == B
    world.publish(plugin_routes(name="two"))
    assert world.watches.names(CDS) == {"a", "two"}
    world.publish(cluster("two"), endpoints("two", C))
    world.settle()
    assert world.send_rpc("/dynamic.Service/Method") == C


def test_subscription_is_released_when_plugin_names_a_cluster_of_a_route() -> None:
    world = MeshWorld()
    world.start(plugin_routes(name="one"), cluster("a"), endpoints("a", A))
    world.publish(cluster("one"), endpoints("one", B))
    world.publish(plugin_routes(name="a"))
    assert world.send_rpc("/dynamic.Service/Method") == A
    assert world.watches.names(CDS) == {"a"}
    world.publish(plugin_routes(name="one"))
    world.settle()
    assert world.send_rpc("/dynamic.Service/Method") == B
    assert world.watches.names(CDS) == {"a", "one"}


@pytest.mark.spec("A74-56")
def test_policy_fails_until_its_cluster_is_in_the_config_when_not_dynamic() -> None:
    helper = FakeHelper(registry=Registries().policies)
    policy = CdsFactory().create(helper)
    policy.update(Update((), CdsConfig("d"), _attributes({})))
    assert [report.state for report in helper.reports] == [State.TRANSIENT_FAILURE]
    assert 'cluster "d": is not in the xDS config' in helper.reports[-1].picker.status.details
    policy.update(Update((), CdsConfig("d"), _attributes({"d": _entry("d")})))
    assert helper.reports[-1].state is State.CONNECTING
    policy.close()


class _Subscriptions:
    """Records subscriptions and releases."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.released: list[str] = []

    def subscribe(self, name: str) -> Any:  # noqa: ANN401
        self.taken.append(name)
        owner = self

        class Handle:
            def release(self) -> None:
                owner.released.append(name)

        return Handle()


def _entry(name: str) -> tuple[ClusterConfig, ...]:
    return (ClusterConfig(name, cluster(name), endpoints(name, A)),)


def _attributes(clusters: dict[str, Any], subscriptions: Any = None) -> Any:  # noqa: ANN401
    routes = route_config("a")
    config = XdsConfig(listener(routes), routes, routes.virtual_hosts[0], clusters)
    attributes = EMPTY_ATTRIBUTES.with_(XDS_CONFIG, config)
    if subscriptions is not None:
        attributes = attributes.with_(CLUSTER_SUBSCRIPTIONS, subscriptions)
    return attributes


# ---------------------------------------------------------------------------------------------
# The priority policy below cds


@pytest.mark.spec("A74-58", "A37-04")
def test_priority_has_one_child_per_priority_highest_first() -> None:
    registries, spies = spying("priority_experimental")
    world = MeshWorld(registries)
    world.start(
        route_config("a", "named"),
        cluster("a"),
        prioritized("a", [locality("x", A)], [locality("y", B)]),
        dns("named", "backend.example"),
    )
    world.dns.respond("backend.example:80", C)
    world.settle()
    configs: list[Any] = [update.config for update in spies["priority_experimental"].updates]
    eds_config = next(each for each in configs if len(each.priorities) == 2)
    assert eds_config.priorities == (child_name("a", 0), child_name("a", 1))
    assert all(child.ignore_reresolution_requests for child in eds_config.children.values())
    dns_config = next(each for each in configs if len(each.priorities) == 1)
    assert not any(child.ignore_reresolution_requests for child in dns_config.children.values())


@pytest.mark.spec("A74-59")
def test_endpoints_are_tagged_with_child_and_locality() -> None:
    registries, spies = spying("priority_experimental")
    world = MeshWorld(registries)
    world.start(
        route_config("a"),
        cluster("a"),
        prioritized("a", [locality("x", A, weight=3)], [locality("y", B, weight=5)]),
    )
    found = spies["priority_experimental"].updates[-1].endpoints
    assert isinstance(found, tuple)
    first, second = found
    assert path_of(first) == (child_name("a", 0), str(Locality(zone="x")))
    assert path_of(second) == (child_name("a", 1), str(Locality(zone="y")))
    assert first.attributes.get(LOCALITY) == Locality(zone="x")
    assert first.attributes.get(LOCALITY_WEIGHT) == 3
    assert second.attributes.get(LOCALITY_WEIGHT) == 5
    assert first.attributes.get(HEALTH_STATUS) is HealthStatus.UNKNOWN


def numbers(*updates: str) -> list[tuple[int, ...]]:
    """The numbers after each update; "ab cd" is two priorities with two localities each."""
    state = ChildNumbers()
    seen = []
    for update in updates:
        priorities = [
            tuple(LocalityEndpoints(Locality(zone=zone), 1, ()) for zone in zones)
            for zones in update.split()
        ]
        state = assign_numbers(state, priorities)
        seen.append(state.numbers)
    return seen


@pytest.mark.spec("A74-60", "A74-61")
def test_child_numbers_follow_the_localities() -> None:
    assert numbers("ab cd", "ab e") == [(0, 1), (0, 2)]
    assert numbers("ab cd", "c ab") == [(0, 1), (1, 0)]
    assert numbers("ab cd", "abc d", "ab cd") == [(0, 1), (0, 1), (0, 1)]
    assert numbers("bc ad", "abc d") == [(0, 1), (1, 2)]


@pytest.mark.spec("A74-60")
def test_child_numbers_are_stable_when_a_locality_is_in_two_priorities() -> None:
    assert numbers("a a", "a a", "a a") == [(0, 1), (0, 1), (0, 1)]
    assert numbers("a ab", "b a") == [(0, 1), (1, 0)], "a new child"
    assert numbers("a a", "c a a") == [(0, 1), (2, 0, 1)]
    assert numbers("ab ac", "ac ab") == [(0, 1), (0, 1)], "a decides, in order of priorities"
    assert numbers("a a", "a", "a a") == [(0, 1), (0,), (0, 2)]


@pytest.mark.spec("A74-60")
def test_child_number_is_that_of_the_first_locality_in_sorted_order() -> None:
    assert numbers("ab cd", "da") == numbers("ab cd", "ad") == [(0, 1), (0,)]


@pytest.mark.spec("A74-62")
def test_child_number_is_never_reused() -> None:
    assert numbers("a b", "a", "a c", "a", "a b") == [(0, 1), (0,), (0, 2), (0,), (0, 3)]


def test_child_number_is_kept_while_a_cluster_has_no_localities() -> None:
    first = assign_numbers(ChildNumbers(), [()])
    again = assign_numbers(first, [()])
    assert first.numbers == again.numbers == (0,)
    priorities = [(LocalityEndpoints(Locality(zone="a"), 1, ()),)]
    assert assign_numbers(again, priorities).numbers == (1,)


@pytest.mark.spec("A74-63")
def test_child_name_includes_the_cluster() -> None:
    assert child_name("a", 0) != child_name("b", 0)
    assert "a" in child_name("a", 0)


@pytest.mark.spec("A74-60")
def test_connection_is_kept_when_its_locality_moves_to_another_priority() -> None:
    world = MeshWorld()
    world.start(
        route_config("a"), cluster("a"), prioritized("a", [locality("x", A)], [locality("y", B)])
    )
    assert world.send_rpc() == A
    world.publish(prioritized("a", [locality("z", C)], [locality("x", A)]))
    world.settle()
    assert world.send_rpc() == C
    world.backend(C).down()
    world.clock.advance(1.0)
    assert world.send_rpc() == A
    assert world.backend(A).accepts == 1


@pytest.mark.spec("A74-60")
def test_children_do_not_accumulate_when_a_locality_is_in_two_priorities() -> None:
    registries, spies = spying("round_robin")
    world = MeshWorld(registries)
    twice = [locality("x", A)], [locality("x", B)]
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a"), prioritized("a", *twice))
    assert world.send_rpc() == B
    for weight in range(2, 62):
        twice = [locality("x", A, weight=weight)], [locality("x", B, weight=weight)]
        world.publish(prioritized("a", *twice))
        world.clock.advance(1.0)
        assert world.send_rpc() == B
        assert len(spies["round_robin"].alive) == 2
        assert [len(world.backend(each).handles) for each in (A, B)] == [1, 1]
    assert len(spies["round_robin"].created) == 2
    assert world.backend(B).accepts == 1


@pytest.mark.spec("RR-10")
def test_old_endpoints_get_no_rpcs_when_their_locality_returns_with_others() -> None:
    by_locality: dict[str, object] = {
        "xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}
    }
    both = prioritized("a", [locality("x", A), locality("y", B)])
    world = MeshWorld()
    world.start(route_config("a"), cluster("a", lb_config=(by_locality,)), both)
    assert {world.send_rpc() for _ in range(20)} == {A, B}
    world.publish(prioritized("a", [locality("x", A)]))
    assert {world.send_rpc() for _ in range(20)} == {A}
    # The locality's child is retained with its connection; the new endpoint does not connect.
    world.clock.advance(300.0)
    world.backend(C).connect = lambda: None  # type: ignore[method-assign]
    world.publish(prioritized("a", [locality("x", A), locality("y", C)]))
    assert {world.send_rpc() for _ in range(20)} == {A}


@pytest.mark.spec("RR-10")
def test_old_endpoints_get_no_rpcs_when_their_cluster_returns_with_others() -> None:
    world = MeshWorld()
    world.start(
        route_config("a"),
        *(cluster(name) for name in "ab"),
        endpoints("a", A),
        endpoints("b", B),
    )
    assert world.send_rpc() == A
    world.publish(route_config("b"))
    assert world.send_rpc() == B
    world.clock.advance(300.0)
    # The child of the cluster is retained with its connection; the new endpoint does not connect.
    world.backend(C).connect = lambda: None  # type: ignore[method-assign]
    world.publish(endpoints("a", C))
    world.publish(route_config("a"))
    _, observer = world.call()
    world.clock.advance(1.0)
    assert observer.is_running
    assert world.streams(A) == []


def test_rpcs_wait_for_the_new_endpoints_of_a_priority_when_all_others_fail() -> None:
    by_locality: dict[str, object] = {
        "xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}
    }
    world = MeshWorld()
    world.backend(A).is_up = False
    start = prioritized("a", [locality("x", A)], [locality("z", B)])
    world.start(route_config("a"), cluster("a", lb_config=(by_locality,)), start)
    assert world.send_rpc() == B
    # The failed locality gets another endpoint, which connects later; all others are down.
    connect = world.backend(C).connect
    world.backend(C).connect = lambda: None  # type: ignore[method-assign]
    world.publish(prioritized("a", [locality("x", C)], [locality("y", A)]))
    _, observer = world.call()
    world.clock.advance(0.5)
    assert observer.ends == []
    world.backend(C).connect = connect  # type: ignore[method-assign]
    world.backend(C).connect()
    world.settle()
    [stream] = world.backend(C).streams
    stream.respond()
    world.settle()
    assert observer.status == OK


def test_cluster_that_is_its_own_child_fails_only_its_own_rpcs() -> None:
    """A control plane may configure any policy by name, even cds itself."""
    itself = ({"cds_experimental": {"cluster": "b"}},)
    world = mesh()
    both = RouteConfiguration(
        name="routes", virtual_hosts=(host(route("b", "/loop."), route("a")),)
    )
    world.publish(cluster("b", lb_config=itself), endpoints("b", B), both)
    _, observer = world.call("/loop.Service/Method")
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "b > b" in observer.status.details
    assert world.send_rpc() == A


def test_policy_of_another_cluster_follows_that_cluster() -> None:
    world = MeshWorld()
    other = ({"cds_experimental": {"cluster": "a"}},)
    routes = RouteConfiguration(
        name="routes", virtual_hosts=(host(route("b", "/other."), route("a")),)
    )
    world.start(routes, cluster("a"), endpoints("a", A))
    world.publish(cluster("b", lb_config=other), endpoints("b", B))
    assert world.send_rpc("/other.Service/Method") == A
    world.publish(endpoints("a", C))
    assert world.send_rpc() == C
    assert world.send_rpc("/other.Service/Method") == C


class Broken:
    """A policy with a bug, and its factory."""

    name = "broken"

    def parse_config(self, json: object, errors: object, registry: object) -> object:
        return None

    def create(self, helper: object) -> Any:  # noqa: ANN401
        return self

    def update(self, update: Update) -> Status:
        raise KeyError("bug")

    def close(self) -> None:
        return


def test_policy_that_raises_fails_only_its_own_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, logger="proxyless")
    world = MeshWorld(Registries().extended(policies=[Broken()]))
    both = RouteConfiguration(
        name="routes", virtual_hosts=(host(route("b", "/broken."), route("a")),)
    )
    broken = cluster("b", lb_config=({"broken": {}},))
    world.start(both, broken, endpoints("b", B), cluster("a"), endpoints("a", A))
    assert world.send_rpc() == A
    _, observer = world.call("/broken.Service/Method")
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert 'cluster "b": load balancing policy raised KeyError' in observer.status.details
    assert "load balancing policy raised" in caplog.text
    world.publish(cluster("b"))
    assert world.send_rpc("/broken.Service/Method") == B


def test_rpcs_fail_when_clusters_are_nested_too_deep() -> None:
    names = [f"c{number}" for number in range(20)]
    clusters = [
        cluster(name, lb_config=({"cds_experimental": {"cluster": below}},))
        for name, below in pairwise(names)
    ]
    world = MeshWorld()
    last = cluster(names[-1])
    world.start(route_config(*names), *clusters, last, *(endpoints(name, A) for name in names))
    _, observer = world.call()
    assert "nested too deep" in observer.status.details


@pytest.mark.spec("A74-64")
def test_unchanged_leaf_is_not_updated_but_an_aggregate_always_is() -> None:
    registries, spies = spying("xds_cluster_impl_experimental", "priority_experimental")
    world = MeshWorld(registries)
    world.start(
        route_config("a", "b"),
        *(cluster(name) for name in "ab"),
        endpoints("a", A),
        endpoints("b", B),
    )
    impl = spies["xds_cluster_impl_experimental"]
    count = len(impl.updates)
    world.publish(endpoints("b", C))
    assert len(impl.updates) == count + 1
    world.publish(cluster("top"), aggregate("top", "a"), route_config("top", "b"))
    priorities = spies["priority_experimental"]
    del priorities.updates[:]
    world.publish(endpoints("b", A))
    children = [list(each.config.children) for each in priorities.updates]  # type: ignore[attr-defined]
    assert ["a"] in children, "no update of the aggregate's priority policy"


class Marker:
    """A part of a resource that can be referred to weakly."""


@pytest.mark.parametrize("policy", ["round_robin", "ring_hash_experimental", "wrr_locality"])
def test_cluster_that_does_not_change_keeps_no_old_config(policy: str) -> None:
    """Otherwise a mesh has as many copies of its routes as clusters."""
    lb_config: dict[str, object] = {policy: {}}
    if policy == "wrr_locality":
        lb_config = {"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}}
    world, marker = MeshWorld(), Marker()
    world.start(
        listener("routes", http_filters=(HttpFilter("f", "test.Filter", marker),)),
        route_config("a", "b", "top"),
        *(cluster(name, lb_config=(lb_config,)) for name in "abc"),
        *(aggregate("top", "c"), endpoints("c", C)),
        *(endpoints("a", A), endpoints("b", B)),
    )
    assert world.send_rpc() == A
    marker_ref = ref(marker)
    del marker
    world.publish(listener(), endpoints("b", C))
    gc.collect()
    assert marker_ref() is None


def test_policy_fails_when_an_update_has_no_xds_config() -> None:
    helper = FakeHelper(registry=Registries().policies)
    policy = CdsFactory().create(helper)
    policy.update(Update((), CdsConfig("d"), EMPTY_ATTRIBUTES))
    assert "no xDS config" in helper.reports[-1].picker.status.details
    policy.close()


@pytest.mark.parametrize("does_not_exist", [True, False])
def test_policy_fails_with_the_error_of_its_cluster(does_not_exist: bool) -> None:
    helper = FakeHelper(registry=Registries().policies)
    policy = CdsFactory().create(helper)
    error = ClusterError(unavailable('cluster "d": gone'), does_not_exist)
    policy.update(Update((), CdsConfig("d"), _attributes({"d": error})))
    assert helper.reports[-1].state is State.TRANSIENT_FAILURE
    assert helper.reports[-1].picker.status == error.status
    policy.close()


class _Environment(dict[str, str]):
    """Environment that records which variables are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


@pytest.mark.spec("A74-69")
def test_no_variable_guards_atomic_config(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _Environment()
    monkeypatch.setattr("os.environ", environment)
    world = MeshWorld()
    world.start(
        route_config("top", "named"),
        aggregate("top", "a"),
        cluster("a"),
        endpoints("a", A),
        dns("named", "backend.example"),
    )
    _, waiting = world.call(wait_for_ready=True)
    assert waiting.is_running, "DNS has not answered yet"
    world.dns.respond("backend.example:80", B)
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    # The variables that are read belong to A31 (D20), A56 (D1, D3), A62 (D11), A75, A105, A113 and
    # D50.
    assert environment.read <= {
        "GRPC_XDS_DEFAULT_ROUTE_TIMEOUT",
        "GRPC_XDS_HOLD_CONFIG",
        "GRPC_XDS_PRIORITY_FAILOVER_KEEPS_CONNECTING",
        "GRPC_EXPERIMENTAL_ENABLE_PRIORITY_LB_CHILD_POLICY_CACHE",
        "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG",
        "GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING",
        "GRPC_EXPERIMENTAL_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING",
        "GRPC_EXPERIMENTAL_XDS_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING",
        "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT",
    }
