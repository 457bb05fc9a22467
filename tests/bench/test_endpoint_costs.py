"""Costs of each connected endpoint of a large cluster, counted: objects, and calls to connect it.

The collector visits every object that is counted here, in each full collection. The sockets are
real; the backend is a process that only sends SETTINGS.
"""

import asyncio
import gc
import sys
import weakref
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import pytest

from proxyless.transport import ClientTransport, Connector
from tests.worlds.loop_meshes import LoopMesh
from tests.worlds.xds_dependencies import set_resource
from tests.worlds.xds_resources import eds, listener, locality, prioritized, route_config

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs all addresses of 127.0.0.0/8"
)

FIRST, MORE = 20, 300
# As many turns as all notifications of the endpoints take.
NOTIFIED_TURNS = 100
# Measured 66, with those of asyncio, and 413.
OBJECTS_MAX = 67
CALLS_MAX = 418
ROUND_ROBIN: tuple[Any, ...] = (
    {"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}},
)
BACKEND = """
import asyncio, sys

async def serve(reader, writer):
    writer.write(bytes.fromhex("000000040000000000" "000000040100000000"))
    await reader.read()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@asynccontextmanager
async def running_backend() -> AsyncIterator[int]:
    """The port of a backend on all addresses of this machine."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BACKEND, stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count calls of this package's functions, and their calls of C functions.

    Those of asyncio depend on the number of turns, and so on the speed of the machine.
    """
    calls = [0]

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        is_ours = frame.f_globals.get("__name__", "").startswith("proxyless.")
        calls[0] += is_ours and event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield calls
    finally:
        sys.setprofile(before)


async def connect(mesh: LoopMesh, port: int, count: int) -> None:
    """Publish endpoints, and return when they are connected and the policies have been notified."""
    hosts = [f"127.1.{number >> 8}.{number & 255}:{port}" for number in range(count)]
    set_resource(mesh.watches, prioritized("s", [locality("a", *hosts)]))
    transports = weakref.WeakSet[ClientTransport]()
    connections = mesh.pool.connections
    while len(transports) < count:
        transports.update(each.transport for each in connections if each.transport is not None)
        await asyncio.sleep(0.001)  # noqa: TID251 - waits for another process
    for _ in range(NOTIFIED_TURNS):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def test_connected_endpoint_has_few_objects() -> None:
    async with running_backend() as port:
        mesh = LoopMesh(Connector())
        for resource in (listener(), route_config("c"), eds("c", "s", lb_config=ROUND_ROBIN)):
            set_resource(mesh.watches, resource)
        mesh.channel.request_connection()
        await connect(mesh, port, FIRST)
        gc.collect()
        before = len(gc.get_objects())
        await connect(mesh, port, FIRST + MORE)
        gc.collect()
        objects = (len(gc.get_objects()) - before) / MORE
        await mesh.aclose()
    assert objects <= OBJECTS_MAX, objects


async def test_endpoint_takes_few_calls_until_it_is_connected() -> None:
    async with running_backend() as port:
        mesh = LoopMesh(Connector())
        for resource in (listener(), route_config("c"), eds("c", "s", lb_config=ROUND_ROBIN)):
            set_resource(mesh.watches, resource)
        mesh.channel.request_connection()
        await connect(mesh, port, FIRST)
        with counted_calls() as calls:
            await connect(mesh, port, FIRST + MORE)
        await mesh.aclose()
    assert calls[0] / MORE <= CALLS_MAX, calls[0] / MORE


async def test_endpoint_is_connected_without_a_task() -> None:
    async with running_backend() as port:
        mesh = LoopMesh(Connector())
        for resource in (listener(), route_config("c"), eds("c", "s", lb_config=ROUND_ROBIN)):
            set_resource(mesh.watches, resource)
        mesh.channel.request_connection()
        await connect(mesh, port, FIRST)
        tasks = asyncio.all_tasks()
        hosts = [f"127.1.{number >> 8}.{number & 255}:{port}" for number in range(FIRST + MORE)]
        set_resource(mesh.watches, prioritized("s", [locality("a", *hosts)]))
        while len(mesh.pool.connections) < FIRST + MORE:
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
            assert asyncio.all_tasks() == tasks
        await mesh.aclose()
