"""Our whole channel: resolver, round_robin over three ports, grpc.aio's interface."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import proxyless
from bench.clients import Client
from bench.clients.grpc_aio import GrpcAioClient
from bench.clients.grpc_aio_rr import ROUND_ROBIN


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    async with proxyless.aio.insecure_channel(f"ipv4:{address}", options=ROUND_ROBIN) as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
