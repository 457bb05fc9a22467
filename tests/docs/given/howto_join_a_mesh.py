"""Precondition: a service with generated stubs, in a mesh whose bootstrap is a file."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxyless.controlplane import ControlPlane, simple_mesh
from tests.docs.given.shop import generate, orders_backend

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
        Path("bootstrap.json").write_text(json.dumps(plane.bootstrap()))  # noqa: ASYNC240
        yield
    assert names["reply"].id == "7"
