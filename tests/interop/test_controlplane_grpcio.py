"""grpcio's xDS client as a client of our control plane.

The client and the backends are grpcio's. The client is a process of its own (`grpcio_peers`).
"""

from collections.abc import AsyncIterator, Sequence

import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    NackedError,
    ServiceOptions,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    simple_mesh,
)
from proxyless.protos import Proto
from tests.worlds.grpcio_peers import NamedBackend, backends, grpcio_client

TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG)
TARGET = "xds:///api"
PORT_OF_NOBODY = "127.0.0.1:1"


@pytest.fixture
async def three() -> AsyncIterator[list[NamedBackend]]:
    async with backends("a", "b", "c") as started:
        yield started


def mesh_of(backends: Sequence[NamedBackend], *routes: Proto) -> Snapshot:
    """A cluster for each backend, with its name, and these routes."""
    return Snapshot.of(
        [
            listener("api", "api-routes"),
            route_config("api-routes", *routes),
            *(eds_cluster(backend.name) for backend in backends),
            *(endpoints(backend.name, [backend.address]) for backend in backends),
        ]
    )


async def wait_for_all_acks(control_plane: ControlPlane) -> None:
    for type_url in TYPES:
        await control_plane.wait_for_ack(type_url)


# Routing


async def test_rpcs_are_routed_by_path_and_by_header(three: list[NamedBackend]) -> None:
    snapshot = mesh_of(
        three,
        route(path="/test.Mesh/Other", cluster="b"),
        route(headers={"who": "c"}, cluster="c"),
        route(cluster="a"),
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        assert await client.call("/test.Mesh/Other") == {"b": 1}
        assert await client.call(metadata={"who": "c"}) == {"c": 1}
        assert await client.call(metadata={"who": "d"}) == {"a": 1}
        await wait_for_all_acks(control_plane)
        assert not control_plane.nacks


async def test_weights_of_clusters_are_kept(three: list[NamedBackend]) -> None:
    snapshot = mesh_of(three, route(weighted={"a": 3, "b": 1}))
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        counts = await client.call(count=400)
    assert set(counts) == {"a", "b"}
    # Seven standard deviations to either side.
    assert 240 <= counts["a"] <= 360


async def test_an_aggregate_fails_over_to_its_next_cluster(three: list[NamedBackend]) -> None:
    snapshot = mesh_of(three[:2], route(cluster="a"))
    snapshot = snapshot.with_(
        aggregate_cluster("both", ["a", "b"]), route_config("api-routes", route(cluster="both"))
    )
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call(count=5) == {"a": 5}
        control_plane.set_snapshot(control_plane.snapshot.with_(endpoints("a", [PORT_OF_NOBODY])))
        await control_plane.wait_for_ack(ENDPOINTS)
        await client.call_until("b")
        assert await client.call(count=5) == {"b": 5}


# Changes


async def test_no_rpc_fails_while_everything_is_replaced(three: list[NamedBackend]) -> None:
    meshes = [simple_mesh("api", {backend.name: [backend.address]}) for backend in three]
    async with (
        ControlPlane(meshes[0]) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        await client.start_load()
        for number in range(1, 13):
            control_plane.set_snapshot(control_plane.snapshot.replaced(meshes[number % 3]))
            await wait_for_all_acks(control_plane)
            await client.call_until(three[number % 3].name)
        counts = await client.stop_load()
    assert set(counts) == {"a", "b", "c"}


async def test_no_rpc_fails_while_endpoints_come_and_go(three: list[NamedBackend]) -> None:
    everywhere = {"pool": [backend.address for backend in three]}
    async with (
        ControlPlane(simple_mesh("api", everywhere)) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call()
        await client.start_load()
        for number in range(12):
            kept = [backend.address for backend in three if backend is not three[number % 3]]
            snapshot = control_plane.snapshot.with_(endpoints("pool", kept))
            control_plane.set_snapshot(snapshot)
            await control_plane.wait_for_ack(ENDPOINTS)
        counts = await client.stop_load()
    assert set(counts) == {"a", "b", "c"}


async def test_no_rpc_fails_while_the_control_plane_restarts(three: list[NamedBackend]) -> None:
    async with (
        ControlPlane(simple_mesh("api", {"a": [three[0].address]})) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        await client.start_load()
        port = control_plane.port
        await control_plane.stop()
        assert control_plane.streams == ()
        changed = control_plane.snapshot.with_(endpoints("a", [three[1].address]))
        control_plane.set_snapshot(changed)
        await control_plane.start()
        assert control_plane.port == port
        await control_plane.wait_for_ack(ENDPOINTS)
        await client.call_until("b")
        counts = await client.stop_load()
    assert set(counts) <= {"a", "b"}


async def test_no_rpc_fails_when_the_control_plane_comes_back_with_other_clusters(
    three: list[NamedBackend],
) -> None:
    """grpcio requests the types in any order, which differs between processes."""
    one, other = ({"a": [three[0].address]}, {"b": [three[1].address]})
    async with (
        ControlPlane(simple_mesh("api", one)) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        await client.start_load()
        await control_plane.stop()
        control_plane.set_snapshot(simple_mesh("api", other))
        await control_plane.start()
        await client.call_until("b")
        counts = await client.stop_load()
    assert set(counts) <= {"a", "b"}


async def test_nack_is_recorded_and_the_last_good_state_stays_in_use(
    three: list[NamedBackend],
) -> None:
    async with (
        ControlPlane(simple_mesh("api", {"a": [three[0].address]})) as control_plane,
        grpcio_client(control_plane.bootstrap("edge-7"), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        bad = eds_cluster("a", lb_policy="MAGLEV")
        control_plane.set_snapshot(control_plane.snapshot.with_(bad))
        nack = await control_plane.wait_for_nack(CLUSTER)
        assert (nack.node_id, nack.version) == ("edge-7", "2")
        assert "lb_policy" in nack.message
        with pytest.raises(NackedError, match=r"edge-7.*cluster version '2' refused"):
            await control_plane.wait_for_ack(CLUSTER)
        assert await client.call() == {"a": 1}
        control_plane.set_snapshot(control_plane.snapshot.with_(eds_cluster("a")))
        await control_plane.wait_for_ack(CLUSTER, "3")


# Faults on purpose


async def test_withheld_type_is_sent_when_it_is_released(three: list[NamedBackend]) -> None:
    async with (
        ControlPlane(simple_mesh("api", {"a": [three[0].address]})) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        control_plane.withhold(ENDPOINTS)
        control_plane.set_snapshot(
            control_plane.snapshot.with_(eds_cluster("a"), endpoints("a", [three[1].address]))
        )
        assert await client.call(count=20) == {"a": 20}
        control_plane.release()
        await control_plane.wait_for_ack(ENDPOINTS, "2")
        await client.call_until("b")


async def test_client_opens_a_new_stream_when_one_is_broken(three: list[NamedBackend]) -> None:
    async with (
        ControlPlane(simple_mesh("api", {"a": [three[0].address]})) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        [before] = control_plane.streams
        control_plane.break_streams()
        await control_plane.wait_for_streams(0)
        await control_plane.wait_for_streams(1)
        assert control_plane.streams[0] is not before
        await wait_for_all_acks(control_plane)
        assert await client.call() == {"a": 1}


# Other features


async def test_client_that_supports_wrapped_resources_gets_them(three: list[NamedBackend]) -> None:
    options = ServiceOptions(can_wrap=True)
    snapshot = simple_mesh("api", {"a": [three[0].address]})
    async with (
        ControlPlane(snapshot, options=options) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        [stream] = control_plane.streams
        assert "xds.config.resource-in-sotw" in stream.node.client_features


async def test_load_is_reported(three: list[NamedBackend]) -> None:
    cluster = eds_cluster("a")
    cluster.lrs_server.self.SetInParent()
    snapshot = simple_mesh("api", {"a": [three[0].address]}).with_(cluster)
    async with (
        ControlPlane(snapshot) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET) as client,
    ):
        assert await client.call(count=7) == {"a": 7}
        report = await control_plane.wait_for_load_report()
    [stats] = report.cluster_stats
    assert stats.cluster_name == "a"
    assert sum(group.total_successful_requests for group in stats.upstream_locality_stats) == 7


async def test_each_node_has_a_mesh_of_its_own(three: list[NamedBackend]) -> None:
    meshes = {backend.name: simple_mesh("api", {"pool": [backend.address]}) for backend in three}
    async with (
        ControlPlane(lambda node: meshes[node.id]) as control_plane,
        grpcio_client(control_plane.bootstrap("b"), TARGET) as client_of_b,
        grpcio_client(control_plane.bootstrap("c"), TARGET) as client_of_c,
    ):
        assert await client_of_b.call() == {"b": 1}
        assert await client_of_c.call() == {"c": 1}
