"""The reference: grpc.aio, one insecure channel directly to the backend.

Messages are bytes on both sides, so no serializer runs.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio

from bench.clients import METHOD, Client


class GrpcAioClient:
    """Exposes grpcio's own multi-callables, so that the adapter adds nothing to a call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.unary: Callable[[bytes], grpc.aio.UnaryUnaryCall] = channel.unary_unary(METHOD)
        self.server_stream: Callable[[bytes], grpc.aio.UnaryStreamCall] = channel.unary_stream(
            METHOD
        )


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(f"ipv4:{address}") as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
