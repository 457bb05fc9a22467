"""A channel of this process under load, and the admin port that shows it.

As a script it prints the addresses, and stops the second backend at the end of a line.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import grpc

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Ejection,
    FailurePercentage,
    Snapshot,
    eds_cluster,
    outlier_detection,
    simple_mesh,
)
from tests.worlds.admin_servers import admin_port
from tests.worlds.grpcio_peers import WHERE, NamedBackend, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.interop.drop_in import Untyped

TARGET = "xds:///api"
CLUSTER = "web"
# Between two RPCs.
PAUSE_S = 0.01


class WatchedMesh(NamedTuple):
    """A mesh under load."""

    admin: str
    backends: list[NamedBackend]
    control_plane: ControlPlane


async def _send(target: str, control_plane: ControlPlane, is_sent: asyncio.Event) -> None:
    """RPCs one after the other, with pauses, until cancelled; errors are ignored."""
    async with proxyless.aio.insecure_channel(
        target, bootstrap=control_plane.bootstrap("me")
    ) as channel:
        call = channel.unary_unary(WHERE)
        while True:
            with suppress(grpc.RpcError):
                await call(b"", timeout=PATIENCE_S)
                is_sent.set()
            await asyncio.sleep(PAUSE_S)  # noqa: TID251 - other processes need the CPU


class _FailingBackend(NamedBackend):
    """Backend whose RPCs fail."""

    async def _answer(self, _request: bytes, context: Untyped) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "out of order")
        raise AssertionError("abort raises")


@asynccontextmanager
async def _failing_backend() -> AsyncIterator[NamedBackend]:
    backend = _FailingBackend("bad")
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


def _ejecting(snapshot: Snapshot) -> Snapshot:
    """The mesh with outlier detection that ejects an endpoint whose RPCs fail."""
    rule = FailurePercentage(threshold=50, minimum_hosts=1, request_volume=1)
    ejection = Ejection(time_s=60.0, max_percent=50)
    cluster = eds_cluster(CLUSTER)
    return snapshot.with_(
        outlier_detection(cluster, failure_percentage=rule, interval_s=0.2, ejection=ejection)
    )


@asynccontextmanager
async def watched_mesh(*, is_one_bad: bool = False) -> AsyncIterator[WatchedMesh]:
    """Two backends in one cluster, and RPCs to them; the last one is ejected if it is bad."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_port())
        started = await stack.enter_async_context(backends("a", *([] if is_one_bad else ["b"])))
        if is_one_bad:
            started.append(await stack.enter_async_context(_failing_backend()))
        snapshot = simple_mesh("api", {CLUSTER: [backend.address for backend in started]})
        if is_one_bad:
            snapshot = _ejecting(snapshot)
        async with ControlPlane(snapshot) as control_plane:
            is_sent = asyncio.Event()
            load = asyncio.ensure_future(_send(TARGET, control_plane, is_sent))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await is_sent.wait()
                yield WatchedMesh(admin, started, control_plane)
            finally:
                load.cancel()
                await asyncio.wait([load])


async def _run() -> None:
    async with watched_mesh() as mesh:
        print(mesh.admin, *(backend.address for backend in mesh.backends), flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.readline)
        await mesh.backends[1].leave()
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(_run())
