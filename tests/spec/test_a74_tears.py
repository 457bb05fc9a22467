"""A74: does an RPC ever meet half of a change?

A generation of the mesh is one listener, one route configuration, one cluster and its endpoints,
each with a mark that an RPC carries away: the filter's config, the time limit, the backend. The
resources of the next generation come in every order, with RPCs before, between and after them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.assembly import Registries
from proxyless.base import OK
from proxyless.xds.attributes import XDS_CONFIG
from proxyless.xds.resources import HttpFilter
from tests.spec.mesh_world import MeshWorld, spying
from tests.spec.xds_world import (
    CDS,
    EDS,
    NOT_FOUND,
    RDS,
    FakeType,
    cluster,
    eds,
    endpoints,
    host,
    hosts,
    listener,
    route,
    set_resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxyless.runtime import Random
    from proxyless.xds.filters.calls import RoutedRpc
    from tests.spec.channel_world import FakeStream, Observer

FILTER = "test.Filter"
KINDS = "LRCE"


def address_of(generation: int) -> str:
    return f"10.0.0.{generation + 1}:80"


def timeout_of(generation: int) -> float:
    """The limit of the RPCs of its routes, in seconds."""
    return 100.0 + generation


def resource_of(kind: str, generation: int, routes: str | None = None) -> object:
    """The part of a generation that is a listener, routes, a cluster or endpoints."""
    routes = routes or f"routes-{generation}"
    name = f"cluster-{generation}"
    match kind:
        case "L":
            return listener(routes, http_filters=(HttpFilter("f", FILTER, generation),))
        case "R":
            return hosts(host(route(name, timeout_s=timeout_of(generation))), name=routes)
        case "C":
            return cluster(name)
        case _:
            return endpoints(name, address_of(generation))


class MarkingFilter:
    """Notes with which config an RPC met it."""

    config_types = (FILTER,)
    override_types: tuple[str, ...] = ()
    is_terminal = False

    def __init__(self) -> None:
        self.seen: list[object] = []

    def parse_config(self, message: object, errors: object) -> object:
        raise AssertionError("nothing is decoded here")

    parse_override = parse_config

    def create(self, config: object, override: object, random: Random) -> Any:  # noqa: ANN401
        seen = self.seen

        class Filter:
            def on_rpc(self, rpc: RoutedRpc) -> None:
                seen.append(config)

        return Filter()


@dataclass
class Rpc:
    """What one RPC met."""

    generation: int
    observer: Observer
    stream: FakeStream


@dataclass
class TornWorld:
    """A mesh in its first generation, and RPCs that look for tears."""

    generations: int = 2
    routes: str | None = None
    registries: Registries = field(default_factory=Registries)
    mesh: MeshWorld = field(init=False)
    rpcs: list[Rpc] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = MarkingFilter()
        self.mesh = MeshWorld(self.registries.extended(filters=[self.marks]))
        for kind in KINDS:
            set_resource(self.mesh.watches, self.part(kind, 0))
        self.mesh.channel.request_connection()
        self.mesh.settle()
        self.expect(0)

    def part(self, kind: str, generation: int) -> object:
        return resource_of(kind, generation, self.routes)

    def expect(self, generation: int) -> None:
        """A new RPC is sent at once, and all of it is of this generation."""
        assert self.call().generation == generation

    def call(self) -> Rpc:
        """A new RPC: it is sent at once, and all that it meets is of one generation."""
        before = {id(stream) for _, stream in self._streams()}
        _, observer = self.mesh.call()
        assert observer.is_running, f"failed: {observer.ends}"
        new = [pair for pair in self._streams() if id(pair[1]) not in before]
        assert len(new) == 1, "it waits"
        [(served_by, stream)] = new
        generation = self.marks.seen[-1]
        assert isinstance(generation, int)
        assert served_by == generation, "filters of one generation, cluster of another"
        limit_s = timeout_sent_s(stream)
        assert limit_s == pytest.approx(timeout_of(generation)), "time limit of another generation"
        self.rpcs.append(Rpc(generation, observer, stream))
        return self.rpcs[-1]

    def _streams(self) -> list[tuple[int, FakeStream]]:
        return [
            (number, stream)
            for number in range(self.generations)
            for stream in self.mesh.streams(address_of(number))
        ]

    def hear(self, *resources: object) -> None:
        """The control plane says these, in one turn."""
        self.mesh.say(*resources)

    def lose(self, resource_type: FakeType, name: str) -> None:
        self.mesh.watches.put(resource_type, name, NOT_FOUND)
        self.mesh.settle()

    def finish(self) -> None:
        """Nothing failed, nothing went back, nothing is left of old generations."""
        for rpc in self.rpcs:
            rpc.stream.answer()
            self.mesh.settle()
            assert rpc.observer.status == OK
        generations = [rpc.generation for rpc in self.rpcs]
        assert generations == sorted(generations), "an RPC went back to an older generation"
        last = generations[-1]
        assert self.mesh.children == {f"cluster-{last}"}
        assert self.mesh.in_use(f"cluster-{last}") == 1
        assert self.mesh.watches.names(CDS) == {f"cluster-{last}"}
        assert self.mesh.watches.names(EDS) == {f"cluster-{last}"}
        assert len(self.mesh.watches.names(RDS)) == 1


def timeout_sent_s(stream: FakeStream) -> float:
    """What the server is told."""
    found = re.search(rb"grpc-timeout.([0-9]+)([HMSmun])", stream.block, re.DOTALL)
    assert found is not None, "the RPC has a time limit"
    units = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
    return int(found[1]) * units[found[2]]


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
    assert "CDS resource cluster-0" in observer.status.details
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
