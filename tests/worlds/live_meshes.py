"""Mesh with one backend, and clients of the admin services that run in the same process."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from proxyless import admin
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, listener, route
from proxyless.protos import message_class
from tests.interop.drop_in import stop_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LIVE = "proxyless.live.v1"
METHOD = "/shop.Orders/Get"
TARGET = "xds:///orders"
CLUSTER = "orders-v1"


def live(name: str, **fields: Any) -> Any:  # noqa: ANN401 - a message
    """A message of the live service."""
    return message_class(f"{LIVE}.{name}")(**fields)


class LiveClient:
    """Client of the live service, for an asyncio or a blocking channel of grpcio."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - grpcio has no types
        def unary(name: str, request: str, response: str) -> Any:  # noqa: ANN401
            return channel.unary_unary(
                f"/{LIVE}.Live/{name}",
                request_serializer=message_class(f"{LIVE}.{request}").SerializeToString,
                response_deserializer=message_class(f"{LIVE}.{response}").FromString,
            )

        def stream(name: str, request: str, response: str) -> Any:  # noqa: ANN401
            return channel.unary_stream(
                f"/{LIVE}.Live/{name}",
                request_serializer=message_class(f"{LIVE}.{request}").SerializeToString,
                response_deserializer=message_class(f"{LIVE}.{response}").FromString,
            )

        self.channel = channel
        self.snapshot = unary("GetSnapshot", "SnapshotRequest", "Snapshot")
        self.explain = unary("Explain", "ExplainRequest", "ExplainResponse")
        self.watch = stream("WatchSnapshots", "WatchRequest", "Snapshot")
        self.recording = stream("GetRecording", "RecordingRequest", "RecordingChunk")


@dataclass
class LiveMesh:
    """A control plane and a backend."""

    control_plane: ControlPlane
    address: str


@asynccontextmanager
async def live_mesh() -> AsyncIterator[LiveMesh]:
    """The backend echoes, except `fail`: then it aborts with a text that is not printable."""

    async def handle(request: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpcio has no types
        if request == b"fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such\x1b[31m order")
        return request

    backend = grpc.aio.server()
    service, _, name = METHOD[1:].partition("/")
    handler = grpc.unary_unary_rpc_method_handler(handle)
    backend.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    address = f"127.0.0.1:{backend.add_insecure_port('127.0.0.1:0')}"
    await backend.start()
    snapshot = Snapshot.of(
        [
            listener("orders", [route(cluster=CLUSTER)]),
            eds_cluster(CLUSTER),
            endpoints(CLUSTER, {0: [address], 1: ["127.0.0.1:1"]}),
        ]
    )
    try:
        async with ControlPlane(snapshot) as control_plane:
            yield LiveMesh(control_plane, address)
    finally:
        await stop_server(backend)


@asynccontextmanager
async def live_client() -> AsyncIterator[LiveClient]:
    """Client of an asyncio server with the admin services."""
    server = grpc.aio.server()
    admin.add_servicers(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield LiveClient(channel)
    finally:
        await stop_server(server)


@contextmanager
def blocking_live_client(server: Any) -> Iterator[LiveClient]:  # noqa: ANN401
    """Client of a blocking server with the admin services."""
    admin.add_servicers(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield LiveClient(channel)
    finally:
        server.stop(None).wait()
