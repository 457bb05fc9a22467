"""Meshes for tests of rehearsals: two zones, the second with a lower priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from proxyless.base import ValidationErrors
from proxyless.controlplane import (
    Locality,
    Resource,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.sim.rehearsal import Mesh, Report, parse_script, rehearse

if TYPE_CHECKING:
    from proxyless.protos import Proto

A1, A2, B1 = "10.1.0.1:80", "10.1.0.2:80", "10.2.0.1:80"


def mesh_of(*messages: Proto) -> Mesh:
    return Mesh.of(map(Resource.of, messages))


def two_zones(**places: Any) -> Mesh:  # noqa: ANN401 - as `endpoints` takes them
    """`xds:///shop` is cluster `cart`: zone a, and zone b with a lower priority."""
    where = places or {"a": [A1, A2], "b": [B1]}
    by_locality: dict[Any, Any] = {
        Locality(zone, priority=number): found for number, (zone, found) in enumerate(where.items())
    }
    return mesh_of(
        listener("shop", [route(cluster="cart")]),
        eds_cluster("cart"),
        endpoints("cart", by_locality),
    )


def run(text: str, *meshes: Mesh) -> Report:
    """The report of a script in YAML, by default with two zones."""
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    report = rehearse(script, meshes or (two_zones(),), errors)
    assert report is not None, str(errors)
    return report


def problems(text: str, *meshes: Mesh) -> list[tuple[str, str]]:
    """The errors of a script with these meshes."""
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    assert errors.ok, str(errors)
    assert rehearse(script, meshes or (two_zones(),), errors) is None
    return list(errors.items())
