"""A74: does an RPC ever meet half of a change?

The resources of the next generation of a mesh (`torn_world`) come in every order, with RPCs before,
between and after them. tests/sim/test_interleavings.py goes further: any step at any time.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.resources import HttpFilter
from tests.spec.mesh_world import MeshWorld, spying
from tests.spec.torn_world import FILTER, KINDS, TornWorld, address_of, timeout_of
from tests.spec.xds_world import (
    CDS,
    EDS,
    RDS,
    cluster,
    eds,
    endpoints,
    host,
    hosts,
    listener,
    route,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# ---------------------------------------------------------------------------------------------
# One change, in every order


@pytest.mark.spec("A74-05", "A74-16", "A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations(KINDS)])
def test_change_is_met_as_a_whole_in_whatever_order_its_parts_come(order: str) -> None:
    world = TornWorld()
    for count, kind in enumerate(order, 1):
        world.hear(world.part(kind, 1))
        world.expect(1 if count == len(KINDS) else 0)
    world.finish()


@pytest.mark.spec("A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations(KINDS)])
def test_parts_that_are_heard_in_one_turn_are_one_change(order: str) -> None:
    """Also under the same name of routes, where the listener alone would be complete."""
    registries, spies = spying("xds_cluster_manager_experimental")
    world = TornWorld(routes="routes", registries=registries)
    updates = spies["xds_cluster_manager_experimental"].updates
    before = len(updates)
    world.hear(*(world.part(kind, 1) for kind in order))
    world.expect(1)
    configs = [each.attributes.get(XDS_CONFIG) for each in updates[before:]]
    assert configs
    assert all(config is configs[0] for config in configs)
    world.finish()


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", ["".join(each) for each in permutations("RCE")])
def test_new_routes_wait_for_their_cluster(order: str) -> None:
    """The listener stays: a change of routes, cluster and endpoints only."""
    world = TornWorld(routes="routes")
    world.hear(listener("routes", http_filters=(HttpFilter("f", FILTER, 0),)))
    cap = hosts(host(route("cluster-1", timeout_s=timeout_of(0))), name="routes")
    parts = {"R": cap, "C": cluster("cluster-1"), "E": endpoints("cluster-1", address_of(1))}
    for count, kind in enumerate(order, 1):
        world.hear(parts[kind])
        if count < len(order):
            world.expect(0)
    served = world.mesh.serve()
    assert served == address_of(1)


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", ["CE", "EC"])
def test_cluster_that_moves_to_another_service_moves_when_its_endpoints_are_there(
    order: str,
) -> None:
    world = MeshWorld()
    world.start(hosts(host(route("c"))), eds("c", "old"), endpoints("old", address_of(0)))
    parts = {"C": eds("c", "new"), "E": endpoints("new", address_of(1))}
    world.say(parts[order[0]])
    assert world.serve() == address_of(0)
    world.say(parts[order[1]])
    assert world.serve() == address_of(1)


# ---------------------------------------------------------------------------------------------
# Two changes that overlap


def interleavings() -> Iterable[str]:
    """All ways for parts of two changes to come, each in its order; capitals are the first."""
    places = range(2 * len(KINDS))
    for chosen in combinations(places, len(KINDS)):
        first, second = iter(KINDS), iter(KINDS.lower())
        yield "".join(next(first if place in chosen else second) for place in places)


def play(order: Sequence[str]) -> None:
    """Deliver parts of two changes, with RPCs in between; what is complete is in force."""
    world = TornWorld(generations=3)
    arrived: dict[int, set[str]] = {1: set(), 2: set()}
    expected, listened = 0, 0
    for letter in order:
        generation = 1 if letter.isupper() else 2
        arrived[generation].add(letter.upper())
        world.hear(world.part(letter.upper(), generation))
        if letter.upper() == "L":
            listened = generation
        if listened and len(arrived[listened]) == len(KINDS):
            expected = listened
        world.expect(expected)
    world.finish()


@pytest.mark.spec("A74-16", "A74-17")
@pytest.mark.parametrize("order", sorted(set(interleavings())))
def test_overlapping_changes_are_each_met_as_a_whole_or_skipped(order: str) -> None:
    if order.index("L") < order.index("l"):
        play(order)
    else:
        # The control plane has one listener at a time: the second one is the newer.
        play(order.swapcase())


@pytest.mark.spec("A74-17")
@settings(max_examples=60)
@given(st.permutations("LRCElrce").filter(lambda order: order.index("L") < order.index("l")))
def test_overlapping_changes_in_any_order(order: Sequence[str]) -> None:
    play(order)


# ---------------------------------------------------------------------------------------------
# Clusters that go away


@pytest.mark.spec("A74-18")
@pytest.mark.parametrize("order", list(permutations(("no C", "no E", "C", "E"))))
def test_loss_of_the_old_cluster_fails_nothing_while_the_new_one_loads(
    order: tuple[str, ...],
) -> None:
    world = TornWorld()
    world.hear(world.part("L", 1))
    world.expect(0)
    world.hear(world.part("R", 1))
    world.expect(0)
    steps: dict[str, Callable[[], None]] = {
        "no C": lambda: world.lose(CDS, "cluster-0"),
        "no E": lambda: world.lose(EDS, "cluster-0"),
        "C": lambda: world.hear(world.part("C", 1)),
        "E": lambda: world.hear(world.part("E", 1)),
    }
    done: set[str] = set()
    for step in order:
        steps[step]()
        done.add(step)
        world.expect(1 if {"C", "E"} <= done else 0)
    world.finish()


@pytest.mark.spec("A74-18")
def test_loss_of_the_old_cluster_is_felt_if_nothing_replaces_it() -> None:
    world = TornWorld()
    world.lose(CDS, "cluster-0")
    _, observer = world.mesh.call()
    assert 'cluster "cluster-0"' in observer.status.details
    world.hear(*(world.part(kind, 1) for kind in KINDS))
    world.expect(1)


# ---------------------------------------------------------------------------------------------
# Changes that take their time


@pytest.mark.spec("A74-05", "A74-16")
@pytest.mark.parametrize("missing", KINDS[1:])
def test_old_config_serves_at_full_speed_as_long_as_a_part_is_missing(missing: str) -> None:
    world = TornWorld()
    world.hear(*(world.part(kind, 1) for kind in KINDS if kind != missing))
    for _ in range(60):
        world.expect(0)
        world.mesh.clock.advance(0.2)
    world.hear(world.part(missing, 1))
    world.expect(1)


@pytest.mark.spec("A74-16")
def test_endless_stream_of_incomplete_changes_is_never_felt() -> None:
    world = TornWorld(generations=200)
    for generation in range(1, 199):
        for kind in "LRC":
            world.hear(world.part(kind, generation))
        world.expect(0)
    world.hear(*(world.part(kind, 199) for kind in KINDS))
    world.expect(199)
    assert world.mesh.watches.names(RDS) == {"routes-199"}
    world.finish()


def test_names_are_what_the_marks_say() -> None:
    """The vocabulary itself: a mix would be seen."""
    world = TornWorld()
    world.hear(listener("routes-0", http_filters=(HttpFilter("f", FILTER, 1),)))
    with pytest.raises(AssertionError, match="cluster of another"):
        world.call()
    slow = hosts(host(route("cluster-0", timeout_s=99.0)), name="routes-0")
    world.hear(world.part("L", 0), slow)
    with pytest.raises(AssertionError, match="time limit of another"):
        world.call()
