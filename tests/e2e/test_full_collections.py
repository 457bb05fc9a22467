"""Deferred full garbage collections, when channels and their event loops end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import proxyless.aio
from proxyless.controlplane import ControlPlane, simple_mesh
from proxyless.runtime import work_queue
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    import pytest


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
    async with backends("b") as (backend,):
        mesh = simple_mesh("shop", {"carts": [backend.address], "tills": [backend.address]})
        async with ControlPlane(mesh) as plane:
            channel = proxyless.aio.insecure_channel("xds:///shop", bootstrap=plane.bootstrap())
            assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"b"
            assert collections.deferrals
            await channel.close()
            assert collections.queues == 0
