"""Mesh whose generations are marked, to detect an RPC that uses two of them.

A generation is one listener, one route configuration, one cluster and its endpoints. Each has a
mark that is visible in an RPC: the filter's config, the timeout, the backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.assembly import Registries
from proxyless.xds.resources import HttpFilter
from tests.worlds.meshes import MeshWorld, StartedRpc
from tests.worlds.xds_dependencies import CDS, EDS, RDS, set_resource
from tests.worlds.xds_resources import cluster, endpoints, host, hosts, listener, route

if TYPE_CHECKING:
    from proxyless.runtime import Random
    from proxyless.xds.filters.rpc_filter import RoutedRpc
    from tests.worlds.channels import FakeStream

FILTER = "test.Filter"
KINDS = "LRCE"


def address_of(generation: int) -> str:
    return f"10.0.0.{generation + 1}:80"


def timeout_of(generation: int) -> float:
    """Return the timeout of the generation's routes, in seconds."""
    return 100.0 + generation


def resource_of(kind: str, generation: int, routes: str | None = None) -> object:
    """Return the listener, routes, cluster or endpoints of a generation."""
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
    """Filter that records its config for each RPC."""

    config_types = (FILTER,)
    override_types: tuple[str, ...] = ()
    is_terminal = False

    def __init__(self) -> None:
        self.configs: list[object] = []

    def parse_config(self, message: object, errors: object) -> object:
        raise AssertionError("no resource is decoded")

    parse_override = parse_config

    def create(self, config: object, override: object, random: Random) -> Any:  # noqa: ANN401
        configs = self.configs

        class Filter:
            def on_rpc(self, rpc: RoutedRpc) -> None:
                configs.append(config)

        return Filter()


@dataclass(frozen=True, eq=False)
class GenerationRpc(StartedRpc):
    """RPC, and the generation that it used."""

    generation: int


@dataclass
class GenerationsWorld:
    """Mesh that starts with generation 0, and its RPCs."""

    routes: str | None = None
    registries: Registries = field(default_factory=Registries)
    mesh: MeshWorld = field(init=False)
    rpcs: list[GenerationRpc] = field(default_factory=list)

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
        """A new RPC is sent at once, and uses only this generation."""
        assert self.start_rpc().generation == generation

    def start_rpc(self) -> GenerationRpc:
        """Start an RPC, which must be sent at once and use one generation."""
        rpc = self.mesh.start_rpc()
        generation = self.marks.configs[-1]
        assert isinstance(generation, int)
        assert rpc.address == address_of(generation), "filters and cluster of two generations"
        sent_s = timeout_sent_s(rpc.stream)
        assert sent_s == pytest.approx(timeout_of(generation)), "timeout of another generation"
        found = GenerationRpc(rpc.call, rpc.observer, rpc.address, rpc.stream, generation)
        self.rpcs.append(found)
        return found

    def expect_end(self) -> None:
        """All RPCs succeed, none used an older generation, and only the last one is left."""
        for rpc in self.rpcs:
            self.mesh.complete(rpc)
        generations = [rpc.generation for rpc in self.rpcs]
        assert generations == sorted(generations), "an RPC went back to an older generation"
        last = generations[-1]
        assert self.mesh.children == {f"cluster-{last}"}
        assert self.mesh.in_use(f"cluster-{last}") == 1
        assert self.mesh.watches.names(CDS) == {f"cluster-{last}"}
        assert self.mesh.watches.names(EDS) == {f"cluster-{last}"}
        assert len(self.mesh.watches.names(RDS)) == 1


def timeout_sent_s(stream: FakeStream) -> float:
    """Return the timeout in the request headers."""
    found = re.search(rb"grpc-timeout.([0-9]+)([HMSmun])", stream.block, re.DOTALL)
    assert found is not None, "the RPC has no timeout"
    units = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
    return int(found[1]) * units[found[2]]
