"""The reference for threads: grpcio's blocking API, one insecure channel to the backend.

Messages are bytes on both sides, so no serializer runs.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc

from bench.clients import METHOD, BlockingClient

READY_TIMEOUT_S: Final = 20.0


class GrpcSyncClient:
    """Exposes grpcio's own multi-callable, so that the adapter adds nothing to a call."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.unary: Callable[[bytes], bytes] = channel.unary_unary(METHOD)


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[BlockingClient]:
    with grpc.insecure_channel(f"ipv4:{address}") as channel:
        grpc.channel_ready_future(channel).result(READY_TIMEOUT_S)
        yield GrpcSyncClient(channel)
