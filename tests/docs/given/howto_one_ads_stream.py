"""Precondition: a mesh whose bootstrap is in the environment."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from proxyless.controlplane import ControlPlane, simple_mesh
from tests.docs.given.shop import generate, orders_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    modules = generate("orders")
    async with orders_backend(modules) as address:
        mesh = simple_mesh("orders", {"orders": [address]})
        async with ControlPlane(mesh) as control_plane:
            os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(control_plane.bootstrap())
            yield
            stub = modules["orders_pb2_grpc"].OrdersStub(names["channel"])
            assert (await stub.Get(modules["orders_pb2"].GetRequest(id="7"))).id == "7"
            assert len(control_plane.streams) == 1
            await names["channel"].close()
