"""Peer: connectrpc's asyncio client with the gRPC protocol, one connection without load balancing.

Its HTTP/2 is Rust's (reqwest). Messages are bytes on both sides, so no serializer runs.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bench.clients import METHOD, Client
from bench.peers import CONNECTRPC, use_peer


class BytesCodec:
    """Codec of messages that are bytes already."""

    def name(self) -> str:
        return "proto"

    def encode(self, message: bytes) -> bytes:
        return message

    def decode(self, data: bytes | bytearray, message_class: type[bytes]) -> bytes:
        return message_class(data)


class ConnectRpcClient:
    """Calls the client as generated code does."""

    def __init__(self, client: Any, unary: Any, stream: Any) -> None:  # noqa: ANN401 - untyped here
        self._client = client
        self._unary = unary
        self._stream = stream

    def unary(self, message: bytes, /) -> Awaitable[bytes]:
        made: Awaitable[bytes] = self._client.execute_unary(request=message, method=self._unary)
        return made

    def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]:
        made: AsyncIterable[bytes] = self._client.execute_server_stream(
            request=request, method=self._stream
        )
        return made


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    use_peer(CONNECTRPC)
    http, methods = import_module("pyqwest"), import_module("connectrpc.method")
    _, service, name = METHOD.split("/")
    unary, stream = (
        methods.MethodInfo(
            service_name=service,
            name=name,
            input=bytes,
            output=bytes,
            stream_type=kind,
            idempotency_level=methods.IdempotencyLevel.UNKNOWN,
        )
        for kind in (methods.StreamType.UNARY, methods.StreamType.SERVER_STREAM)
    )
    async with (
        http.HTTPTransport(http_version=http.HTTPVersion.HTTP2) as transport,
        import_module("connectrpc.client").ConnectClient(
            f"http://{address}",
            codec=BytesCodec(),
            protocol=import_module("connectrpc.protocol").ProtocolType.GRPC,
            accept_compression=(),
            send_compression=None,
            http_client=http.Client(transport),
        ) as client,
    ):
        yield ConnectRpcClient(client, unary, stream)
