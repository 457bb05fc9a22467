"""RPCs that were routed before the listener or the routes were lost, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    virtual_host,
)
from tests.worlds.grpcio_peers import backends
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TARGET = "xds:///api"
WHERE = "/test.Mesh/Where"
LOSSES = {
    "listener": 'listener "api": does not exist',
    "virtual host": 'route configuration "routes": has no virtual host for "api"',
}


class HeldRpc:
    """A wait-for-ready RPC without a time limit that waits on a cluster after the loss."""

    def __init__(self, control_plane: ControlPlane, channel: Any, address: str) -> None:  # noqa: ANN401
        self._control_plane = control_plane
        self._channel = channel
        # The address of a backend that is in no endpoint resource yet.
        self.address = address
        self.call = channel.unary_unary(WHERE)(b"", wait_for_ready=True)

    def set_mesh(self, snapshot: Snapshot) -> None:
        self._control_plane.set_snapshot(snapshot)

    @property
    def mesh(self) -> Snapshot:
        return self._control_plane.snapshot

    async def lose(self, kind: str) -> None:
        """Delete the listener or the virtual host of the target; wait until it takes effect."""
        is_failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        await until(lambda: self._channel.get_state() is is_failing, "a refused connection")
        assert LOSSES[kind] not in self._channel.explain(WHERE).text
        if kind == "listener":
            self.set_mesh(self.mesh.without(LISTENER, "api", partial=True))
        else:
            elsewhere = virtual_host(route(cluster="a"), domains=["other.example"])
            self.set_mesh(self.mesh.with_(route_config("routes", elsewhere)))
        await until(lambda: LOSSES[kind] in self._channel.explain(WHERE).text, "the loss")
        assert not self.call.done()

    async def until_released(self) -> None:
        [stream] = self._control_plane.streams
        await until(lambda: not stream.subscriptions[CLUSTER].names, "no watch of a cluster")
        await until(lambda: not stream.subscriptions[ENDPOINTS].names, "no watch of endpoints")


@asynccontextmanager
async def held_rpc() -> AsyncIterator[HeldRpc]:
    async with backends("a", "down") as (backend, down):
        await down.leave()
        snapshot = Snapshot.of(
            [
                listener("api", "routes"),
                route_config("routes", route(cluster="a")),
                eds_cluster("a"),
                endpoints("a", [down.address]),
            ]
        )
        async with (
            ControlPlane(snapshot) as control_plane,
            proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
        ):
            yield HeldRpc(control_plane, channel, backend.address)


@pytest.fixture(autouse=True)
def _no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", "0")


@pytest.mark.spec("A74-49")
@pytest.mark.parametrize("kind", LOSSES)
async def test_new_endpoints_reach_routed_rpc_when_routes_are_lost(kind: str) -> None:
    async with held_rpc() as held:
        await held.lose(kind)
        held.set_mesh(held.mesh.with_(endpoints("a", [held.address])))
        async with asyncio.timeout(PATIENCE_S):
            assert await held.call == b"a"
        await held.until_released()


@pytest.mark.spec("A31-41", "A31-42")
@pytest.mark.parametrize("kind", LOSSES)
async def test_deleted_cluster_drops_routed_rpc_when_routes_are_lost(kind: str) -> None:
    async with held_rpc() as held:
        await held.lose(kind)
        held.set_mesh(held.mesh.without(CLUSTER, "a", partial=True))
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(grpc.aio.AioRpcError, match='cluster "a": does not exist') as caught:
                await held.call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await held.until_released()
