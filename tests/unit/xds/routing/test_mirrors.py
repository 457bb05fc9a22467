"""Unit tests of proxyless.xds.routing.mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from proxyless.channel.mirrored_call import DURATION_MAX_S, ClusterMirror
from proxyless.lb import REQUEST_HASH
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.resources.route import MirrorPolicy
from proxyless.xds.routing import selector
from tests.worlds.selectors import SelectorWorld
from tests.worlds.xds_resources import route

if TYPE_CHECKING:
    from proxyless.channel.config_selector import CallConfig
    from proxyless.xds.resources import Route

ALL = MirrorPolicy("copy", 1_000_000)
HALF = MirrorPolicy("half", 500_000, has_shadow_suffix=False)


def mirrors_of(config: CallConfig) -> list[ClusterMirror]:
    stack = config.interception
    mirrors = () if stack is None else stack.mirrors
    found = [each for each in mirrors if isinstance(each, ClusterMirror)]
    assert len(found) == len(mirrors)
    return found


def mirrored(*policies: MirrorPolicy, **settings: Any) -> Route:  # noqa: ANN401
    return route("a", mirrors=policies, **settings)


@pytest.mark.spec("MR-01")
def test_rpc_has_the_mirrors_of_its_route() -> None:
    world = SelectorWorld(mirrored(ALL, timeout_s=2.0))
    assert world.refs.keys == ["cluster:a", "mirror:copy"]
    [mirror] = mirrors_of(world.select())
    assert (mirror.cluster, mirror.timeout_s, mirror.has_shadow_suffix) == ("copy", 2.0, True)
    assert mirror.attributes.get(CLUSTER) == "mirror:copy"
    assert mirror.attributes.get(REQUEST_HASH) is not None


@pytest.mark.spec("MR-06")
@pytest.mark.parametrize(("timeout_s", "expected"), [(0.0, DURATION_MAX_S), (99.0, DURATION_MAX_S)])
def test_copy_has_a_timeout_when_its_route_has_none_or_a_long_one(
    timeout_s: float, expected: float
) -> None:
    [mirror] = mirrors_of(SelectorWorld(mirrored(ALL, timeout_s=timeout_s)).select())
    assert mirror.timeout_s == expected


@pytest.mark.spec("MR-02")
def test_fraction_is_the_share_of_rpcs_that_are_copied() -> None:
    world = SelectorWorld(mirrored(ALL, HALF))
    counts = [len(mirrors_of(world.select())) for _ in range(2_000)]
    assert set(counts) == {1, 2}
    assert counts.count(2) / len(counts) == pytest.approx(0.5, abs=0.05)


@pytest.mark.spec("MR-02")
def test_rpc_is_not_intercepted_when_no_mirror_is_chosen() -> None:
    world = SelectorWorld(mirrored(MirrorPolicy("never", 1)))
    configs = [world.select() for _ in range(100)]
    assert all(config.interception is None for config in configs)


def test_route_without_mirrors_is_plain() -> None:
    world = SelectorWorld(route("a"))
    assert world.select() is world.select()


def test_clusters_over_the_limit_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector, "MIRRORED_MAX", 1)
    world = SelectorWorld(mirrored(ALL, MirrorPolicy("other", 1_000_000)))
    assert world.refs.keys == ["cluster:a", "mirror:copy"]
    assert [each.cluster for each in mirrors_of(world.select())] == ["copy"]


def test_selectors_of_a_resolver_share_the_calls_in_flight() -> None:
    world = SelectorWorld(mirrored(ALL))
    [first], [second] = mirrors_of(world.select()), mirrors_of(world.select())
    assert first.calls is second.calls is world.tools.mirrored_calls()
    world.tools.close()
