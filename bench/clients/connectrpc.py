"""Peer: connectrpc's asyncio client with the gRPC protocol, one connection without load balancing.

Its HTTP/2 is Rust's (reqwest). Messages are bytes on both sides, so no serializer runs.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
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
    from connectrpc.client import ConnectClient  # noqa: PLC0415
    from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType  # noqa: PLC0415
    from connectrpc.protocol import ProtocolType  # noqa: PLC0415
    from pyqwest import Client as HttpClient  # noqa: PLC0415
    from pyqwest import HTTPTransport, HTTPVersion  # noqa: PLC0415

    _, service, name = METHOD.split("/")
    unary, stream = (
        MethodInfo(
            service_name=service,
            name=name,
            input=bytes,
            output=bytes,
            stream_type=kind,
            idempotency_level=IdempotencyLevel.UNKNOWN,
        )
        for kind in (StreamType.UNARY, StreamType.SERVER_STREAM)
    )
    async with (
        HTTPTransport(http_version=HTTPVersion.HTTP2) as transport,
        ConnectClient(
            f"http://{address}",
            codec=BytesCodec(),
            protocol=ProtocolType.GRPC,
            accept_compression=(),
            send_compression=None,
            http_client=HttpClient(transport),
        ) as client,
    ):
        yield ConnectRpcClient(client, unary, stream)
