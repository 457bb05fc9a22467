"""Findings of `proxyless lint --for grpcio` and `--for envoy` are true.

Each test checks one finding with the peer itself, and that lint reports it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from proxyless.assembly import Registries
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    ControlPlane,
    Locality,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    socket_listener,
    use_http2,
)
from proxyless.observe import Audience, LintContext, Severity, lint_message
from tests.interop.drop_in import Untyped, stop_server
from tests.worlds.envoy import running_envoy
from tests.worlds.grpcio_peers import WHERE, NamedBackend, call_unary, grpcio_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from proxyless.protos import Proto

# The first test may have to download Envoy.
pytestmark = pytest.mark.timeout(360)

LB = "envoy.extensions.load_balancing_policies"


def remark(message: Proto, audience: Audience, path: str) -> Severity | None:
    """The severity of lint's finding about this field for this client; None without one."""
    known = Registries()
    context = LintContext(known.policies, known.filters)
    for finding in lint_message(message, context, frozenset({audience})):
        if (finding.audience, finding.path) == (audience, path):
            return finding.severity
    return None


# grpcio


def mesh(cluster: Proto, assignment: Proto, *routes: Proto) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", *(routes or (route(cluster=cluster.name),))),
            cluster,
            assignment,
        ]
    )


def with_policies(*names: str) -> Proto:
    cluster = eds_cluster("pool")
    for name in names:
        entry = cluster.load_balancing_policy.policies.add().typed_extension_config
        entry.name = name
        entry.typed_config.type_url = f"type.googleapis.com/{LB}.{name}"
    return cluster


@pytest.mark.parametrize(
    ("cluster", "path", "severity"),
    [
        (eds_cluster("pool", lb_policy="LEAST_REQUEST"), "lb_policy", Severity.ERROR),
        (with_policies("random.v3.Random"), "load_balancing_policy.policies[0]", Severity.WARNING),
        (
            with_policies("least_request.v3.LeastRequest"),
            "load_balancing_policy.policies[0]",
            Severity.WARNING,
        ),
    ],
)
async def test_grpcio_refuses_a_policy(
    two: list[NamedBackend], cluster: Proto, path: str, severity: Severity
) -> None:
    assert remark(cluster, Audience.GRPCIO, path) is severity
    snapshot = mesh(cluster, endpoints("pool", [two[0].address]))
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
    ):
        [failure] = await client.call()
        assert failure.startswith("UNAVAILABLE")
        await control_plane.wait_for_nack(CLUSTER)


async def test_grpcio_skips_a_policy_if_another_follows(two: list[NamedBackend]) -> None:
    cluster = with_policies("random.v3.Random", "round_robin.v3.RoundRobin")
    snapshot = mesh(cluster, endpoints("pool", [two[0].address]))
    # round_robin of a cluster ignores localities; grpcio accepts it.
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
    ):
        assert await client.call() == {"a": 1}
        assert not control_plane.nacks


@asynccontextmanager
async def slow_server(delay_s: float) -> AsyncIterator[str]:
    async def answer(_request: bytes, _context: Untyped) -> bytes:
        await asyncio.sleep(delay_s)
        return b"slow"

    handlers = {"Where": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Mesh", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await stop_server(server)


async def test_grpcio_ignores_the_timeout_of_a_route() -> None:
    quick = route(cluster="pool")
    quick.route.timeout.FromMilliseconds(50)
    path = "virtual_hosts[0].routes[0].route.timeout"
    assert remark(route_config("r", quick), Audience.GRPCIO, path) is Severity.WARNING
    async with slow_server(0.5) as address:
        snapshot = mesh(eds_cluster("pool"), endpoints("pool", [address]), quick)
        async with (
            ControlPlane(snapshot) as control_plane,
            grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
        ):
            assert await client.call() == {"slow": 1}


# Envoy


def proxied(cluster: Proto, assignment: Proto) -> Snapshot:
    return Snapshot.of(
        [
            socket_listener("in", "127.0.0.1:0", "routes"),
            route_config("routes", route(cluster=cluster.name)),
            cluster,
            assignment,
        ]
    )


async def test_envoy_refuses_a_second_category_of_drops(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    assignment = endpoints("pool", [two[0].address], drops={"x": 0.1, "y": 0.1})
    assert remark(assignment, Audience.ENVOY, "policy.drop_overloads") is Severity.ERROR
    snapshot = proxied(use_http2(eds_cluster("pool")), assignment)
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path),
    ):
        assert "drop" in (await control_plane.wait_for_nack(ENDPOINTS)).message


async def test_envoy_uses_http1_unless_http2_is_configured(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    path = "typed_extension_protocol_options"
    assert remark(eds_cluster("pool"), Audience.ENVOY, path) is Severity.WARNING
    assert remark(use_http2(eds_cluster("pool")), Audience.ENVOY, path) is None
    snapshot = proxied(eds_cluster("pool"), endpoints("pool", [two[0].address]))
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert (await call_unary(channel)).startswith("UNAVAILABLE")


async def test_envoy_ignores_an_api_listener_of_a_control_plane(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    message = listener("api", "routes")
    assert remark(message, Audience.ENVOY, "api_listener") is Severity.WARNING
    cluster = use_http2(eds_cluster("pool"))
    snapshot = proxied(cluster, endpoints("pool", [two[0].address])).with_(message)
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
    ):
        await envoy.find_listener("in")
        assert set(envoy.list_listeners()) == {"in"}


async def test_envoy_uses_weights_of_localities_only_if_configured(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    heavy, light = Locality("a", weight=99), Locality("b")
    assignment = endpoints("pool", {heavy: [two[0].address], light: [two[1].address]})
    path = "endpoints[0].load_balancing_weight"
    assert remark(assignment, Audience.ENVOY, path) is Severity.NOTE
    snapshot = proxied(use_http2(eds_cluster("pool")), assignment)
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        served = Counter([await call_unary(channel, WHERE) for _ in range(100)])
    assert served["b"] > 25


async def test_envoy_interprets_upstream_config_differently(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    cluster = use_http2(eds_cluster("pool"))
    cluster.upstream_config.name = "options"
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    cluster.upstream_config.typed_config.type_url = f"type.googleapis.com/{name}"
    assert remark(cluster, Audience.ENVOY, "upstream_config") is Severity.WARNING
    snapshot = proxied(cluster, endpoints("pool", [two[0].address]))
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert await call_unary(channel) == "a"
        assert "invalid factory type" in (tmp_path / "envoy.log").read_text()
