"""Precondition: two backends, and a client, ours or grpcio's."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc.aio

from tests.mesh_files import write_resources
from tests.worlds.grpcio_peers import backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def given(names: dict[str, Any]) -> AsyncIterator[None]:
    async with backends("cart", "web") as (cart, web):
        yield
        for opened in ((), (open_grpcio_channel,)):
            answers = await names["try_it"](cart.address, web.address, *opened)
            assert answers == [b"cart", b"web"]
        with TemporaryDirectory() as directory:
            write_resources(Path(directory, "mesh.json"), names["shop"](cart.address, web.address))
            async with names["open_channel_from_files"](directory) as channel:
                assert await channel.unary_unary("/shop.Cart/Add")(b"", timeout=10) == b"cart"


def open_grpcio_channel(bootstrap: dict[str, Any]) -> Any:  # noqa: ANN401
    # grpcio reads it once per process, for its first xDS channel, which is this one.
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(bootstrap)
    return grpc.aio.insecure_channel("xds:///shop")
