"""A mesh whose generations are marked, and RPCs that see whether they meet two of them.

A generation is one listener, one route configuration, one cluster and its endpoints, each with
a mark that an RPC carries away: the filter's config, the time limit, the backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.assembly import Registries
from proxyless.base import OK
from proxyless.xds.resources import HttpFilter
from tests.spec.mesh_world import MeshWorld
from tests.spec.xds_world import (
    CDS,
    EDS,
    NOT_FOUND,
    RDS,
    FakeType,
    cluster,
    endpoints,
    host,
    hosts,
    listener,
    route,
    set_resource,
)

if TYPE_CHECKING:
    from proxyless.channel import Call
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


@dataclass(eq=False)
class Rpc:
    """What one RPC met."""

    generation: int
    call: Call
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
        call, observer = self.mesh.call()
        assert observer.is_running, f"failed: {observer.ends}"
        new = [pair for pair in self._streams() if id(pair[1]) not in before]
        assert len(new) == 1, "it waits"
        [(served_by, stream)] = new
        generation = self.marks.seen[-1]
        assert isinstance(generation, int)
        assert served_by == generation, "filters of one generation, cluster of another"
        limit_s = timeout_sent_s(stream)
        assert limit_s == pytest.approx(timeout_of(generation)), "time limit of another generation"
        self.rpcs.append(Rpc(generation, call, observer, stream))
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
