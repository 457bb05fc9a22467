"""Does a real Envoy take what our control plane gives it?

Listeners, routes, clusters and endpoints all come over ADS; requests go through Envoy to grpcio's
servers. Envoy comes from its wheel (tools/envoy_env.py): only if pip cannot install that are these
tests skipped.
"""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import grpc.aio
import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    route,
    route_config,
    socket_listener,
    use_http2,
)
from proxyless.protos import Proto
from tests.interop.drop_in import Untyped
from tests.interop.mesh_world import WHO, NamedBackend
from tests.transport_world import PATIENCE_S, until

TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG)
WORKERS = 5
# The first test may have to download 37 MB.
pytestmark = pytest.mark.timeout(360)


def envoy_config(control_plane: ControlPlane) -> dict[str, Any]:
    """Nothing but where the control plane is."""
    ads = {"ads": {}, "resource_api_version": "V3"}
    host, _, port = control_plane.address.rpartition(":")
    place = {"socket_address": {"address": host, "port_value": int(port)}}
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    cluster = {
        "name": "control-plane",
        "type": "STATIC",
        "typed_extension_protocol_options": {http2["@type"].partition("/")[2]: http2},  # type: ignore[attr-defined]
        "load_assignment": {
            "cluster_name": "control-plane",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}],
        },
    }
    ads_config = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}],
    }
    return {
        "node": {"id": "envoy-1", "cluster": "test"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {"ads_config": ads_config, "cds_config": ads, "lds_config": ads},
        "static_resources": {"clusters": [cluster]},
    }


class Envoy:
    """A running Envoy."""

    def __init__(self, admin_path: Path) -> None:
        self._admin_path = admin_path

    async def find_listener(self, name: str) -> str:
        """Where it listens, once it does: it has a port before it accepts connections there."""

        def accepts() -> bool:
            host, _, port = self.list_listeners().get(name, "").rpartition(":")
            if not host:
                return False
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        await until(accepts, f"Envoy to accept connections at {name!r}")
        return self.list_listeners()[name]

    def list_listeners(self) -> dict[str, str]:
        if not self._admin_path.exists() or not (admin := self._admin_path.read_text()):
            return {}
        with urlopen(f"http://{admin}/listeners?format=json", timeout=PATIENCE_S) as response:
            statuses = json.load(response).get("listener_statuses", [])
        places = {each["name"]: each["local_address"]["socket_address"] for each in statuses}
        return {name: f"{place['address']}:{place['port_value']}" for name, place in places.items()}


@asynccontextmanager
async def running_envoy(
    binary: Path, control_plane: ControlPlane, directory: Path
) -> AsyncIterator[Envoy]:
    config, admin = directory / "envoy.json", directory / "admin"
    config.write_text(json.dumps(envoy_config(control_plane)))
    options = ["--admin-address-path", str(admin), "--disable-hot-restart", "--concurrency", "1"]
    with (directory / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary), "-c", str(config), *options, "-l", "warning", stdout=log, stderr=log
        )
    try:
        yield Envoy(admin)
        assert process.returncode is None, (directory / "envoy.log").read_text()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def mesh_of(backends: list[NamedBackend], *routes: Proto) -> Snapshot:
    return Snapshot.of(
        [
            socket_listener("in", "127.0.0.1:0", "api-routes"),
            route_config("api-routes", *routes),
            *(use_http2(eds_cluster(backend.name)) for backend in backends),
            *(endpoints(backend.name, [backend.address]) for backend in backends),
        ]
    )


async def ask(channel: Untyped, path: str = WHO, **metadata: str) -> str:
    try:
        answer: bytes = await channel.unary_unary(path)(
            b"", timeout=PATIENCE_S, metadata=tuple(metadata.items())
        )
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return answer.decode()


async def test_requests_are_routed_by_path_and_header(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    snapshot = mesh_of(
        two,
        route(path="/test.Mesh/Where", cluster="b"),
        route(headers={"who": "b"}, cluster="b"),
        route(cluster="a"),
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
    ):
        assert await ask(channel) == "a"
        assert await ask(channel, "/test.Mesh/Where") == "b"
        assert await ask(channel, who="b") == "b"
        for type_url in TYPES:
            await control_plane.wait_for_ack(type_url)
        [stream] = control_plane.streams
        assert stream.node_id == "envoy-1"
        # It asks for all listeners and clusters, and for the rest by name.
        assert stream.subscriptions[LISTENER].is_wildcard
        assert stream.subscriptions[CLUSTER].is_wildcard
        assert stream.subscriptions[ROUTE_CONFIG].names == {"api-routes"}
        assert stream.subscriptions[ENDPOINTS].names == {"a", "b"}
        assert not control_plane.nacks


async def test_no_request_fails_while_clusters_are_replaced(
    binary: Path, two: list[NamedBackend], tmp_path: Path
) -> None:
    meshes = [mesh_of([backend], route(cluster=backend.name)) for backend in two]
    counts: Counter[str] = Counter()
    is_loaded = True

    async def work(channel: Untyped) -> None:
        while is_loaded:
            counts[await ask(channel)] += 1

    async with (
        ControlPlane(meshes[0]) as control_plane,
        running_envoy(binary, control_plane, tmp_path) as envoy,
        grpc.aio.insecure_channel(await envoy.find_listener("in")) as channel,
        asyncio.TaskGroup() as workers,
    ):
        assert await ask(channel) == "a"
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
        assert await ask(channel) == "a"
        # Envoy goes on to the next cluster when this one has no endpoints.
        control_plane.set_snapshot(snapshot.with_(endpoints("a", [])))
        await control_plane.wait_for_ack(ENDPOINTS)
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await ask(channel)) == "a":
                pass  # Its worker hears of it a moment after the ACK.
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
        assert await ask(channel) == "a"


async def test_a_listener_that_is_gone_is_closed(
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
