"""Precondition: a pod of Istio's, with an agent on a unix socket and a service of the mesh.

The page's own control plane, later, sends RPCs to the port that the page has for a backend.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from proxyless.controlplane import ControlPlane, simple_mesh
from tests.worlds.grpcio_peers import NamedBackend, backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVICE = "orders.shop.svc.cluster.local:7070"


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        (backend,) = await stack.enter_async_context(backends("orders"))
        mesh = simple_mesh(SERVICE, {f"outbound|{SERVICE}": [backend.address]})
        agent = ControlPlane(mesh, address="unix:AGENT")
        names["bootstrap"] = (await stack.enter_async_context(agent)).bootstrap()
        rehearsed = NamedBackend("rehearsed")
        rehearsed.port = int(names["ports"]["50061"])
        await rehearsed.start()
        stack.push_async_callback(rehearsed.stop)
        yield
        assert names["reply"] == b"rehearsed"
