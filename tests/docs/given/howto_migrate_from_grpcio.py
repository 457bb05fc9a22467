"""Precondition: a service with generated stubs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.docs.given.shop import generate, orders_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    names |= generate("orders")
    names["request"] = names["orders_pb2"].GetRequest(id="7")
    async with orders_backend(names) as address:
        names["target"] = f"ipv4:{address}"
        yield
