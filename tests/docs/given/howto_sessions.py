"""Precondition: a service with carts, on two backends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import proxyless
from proxyless.controlplane import ControlPlane
from tests.docs.given.shop import carts_backend, generate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    names |= generate("carts")
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(carts_backend(names)) for _ in range(2)]
        yield
        carts = dict(started)
        items = [names["carts_pb2"].Item(name=f"item {number}") for number in range(5)]
        plane = ControlPlane(names["shop_mesh"](list(carts)))
        bootstrap = (await stack.enter_async_context(plane)).bootstrap()
        async with proxyless.aio.insecure_channel("xds:///shop", bootstrap=bootstrap) as channel:
            backend = await names["buy"](channel, items)
        assert len(carts[backend]) == 5
        with proxyless.insecure_channel("xds:///shop", bootstrap=bootstrap) as blocking:
            backend = await asyncio.to_thread(names["buy_in_a_thread"], blocking, items)
        assert len(carts[backend]) in {5, 10}
