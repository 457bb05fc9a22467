"""Stops the servers that the page starts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    yield
    await names["channel"].close()
    await names["control_plane"].stop()
    for server in ("backend", "admin"):
        await names[server].stop(None)
