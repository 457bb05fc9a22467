"""grpcio server with our admin services. As a process: until it gets a line."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from proxyless import admin
from tests.interop.drop_in import stop_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def admin_port() -> AsyncIterator[str]:
    """Run the server; its `stop` waits for the handlers of all grpcio servers of this loop."""
    server = grpc.aio.server()
    admin.add_servicers(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await stop_server(server)


async def _run() -> None:
    async with admin_port() as address:
        print(address, flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(_run())
