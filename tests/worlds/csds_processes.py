"""Processes with CSDS: a mesh for their channels, and a process of grpcio.

grpcio's dump is read from the function that the package grpcio-csds uses. That package itself is
not installed: it depends on xds-protos, which must not be installed here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from proxyless.controlplane import ControlPlane, simple_mesh
from proxyless.observe import CSDS_SERVICE
from tests.worlds.grpcio_peers import ROOT, WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

TARGET = "xds:///api"


@asynccontextmanager
async def mesh() -> AsyncIterator[ControlPlane]:
    async with backends("a") as (backend,):
        snapshot = simple_mesh("api", {"pool": [backend.address]})
        async with ControlPlane(snapshot) as control_plane:
            yield control_plane


@asynccontextmanager
async def grpcio_admin(bootstrap: Mapping[str, Any], port: int = 0) -> AsyncIterator[str]:
    """A process with a channel of grpcio's and its CSDS; port 0 is any free one."""
    environment = {**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(port)),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            address = (await process.stdout.readline()).decode().strip()
        assert address, "the process ended before it served"
        yield address
    finally:
        process.stdin.close()
        await process.wait()


async def _run_grpcio() -> None:
    from grpc._cython import cygrpc  # noqa: PLC0415 - only here

    async def dump(_request: bytes, _context: Any) -> bytes:  # noqa: ANN401
        serialized: bytes = cygrpc.dump_xds_configs()
        return serialized

    handlers = {"FetchClientStatus": grpc.unary_unary_rpc_method_handler(dump)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(CSDS_SERVICE, handlers),))
    port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    async with grpc.aio.insecure_channel(TARGET) as channel:
        await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
        print(f"127.0.0.1:{port}", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_run_grpcio())
