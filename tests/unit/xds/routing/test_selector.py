"""Selectors: shared call configs, hashes, and references to clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.channel.config_selector import CallConfig
from proxyless.lb import REQUEST_HASH
from proxyless.runtime import seeded_random
from proxyless.xds.config import ClusterConfig, ClusterError
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.filters.rpc_filter import FilterOrigin, RoutedRpc, RpcFilter
from proxyless.xds.resources import (
    HashPolicy,
    HeaderMatcher,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    VirtualHost,
)
from proxyless.xds.resources.matcher import StringMatcher
from proxyless.xds.routing import selector
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector, routed_plugins
from tests.worlds.selectors import RING, NullSubscriptions, SelectorWorld
from tests.worlds.xds_resources import aggregate, cluster, route, unavailable

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.xds.config.xds_config import ClusterResult


def entries(name: str, **settings: Any) -> tuple[ClusterConfig, ...]:  # noqa: ANN401
    return (ClusterConfig(name, cluster(name, **settings)),)


def test_rpcs_share_the_call_config_when_the_route_is_plain() -> None:
    world = SelectorWorld(route("a"))
    first, second = world.select(), world.select()
    assert first is second
    assert world.refs.count("cluster:a") == 3
    for config in (first, second):
        assert config.on_commit is not None
        config.on_commit()
    assert world.refs.count("cluster:a") == 1


def test_headers_decide_for_each_rpc_when_a_route_before_has_a_header_matcher() -> None:
    beta = HeaderMatcher("ring", StringMatcher("exact", "beta"))
    world = SelectorWorld(replace(route("b"), headers=(beta,)), route("a"))
    metadata: Metadata = (("ring", "beta"),)
    for _ in range(2):
        for given, key in (((), "cluster:a"), (metadata, "cluster:b")):
            config = world.selector.select("/test.Service/Method", given)
            assert isinstance(config, CallConfig)
            assert config.attributes.get(CLUSTER) == key
    assert [world.refs.count(f"cluster:{name}") for name in "ab"] == [3, 3]


def test_cluster_is_chosen_for_each_rpc_when_the_route_has_several() -> None:
    world = SelectorWorld(route({"a": 1, "b": 1}))
    chosen = {world.select().attributes.get(CLUSTER) for _ in range(50)}
    assert chosen == {"cluster:a", "cluster:b"}


def test_decisions_by_path_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector, "CACHED_PATHS_MAX", 2)
    world = SelectorWorld(route("a", "/a/"), route("b"))
    for number in range(5):
        for _ in range(2):
            for path, key in ((f"/a/{number}", "cluster:a"), (f"/b/{number}", "cluster:b")):
                config = world.selector.select(path, ())
                assert isinstance(config, CallConfig)
                assert config.attributes.get(CLUSTER) == key
        assert len(world.selector._decided) <= 2


def test_every_routed_cluster_is_held_until_the_selector_is_closed() -> None:
    world = SelectorWorld(route("a", "/only.This/"), route({"b": 1, "c": 1}))
    assert set(world.refs.keys) == {"cluster:a", "cluster:b", "cluster:c"}
    world.selector.close()
    world.selector.close()
    assert [world.refs.count(f"cluster:{name}") for name in "abc"] == [0, 0, 0]


def test_plugin_and_cluster_have_different_keys() -> None:
    plugged = Route(path=PathMatcher("prefix", ""), action=RouteAction(choice=PluginChoice("p")))
    assert list(routed_plugins(VirtualHost(domains=("*",), routes=(plugged, plugged)))) == ["p"]
    world = SelectorWorld(plugged, route("p"))
    assert set(world.refs.keys) == {"cluster:p", "cluster_specifier_plugin:p"}
    config = world.select()
    assert world.refs.count("cluster_specifier_plugin:p") == 2
    assert config.attributes.get(REQUEST_HASH) is not None, "its cluster may be balanced by hash"


def test_hash_is_computed_when_a_cluster_may_use_it() -> None:
    policy = HashPolicy("channel_id")
    wrapped = ({"xds_wrr_locality_experimental": {"childPolicy": list(RING)}},)
    top = (ClusterConfig("top", aggregate("top", "leaf")), *entries("leaf", lb_config=RING))
    cases: list[tuple[Route, dict[str, ClusterResult], bool]] = [
        (route("a"), {"a": entries("a")}, False),
        (route("a"), {"a": entries("a", lb_config=RING)}, True),
        (route("a"), {"a": entries("a", lb_config=wrapped)}, True),
        (route("top"), {"top": top}, True),
        (route("a"), {"a": ClusterError(unavailable("gone"))}, False),
        (route({"a": 1, "b": 1}), {"a": entries("a"), "b": entries("b", lb_config=RING)}, True),
        (route("a", hash_policies=(policy,)), {"a": entries("a")}, True),
    ]
    for found, clusters, is_computed in cases:
        world = SelectorWorld(found, clusters=clusters)
        assert (world.select() is not world.select()) is is_computed


def test_hash_is_the_channel_id_when_no_cluster_uses_it() -> None:
    # The cluster may be balanced by hash at the time of the pick.
    world = SelectorWorld(route("a"), clusters={"a": entries("a")})
    assert world.select().attributes.get(REQUEST_HASH) == world.tools.channel_id


def test_keys_are_reused_when_the_virtual_host_is_the_same() -> None:
    world = SelectorWorld(route("a"), route("b"))
    keys = world.tools.keys_of(world.config)
    assert keys == ("cluster:a", "cluster:b")
    assert world.tools.keys_of(replace(world.config, clusters={"a": entries("a")})) is keys
    other = SelectorWorld(route("c")).config
    assert world.tools.keys_of(other) == ("cluster:c",)


def test_channel_id_has_64_random_bits() -> None:
    ids = [
        SelectorTools(
            ClusterRefs(lambda: None), NullSubscriptions(), FilterRegistry(), seeded_random(n), 15.0
        )
        for n in range(20)
    ]
    numbers = {each.channel_id for each in ids}
    assert len(numbers) == 20
    assert 2**63 < max(numbers) < 2**64


class Broken(RpcFilter):
    """Raises when its delay is read."""

    @property
    def delay_s(self) -> float:
        raise KeyError("delay")


class BrokenFilter:
    """Returns a `Broken` for every RPC."""

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter:
        return Broken()


def test_no_reference_is_added_when_a_filter_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SelectorWorld(route("a"))
    broken = BrokenFilter()
    chain = (broken,), FilterOrigin("orders", "edge-7", ("broken",))
    monkeypatch.setattr(XdsConfigSelector, "_chain", lambda *_: chain)
    with pytest.raises(KeyError):
        world.select()
    assert world.refs.count("cluster:a") == 1
