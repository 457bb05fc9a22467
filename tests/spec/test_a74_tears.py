"""A74: atomicity of changes. No RPC is served by parts of two configs.

The resources of the next generation of a mesh (`mesh_generations`) arrive in every order, with RPCs
before, between and after them. tests/sim/test_interleavings.py also covers other kinds of steps.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.resources import HttpFilter
from tests.worlds.mesh_generations import FILTER, KINDS, GenerationsWorld, address_of, timeout_of
from tests.worlds.meshes import MeshWorld, spying
from tests.worlds.xds_dependencies import CDS, EDS, RDS
from tests.worlds.xds_resources import cluster, eds, endpoints, host, hosts, listener, route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# ---------------------------------------------------------------------------------------------
# One change, in every order


@pytest.mark.spec("A74-05", "A74-16", "A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations(KINDS)])
def test_change_takes_effect_as_a_whole_in_every_order_of_its_parts(order: str) -> None:
    world = GenerationsWorld()
    for count, kind in enumerate(order, 1):
        world.mesh.publish(world.part(kind, 1))
        world.expect(1 if count == len(KINDS) else 0)
    world.expect_end()


@pytest.mark.spec("A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations(KINDS)])
def test_parts_are_published_as_one_change_when_they_arrive_together(order: str) -> None:
    """The name of the routes stays the same, so the new listener alone would be complete."""
    registries, spies = spying("xds_cluster_manager_experimental")
    world = GenerationsWorld(routes="routes", registries=registries)
    updates = spies["xds_cluster_manager_experimental"].updates
    before = len(updates)
    world.mesh.publish(*(world.part(kind, 1) for kind in order))
    world.expect(1)
    configs = [each.attributes.get(XDS_CONFIG) for each in updates[before:]]
    assert configs
    assert all(config is configs[0] for config in configs)
    world.expect_end()


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations("RCE")])
def test_new_routes_take_effect_when_their_cluster_is_complete(order: str) -> None:
    """Only routes, cluster and endpoints change; the listener stays."""
    world = GenerationsWorld(routes="routes")
    world.mesh.publish(listener("routes", http_filters=(HttpFilter("f", FILTER, 0),)))
    cap = hosts(host(route("cluster-1", timeout_s=timeout_of(0))), name="routes")
    parts = {"R": cap, "C": cluster("cluster-1"), "E": endpoints("cluster-1", address_of(1))}
    for count, kind in enumerate(order, 1):
        world.mesh.publish(parts[kind])
        if count < len(order):
            world.expect(0)
    served = world.mesh.send_rpc()
    assert served == address_of(1)


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", ["CE", "EC"])
def test_renamed_service_takes_effect_when_its_endpoints_are_received(
    order: str,
) -> None:
    world = MeshWorld()
    world.start(hosts(host(route("c"))), eds("c", "old"), endpoints("old", address_of(0)))
    parts = {"C": eds("c", "new"), "E": endpoints("new", address_of(1))}
    world.publish(parts[order[0]])
    assert world.send_rpc() == address_of(0)
    world.publish(parts[order[1]])
    assert world.send_rpc() == address_of(1)


# ---------------------------------------------------------------------------------------------
# Two changes that overlap


def interleavings() -> Iterable[str]:
    """All interleavings of the parts of two changes; capitals are the first change."""
    places = range(2 * len(KINDS))
    for chosen in combinations(places, len(KINDS)):
        first, second = iter(KINDS), iter(KINDS.lower())
        yield "".join(next(first if place in chosen else second) for place in places)


def play(order: Sequence[str]) -> None:
    """Deliver parts of two changes with RPCs in between; check which config is used."""
    world = GenerationsWorld()
    arrived: dict[int, set[str]] = {1: set(), 2: set()}
    expected, listened = 0, 0
    for letter in order:
        generation = 1 if letter.isupper() else 2
        arrived[generation].add(letter.upper())
        world.mesh.publish(world.part(letter.upper(), generation))
        if letter.upper() == "L":
            listened = generation
        if listened and len(arrived[listened]) == len(KINDS):
            expected = listened
        world.expect(expected)
    world.expect_end()


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", sorted(set(interleavings())))
def test_overlapping_changes_each_take_effect_as_a_whole_or_are_skipped(order: str) -> None:
    if order.index("L") < order.index("l"):
        play(order)
    else:
        # The second listener replaces the first one, so the first change comes first.
        play(order.swapcase())


@pytest.mark.spec("A74-17")
@settings(max_examples=60)
@given(st.permutations("LRCElrce").filter(lambda order: order.index("L") < order.index("l")))
def test_overlapping_changes_are_atomic_in_any_order_of_their_parts(order: Sequence[str]) -> None:
    play(order)


# ---------------------------------------------------------------------------------------------
# Removal of clusters


@pytest.mark.spec("A74-18")
@pytest.mark.parametrize("order", list(permutations(("no C", "no E", "C", "E"))))
def test_rpcs_do_not_fail_when_the_old_cluster_is_removed_before_the_new_one_is_complete(
    order: tuple[str, ...],
) -> None:
    world = GenerationsWorld()
    world.mesh.publish(world.part("L", 1))
    world.expect(0)
    world.mesh.publish(world.part("R", 1))
    world.expect(0)
    steps: dict[str, Callable[[], None]] = {
        "no C": lambda: world.mesh.remove(CDS, "cluster-0"),
        "no E": lambda: world.mesh.remove(EDS, "cluster-0"),
        "C": lambda: world.mesh.publish(world.part("C", 1)),
        "E": lambda: world.mesh.publish(world.part("E", 1)),
    }
    done: set[str] = set()
    for step in order:
        steps[step]()
        done.add(step)
        world.expect(1 if {"C", "E"} <= done else 0)
    world.expect_end()


@pytest.mark.spec("A74-18")
def test_rpcs_fail_when_the_old_cluster_is_removed_without_replacement() -> None:
    world = GenerationsWorld()
    world.mesh.remove(CDS, "cluster-0")
    _, observer = world.mesh.call()
    assert 'cluster "cluster-0"' in observer.status.details
    world.mesh.publish(*(world.part(kind, 1) for kind in KINDS))
    world.expect(1)


# ---------------------------------------------------------------------------------------------
# Changes that are incomplete for a long time


@pytest.mark.spec("A74-05", "A74-16")
@pytest.mark.parametrize("missing", KINDS[1:])
def test_old_config_is_used_while_a_part_of_the_new_one_is_missing(missing: str) -> None:
    world = GenerationsWorld()
    world.mesh.publish(*(world.part(kind, 1) for kind in KINDS if kind != missing))
    for _ in range(60):
        world.expect(0)
        world.mesh.clock.advance(0.2)
    world.mesh.publish(world.part(missing, 1))
    world.expect(1)


@pytest.mark.spec("A74-16")
def test_old_config_is_used_during_198_incomplete_changes() -> None:
    world = GenerationsWorld()
    for generation in range(1, 199):
        for kind in "LRC":
            world.mesh.publish(world.part(kind, generation))
        world.expect(0)
    world.mesh.publish(*(world.part(kind, 199) for kind in KINDS))
    world.expect(199)
    assert world.mesh.watches.names(RDS) == {"routes-199"}
    world.expect_end()


def test_world_detects_rpcs_served_by_parts_of_two_generations() -> None:
    """Self-test of the world: it fails if an RPC is served by parts of two generations."""
    world = GenerationsWorld()
    world.mesh.publish(listener("routes-0", http_filters=(HttpFilter("f", FILTER, 1),)))
    with pytest.raises(AssertionError, match="of two generations"):
        world.start_rpc()
    slow = hosts(host(route("cluster-0", timeout_s=99.0)), name="routes-0")
    world.mesh.publish(world.part("L", 0), slow)
    with pytest.raises(AssertionError, match="timeout of another"):
        world.start_rpc()
