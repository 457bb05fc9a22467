"""An explanation from files names the cluster to which a channel sends the same RPC."""

from __future__ import annotations

import pytest

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
from proxyless.observe import OfflineMesh, Rpc, explain_offline, unknown_bootstrap
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.config.dependency_manager import ResourceTypes
from proxyless.xds.config.plan import ConfigTarget
from proxyless.xds.parsing import (
    ClusterType,
    EndpointCollectionType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.transports import PATIENCE_S

RPCS = [
    ("/shop.Cart/Add", ()),
    ("/shop.Cart/Add", (("ring", "beta"),)),
    ("/shop.Cart/Add", (("ring", "alpha"), ("ring", "beta"))),
    ("/shop.Cart/Drop", (("ring", "beta"),)),
    ("/other/Method", (("ring", "beta"),)),
]


def shop(started: list[NamedBackend]) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config(
                "routes",
                virtual_host(route(cluster="a"), domains=["other"]),
                virtual_host(
                    route(path="/shop.Cart/Drop", cluster="c"),
                    route("/shop.Cart/", headers={"ring": "beta"}, cluster="b"),
                    route("/shop.Cart/", cluster="a"),
                    route(cluster="c"),
                    domains=["*"],
                ),
            ),
            *(eds_cluster(backend.name) for backend in started),
            *(endpoints(backend.name, [backend.address]) for backend in started),
        ]
    )


def offline(snapshot: Snapshot) -> OfflineMesh:
    known = proxyless.Registries()
    types = ResourceTypes(
        ListenerType(known.filters),
        RouteConfigurationType(known.filters),
        ClusterType(known.policies),
        EndpointType(),
        EndpointCollectionType(),
    )
    bootstrap = unknown_bootstrap()
    made = OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))
    made.add((each.type_url, each.name, each.value) for each in snapshot)
    return made


@pytest.mark.parametrize(("path", "metadata"), RPCS)
async def test_rpc_goes_to_the_explained_cluster(
    path: str, metadata: tuple[tuple[str, str], ...]
) -> None:
    async with backends("a", "b", "c") as started:
        snapshot = shop(started)
        wanted = ConfigTarget("api", "api")
        explanation = explain_offline(wanted, offline(snapshot), Rpc(path, metadata, "api"))
        async with (
            ControlPlane(snapshot) as control_plane,
            proxyless.aio.insecure_channel(
                "xds:///api", bootstrap=control_plane.bootstrap()
            ) as channel,
        ):
            call = channel.unary_unary(path)
            served = await call(b"", metadata=metadata, timeout=PATIENCE_S)
    assert explanation.text == f'{path} goes to cluster "{served.decode()}"'
