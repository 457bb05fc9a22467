"""Precondition: two backends."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.worlds.grpcio_peers import backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    async with backends("usual", "fast") as (usual, fast):
        names |= {"usual": usual.address, "fast": fast.address}
        yield
