"""Metrics of a mesh on real sockets: xDS client, policies and RPCs (A66, A78, A89, A94).

They are read in another thread than the mesh's, as by exporters.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    virtual_host,
)
from proxyless.metrics.instruments import INSTRUMENTS
from proxyless.otel import OpenTelemetryPlugin
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.observed_rpcs import read_metrics
from tests.worlds.transports import PATIENCE_S

TARGET = "xds:///api"
HERE = '{region="", zone="zone-0", sub_zone=""}'


def mesh(backend: NamedBackend) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", virtual_host(route(cluster=backend.name), domains=["*"])),
            eds_cluster(backend.name),
            endpoints(backend.name, [backend.address]),
        ]
    )


async def points(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, ...], Any]:
    """The values of a metric by those of its labels; of a histogram, how many there were."""
    metric = (await asyncio.to_thread(read_metrics, reader))[name]
    return {
        tuple(str(value) for _, value in sorted((point.attributes or {}).items())): getattr(
            point, "value", getattr(point, "count", None)
        )
        for point in metric.data.data_points
    }


@pytest.mark.spec("A78-05", "A89-01", "A94-05")
async def test_a_mesh_is_measured_from_its_control_plane_to_its_rpcs() -> None:
    reader = InMemoryMetricReader()
    plugin = OpenTelemetryPlugin(
        meter_provider=MeterProvider([reader]),
        enable_metrics=[each.name for each in INSTRUMENTS],
        optional_labels=["grpc.lb.locality", "grpc.lb.backend_service"],
    )
    async with backends("orders") as (backend,), ControlPlane(mesh(backend)) as plane:
        server = plane.bootstrap()["xds_servers"]
        assert isinstance(server, list)
        uri = server[0]["server_uri"]
        async with proxyless.aio.insecure_channel(
            TARGET,
            bootstrap=plane.bootstrap(),
            registries=proxyless.Registries().extended(metrics=[plugin]),
        ) as channel:
            unary = channel.unary_unary("/shop.Cart/Add", _registered_method=True)
            for _ in range(3):
                await unary(b"item", timeout=PATIENCE_S)
            duration = await points(reader, "grpc.client.attempt.duration")
            assert duration == {("orders", HERE, "shop.Cart/Add", "OK", TARGET): 3}
            assert await points(reader, "grpc.xds_client.connected") == {(TARGET, uri): 1}
            resources = await points(reader, "grpc.xds_client.resources")
            assert resources == {
                (TARGET, "#old", "acked", f"envoy.config.{kind}"): 1
                for kind in (
                    "listener.v3.Listener",
                    "route.v3.RouteConfiguration",
                    "cluster.v3.Cluster",
                    "endpoint.v3.ClusterLoadAssignment",
                )
            }
            valid = await points(reader, "grpc.xds_client.resource_updates_valid")
            assert sum(valid.values()) >= 4
            attempts = await points(reader, "grpc.lb.pick_first.connection_attempts_succeeded")
            assert attempts == {(TARGET,): 1}
            attempts = await points(reader, "grpc.subchannel.connection_attempts_succeeded")
            assert attempts == {("orders", HERE, TARGET): 1}
            opened = await points(reader, "grpc.subchannel.open_connections")
            assert opened == {("orders", HERE, TARGET): 1}
        # The channel is closed, and its client and connections with it.
        assert await points(reader, "grpc.subchannel.open_connections") == {
            ("orders", HERE, TARGET): 0
        }
        assert "grpc.xds_client.connected" not in read_metrics(reader)


async def test_drops_of_a_cluster_are_counted_by_category() -> None:
    reader = InMemoryMetricReader()
    plugin = OpenTelemetryPlugin(
        meter_provider=MeterProvider([reader]),
        enable_metrics=["proxyless.*"],
        optional_labels=["grpc.lb.backend_service"],
    )
    async with backends("orders") as (backend,):
        assignment = endpoints(backend.name, [backend.address])
        drop = assignment.policy.drop_overloads.add(category="maintenance")
        drop.drop_percentage.numerator = 100
        resources = [
            listener("api", "routes"),
            route_config("routes", virtual_host(route(cluster=backend.name), domains=["*"])),
            eds_cluster(backend.name),
            assignment,
        ]
        async with (
            ControlPlane(Snapshot.of(resources)) as plane,
            proxyless.aio.insecure_channel(
                TARGET,
                bootstrap=plane.bootstrap(),
                registries=proxyless.Registries().extended(metrics=[plugin]),
            ) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="maintenance"):
                await channel.unary_unary("/shop.Cart/Add")(b"item", timeout=PATIENCE_S)
    drops = await points(reader, "proxyless.xds_cluster.drops")
    assert drops == {("orders", TARGET, "maintenance"): 1}


@pytest.mark.spec("A110-01", "A110-03")
async def test_the_channel_to_the_control_plane_has_its_own_plugins_and_options() -> None:
    of_mesh, of_control_plane = InMemoryMetricReader(), InMemoryMetricReader()
    parent, child = (
        OpenTelemetryPlugin(
            meter_provider=MeterProvider([each]), enable_metrics=["grpc.subchannel.*"]
        )
        for each in (of_mesh, of_control_plane)
    )
    registries = proxyless.Registries().extended(metrics=[parent], child_metrics=[child])
    async with backends("orders") as (backend,), ControlPlane(mesh(backend)) as plane:
        async with proxyless.aio.insecure_channel(
            TARGET,
            [("grpc.child_channel.args", [("grpc.default_authority", "td.example")])],
            bootstrap=plane.bootstrap(),
            registries=registries,
        ) as channel:
            await channel.unary_unary("/shop.Cart/Add", _registered_method=True)(
                b"item", timeout=PATIENCE_S
            )
        server = plane.bootstrap()["xds_servers"][0]
        target = f"dns:///{server['server_uri']}"
    started = "grpc.client.attempt.started"
    ads = "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
    assert await points(of_mesh, started) == {("shop.Cart/Add", TARGET): 1}
    assert await points(of_control_plane, started) == {(ads, target): 1}
    opened = "grpc.subchannel.connection_attempts_succeeded"
    assert await points(of_mesh, opened) == {(TARGET,): 1}
    assert await points(of_control_plane, opened) == {(target,): 1}


@pytest.mark.spec("A110-04")
async def test_a_shared_client_has_the_plugins_of_the_first_channel() -> None:
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    async with (
        backends("orders") as (backend,),
        ControlPlane(mesh(backend)) as plane,
        AsyncExitStack() as channels,
    ):
        for reader in readers:
            plugin = OpenTelemetryPlugin(meter_provider=MeterProvider([reader]))
            channel = proxyless.aio.insecure_channel(
                TARGET,
                [("proxyless.xds_shared_stream", 1)],
                bootstrap=plane.bootstrap(),
                registries=proxyless.Registries().extended(child_metrics=[plugin]),
            )
            await channels.enter_async_context(channel)
            await channel.unary_unary("/shop.Cart/Add")(b"item", timeout=PATIENCE_S)
    first, second = (read_metrics(reader) for reader in readers)
    assert "grpc.client.attempt.started" in first
    assert second == {}
