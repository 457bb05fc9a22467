"""Preconditions: a service with stubs, in a mesh with its bootstrap in the environment; a process.

The process has channels of grpcio's, in a mesh of its own, and CSDS at the address of the page.
"""

from __future__ import annotations

import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from proxyless.controlplane import ControlPlane, simple_mesh
from tests.docs.given.shop import generate, orders_backend
from tests.worlds.csds_processes import grpcio_admin, mesh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    names |= generate("orders")
    names["request"] = names["orders_pb2"].GetRequest(id="7")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(orders_backend(names))
        plane = ControlPlane(simple_mesh("orders", {"orders": [address]}))
        await stack.enter_async_context(plane)
        other = await stack.enter_async_context(mesh())
        port = int(names["ports"]["50052"])
        await stack.enter_async_context(grpcio_admin(other.bootstrap("api-client"), port))
        os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(plane.bootstrap())
        yield
        assert names["reply"].id == "7"
