"""RPCs while all endpoints of a cluster are replaced by others, with our client and with grpcio's.

The new endpoint is behind a gate: it accepts TCP connections, and nothing answers the HTTP/2
preface before the test opens the gate.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import pytest

import proxyless
from proxyless.controlplane import ControlPlane, endpoints, simple_mesh
from tests.interop.drop_in import Untyped
from tests.worlds.grpcio_peers import WHERE, backends, exchange, grpcio_client
from tests.worlds.transports import PATIENCE_S

TARGET = "xds:///api"
PORT_OF_NOBODY = "127.0.0.1:1"
# Time in which RPCs that have to wait could fail. A slow machine makes the test no stricter.
TIME_TO_FAIL_S = 0.3


class Client(Protocol):
    """Makes RPCs and counts the answers, errors included."""

    async def call(self, *, count: int = 1) -> Counter[str]: ...

    async def call_until(self, answer: str) -> None: ...


class OwnClient:
    """A channel of ours, as a `Client`."""

    def __init__(self, channel: Untyped) -> None:
        self._channel = channel

    async def call(self, *, count: int = 1) -> Counter[str]:
        return Counter([(await exchange(self._channel, WHERE)).answer for _ in range(count)])

    async def call_until(self, answer: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.call() != {answer: 1}:
                pass


@asynccontextmanager
async def client_of(kind: str, control_plane: ControlPlane) -> AsyncIterator[Client]:
    bootstrap = control_plane.bootstrap()
    if kind == "grpcio":
        async with grpcio_client(bootstrap, TARGET) as client:
            yield client
    else:
        async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            yield OwnClient(channel)


class Gate:
    """A TCP proxy in front of a backend, which forwards no byte until it is opened."""

    def __init__(self, backend_port: int) -> None:
        self._backend_port = backend_port
        self._server: asyncio.Server | None = None
        self._is_open = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when the first connection is accepted: the client has acted on the update.
        self.has_connection = asyncio.Event()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def open(self) -> None:
        self._is_open.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.has_connection.set()
        try:
            await self._is_open.wait()
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._backend_port)
            await asyncio.gather(_forward(reader, ours), _forward(theirs, writer))
        except asyncio.CancelledError:
            # asyncio reports a connection's task that ends in this way as an error.
            pass
        finally:
            writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def gate_to(backend_port: int) -> AsyncIterator[Gate]:
    gate = Gate(backend_port)
    await gate.start()
    try:
        yield gate
    finally:
        await gate.stop()


def replace_endpoints(control_plane: ControlPlane, *addresses: str) -> None:
    control_plane.set_snapshot(control_plane.snapshot.with_(endpoints("pool", list(addresses))))


async def start_waiting_rpc(client: Client) -> asyncio.Task[Counter[str]]:
    """An RPC that waits. Those before it may fail: grpcio replaces its picker in another thread."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rpc = asyncio.create_task(client.call())
            done, _ = await asyncio.wait({rpc}, timeout=TIME_TO_FAIL_S)
            if not done:
                return rpc


@pytest.mark.spec("WT-03")
@pytest.mark.parametrize("kind", ["grpcio", "ours"])
async def test_rpcs_wait_for_new_endpoint_when_it_replaces_the_only_dead_one(kind: str) -> None:
    async with (
        backends("b") as [b],
        gate_to(b.port) as gate,
        ControlPlane(simple_mesh("api", {"pool": [PORT_OF_NOBODY]})) as control_plane,
        client_of(kind, control_plane) as client,
    ):
        [failure] = await client.call()
        assert failure.startswith("UNAVAILABLE: ")
        assert PORT_OF_NOBODY in failure
        replace_endpoints(control_plane, gate.address)
        await asyncio.wait_for(gate.has_connection.wait(), PATIENCE_S)
        waiting = await start_waiting_rpc(client)
        gate.open()
        assert await waiting == {"b": 1}
        assert await client.call(count=5) == {"b": 5}


@pytest.mark.spec("RR-08")
@pytest.mark.parametrize("kind", ["grpcio", "ours"])
async def test_rpcs_use_old_endpoints_until_one_of_the_new_ones_is_connected(kind: str) -> None:
    async with (
        backends("a", "b") as [a, b],
        gate_to(b.port) as gate,
        ControlPlane(simple_mesh("api", {"pool": [a.address]})) as control_plane,
        client_of(kind, control_plane) as client,
    ):
        assert await client.call() == {"a": 1}
        replace_endpoints(control_plane, gate.address)
        await asyncio.wait_for(gate.has_connection.wait(), PATIENCE_S)
        rpcs = asyncio.create_task(client.call(count=20))
        done, _ = await asyncio.wait({rpcs}, timeout=PATIENCE_S / 2)
        assert done, "RPCs wait for the new endpoint"
        assert rpcs.result() == {"a": 20}
        gate.open()
        await client.call_until("b")
        assert await client.call(count=5) == {"b": 5}
