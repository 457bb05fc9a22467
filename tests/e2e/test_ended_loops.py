"""Memory and garbage collection of a process whose event loops end, as in `asyncio.run`."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

import proxyless.aio
from proxyless.assembly import stacks_by_loop
from proxyless.controlplane import ControlPlane, simple_mesh
from proxyless.runtime import work_queue
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


@asynccontextmanager
async def shop() -> AsyncIterator[dict[str, Any]]:
    """Bootstrap of a mesh with two clusters."""
    async with backends("b") as (backend,):
        mesh = simple_mesh("shop", {"carts": [backend.address], "tills": [backend.address]})
        async with ControlPlane(mesh) as plane:
            yield plane.bootstrap()


class RecordedCollections:
    """Records the calls of queues."""

    def __init__(self) -> None:
        self.deferrals = 0
        self.queues = 0

    def defer(self) -> None:
        self.deferrals += 1
        self.queues += 1

    def resume(self) -> None:
        self.queues -= 1


async def test_full_collections_are_resumed_when_a_channel_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop of a short program does not run until the queue's timer fires."""
    collections = RecordedCollections()
    monkeypatch.setattr(work_queue, "FULL_COLLECTIONS", collections)
    async with shop() as bootstrap:
        channel = proxyless.aio.insecure_channel("xds:///shop", bootstrap=bootstrap)
        assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"b"
        assert collections.deferrals
        await channel.close()
        assert collections.queues == 0


def test_xds_clients_of_loops_that_have_ended_are_freed() -> None:
    async def use() -> ref[object]:
        async with (
            shop() as bootstrap,
            proxyless.aio.insecure_channel("xds:///shop", bootstrap=bootstrap) as channel,
        ):
            assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"b"
            return ref(stacks_by_loop()[asyncio.get_running_loop()].channels)

    first = asyncio.run(use())
    # The stack of a closed loop is dropped when the next loop has one.
    asyncio.run(use())
    gc.collect()
    assert first() is None
