"""A mesh in the short form for this client, grpcio and Envoy: all route and fail over alike."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio
import pytest

import proxyless.aio
from proxyless.base import ValidationErrors
from proxyless.controlplane import ControlPlane, Snapshot, endpoints, lb_endpoint
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.for_envoy import adapt_for_envoy
from tests.worlds.envoy import running_envoy
from tests.worlds.grpcio_peers import call_unary, grpcio_client
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from proxyless.controlplane import Resource
    from tests.interop.drop_in import Untyped
    from tests.worlds.grpcio_peers import NamedBackend

# Envoy may have to be downloaded.
pytestmark = pytest.mark.timeout(360)

MESH = """\
service: api
routes:
- match: {headers: {ring: beta}}
  to: beta
  timeout: 5s
- match: /test.Mesh/Broken
  to: both
  timeout: 5s
  fault: {abort: RESOURCE_EXHAUSTED}
- match: /test.Mesh/
  to: both
  timeout: 5s
  retry: {codes: [unavailable], times: 2}
clusters:
  both: {aggregate: [a, b]}
  a:
    endpoints: [{zone: x, addresses: ["ADDRESS_A"]}]
    outlier_detection: {interval: 5s, failure_percentage: {threshold: 80, minimum_hosts: 2}}
    circuit_breaker: {max_requests: 100}
    session: {idle_timeout: 1m}
  b: {endpoints: [{zone: y, addresses: [{address: "ADDRESS_B"}]}]}
  beta: {endpoints: ["ADDRESS_B"], policy: ring_hash}
"""


def make_mesh(two: list[NamedBackend], mesh: str = MESH) -> list[Resource]:
    errors = ValidationErrors()
    text = mesh.replace("ADDRESS_A", two[0].address).replace("ADDRESS_B", two[1].address)
    found = [resource for _, resource in parse_documents(text, errors)]
    errors.raise_if_any("mesh")
    return found


async def check_routes(channel: Untyped) -> None:
    assert await call_unary(channel) == "a"
    assert await call_unary(channel, ring="beta") == "b"
    broken = await call_unary(channel, "/test.Mesh/Broken")
    assert broken.startswith("RESOURCE_EXHAUSTED")


async def call_until_b(channel: Untyped) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await call_unary(channel) != "b":
            pass


async def test_this_client_routes_and_fails_over(two: list[NamedBackend]) -> None:
    async with (
        ControlPlane(Snapshot.of(make_mesh(two))) as control_plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=control_plane.bootstrap()
        ) as channel,
    ):
        await check_routes(channel)
        await two[0].leave()
        await call_until_b(channel)
        assert not control_plane.nacks


async def test_client_of_grpcio_routes_and_fails_over(two: list[NamedBackend]) -> None:
    async with (
        ControlPlane(Snapshot.of(make_mesh(two))) as control_plane,
        grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
    ):
        assert await client.call() == {"a": 1}
        assert await client.call(metadata={"ring": "beta"}) == {"b": 1}
        [broken] = await client.call("/test.Mesh/Broken")
        assert broken.startswith("RESOURCE_EXHAUSTED")
        await two[0].leave()
        await client.call_until("b")
        assert not control_plane.nacks


async def test_envoy_routes_and_fails_over(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    adapted = adapt_for_envoy(make_mesh(two), "127.0.0.1:0")
    async with (
        ControlPlane(Snapshot.of(adapted)) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("api")) as channel,
    ):
        await check_routes(channel)
        # Envoy leaves an endpoint for its health, and not because it cannot be reached.
        unhealthy = endpoints("a", [lb_endpoint(two[0].address, health="UNHEALTHY")])
        control_plane.set_snapshot(control_plane.snapshot.with_(unhealthy))
        await call_until_b(channel)
        assert not control_plane.nacks


SHARED_LEAF = """\
service: api
routes:
- {match: {headers: {ring: beta}}, to: b}
- {to: both}
clusters:
  both: {aggregate: [a, b]}
  a: {endpoints: ["ADDRESS_A"]}
  b: {endpoints: ["ADDRESS_B"]}
"""


async def test_leaf_that_a_route_names_is_used_by_this_client_and_not_by_grpcio(
    two: list[NamedBackend],
) -> None:
    async with (
        ControlPlane(Snapshot.of(make_mesh(two, SHARED_LEAF))) as control_plane,
        grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=control_plane.bootstrap()
        ) as channel,
    ):
        assert await client.call() == {"a": 1}
        await two[0].leave()
        await call_until_b(channel)
        [answer] = await client.call()
        assert answer.startswith("UNAVAILABLE: connections to all backends failing")
