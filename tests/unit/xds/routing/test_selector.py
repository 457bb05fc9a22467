"""Selectors: what is prepared, what is shared, and who is held how long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.channel.config_selector import CallConfig
from proxyless.lb import REQUEST_HASH
from proxyless.runtime import seeded_random
from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.filters.calls import FilterOrigin, RoutedRpc, RpcFilter
from proxyless.xds.resources import (
    ClusterSpecifierPlugin,
    HashPolicy,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
)
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector, routed_plugins
from tests.spec.xds_world import aggregate, cluster, host, listener, route, unavailable

if TYPE_CHECKING:
    from proxyless.xds.config.xds_config import ClusterResult

RING: tuple[dict[str, object], ...] = ({"ring_hash_experimental": {}},)
PATH = "/s/m"


class Nobody:
    """Subscriptions that end in nothing."""

    def subscribe(self, name: str) -> Nobody:
        return self

    def release(self) -> None:
        return


class SelectorWorld:
    """A selector over one virtual host, and its references."""

    def __init__(self, *routes: Route, clusters: dict[str, ClusterResult] | None = None) -> None:
        self.refs = ClusterRefs(lambda: None)
        found = host(*routes)
        random = seeded_random(1)
        plugins = (ClusterSpecifierPlugin("p", RING),)
        config = RouteConfiguration(name="routes", virtual_hosts=(found,), plugins=plugins)
        self.tools = SelectorTools(self.refs, Nobody(), FilterRegistry(), random, 15.0)
        self.config = XdsConfig(listener(config), config, found, clusters or {})
        self.selector = XdsConfigSelector(self.config, RouteTable(found, random), self.tools)

    def select(self) -> CallConfig:
        config = self.selector.select(PATH, ())
        assert isinstance(config, CallConfig)
        return config


def known(name: str, **settings: Any) -> tuple[ClusterConfig, ...]:  # noqa: ANN401
    return (ClusterConfig(name, cluster(name, **settings)),)


def test_rpcs_of_a_plain_route_share_their_config() -> None:
    world = SelectorWorld(route("a"))
    first, second = world.select(), world.select()
    assert first is second
    assert world.refs.count("cluster:a") == 3
    for config in (first, second):
        assert config.on_commit is not None
        config.on_commit()
    assert world.refs.count("cluster:a") == 1


def test_every_routed_cluster_is_held_until_the_selector_is_closed() -> None:
    world = SelectorWorld(route("a", "/only.This/"), route({"b": 1, "c": 1}))
    assert set(world.refs.keys) == {"cluster:a", "cluster:b", "cluster:c"}
    world.selector.close()
    world.selector.close()
    assert [world.refs.count(f"cluster:{name}") for name in "abc"] == [0, 0, 0]


def test_plugin_has_a_key_of_its_own() -> None:
    plugged = Route(path=PathMatcher("prefix", ""), action=RouteAction(choice=PluginChoice("p")))
    assert list(routed_plugins(VirtualHost(domains=("*",), routes=(plugged, plugged)))) == ["p"]
    world = SelectorWorld(plugged, route("p"))
    assert set(world.refs.keys) == {"cluster:p", "cluster_specifier_plugin:p"}
    config = world.select()
    assert world.refs.count("cluster_specifier_plugin:p") == 2
    assert config.attributes.get(REQUEST_HASH) is not None, "who knows what it is balanced by"


def test_hash_is_computed_only_for_those_who_may_want_it() -> None:
    policy = HashPolicy("channel_id")
    wrapped = ({"xds_wrr_locality_experimental": {"childPolicy": list(RING)}},)
    top = (ClusterConfig("top", aggregate("top", "leaf")), *known("leaf", lb_config=RING))
    cases: list[tuple[Route, dict[str, ClusterResult], bool]] = [
        (route("a"), {"a": known("a")}, False),
        (route("a"), {"a": known("a", lb_config=RING)}, True),
        (route("a"), {"a": known("a", lb_config=wrapped)}, True),
        (route("top"), {"top": top}, True),
        (route("a"), {"a": ClusterError(unavailable("gone"))}, False),
        (route({"a": 1, "b": 1}), {"a": known("a"), "b": known("b", lb_config=RING)}, True),
        (route("a", hash_policies=(policy,)), {"a": known("a")}, True),
    ]
    for found, clusters, is_computed in cases:
        world = SelectorWorld(found, clusters=clusters)
        assert (world.select() is not world.select()) is is_computed


def test_rpc_without_a_hash_of_its_own_has_the_channels() -> None:
    """Its cluster may be balanced by hash by the time it is picked for."""
    world = SelectorWorld(route("a"), clusters={"a": known("a")})
    assert world.select().attributes.get(REQUEST_HASH) == world.tools.channel_id


def test_routes_are_gone_through_again_only_if_they_are_others() -> None:
    world = SelectorWorld(route("a"), route("b"))
    keys = world.tools.keys_of(world.config)
    assert keys == ("cluster:a", "cluster:b")
    assert world.tools.keys_of(replace(world.config, clusters={"a": known("a")})) is keys
    other = SelectorWorld(route("c")).config
    assert world.tools.keys_of(other) == ("cluster:c",)


def test_each_channel_has_an_id_of_64_random_bits() -> None:
    ids = [
        SelectorTools(ClusterRefs(lambda: None), Nobody(), FilterRegistry(), seeded_random(n), 15.0)
        for n in range(20)
    ]
    numbers = {each.channel_id for each in ids}
    assert len(numbers) == 20
    assert 2**63 < max(numbers) < 2**64


class Broken(RpcFilter):
    """Cannot even say how long it takes."""

    @property
    def delay_s(self) -> float:
        raise KeyError("delay")


class BrokenFilter:
    """Has something to do with every RPC, and breaks over it."""

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter:
        return Broken()


def test_filter_that_raises_leaves_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SelectorWorld(route("a"))
    broken = BrokenFilter()
    chain = (broken,), FilterOrigin("orders", "edge-7", ("broken",))
    monkeypatch.setattr(XdsConfigSelector, "_chain", lambda *_: chain)
    with pytest.raises(KeyError):
        world.select()
    assert world.refs.count("cluster:a") == 1
