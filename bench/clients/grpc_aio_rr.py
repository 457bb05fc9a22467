"""The reference for whole channels: grpc.aio, round_robin over three ports of the backend."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc.aio

from bench.clients import Client
from bench.clients.grpc_aio import GrpcAioClient

# Used by our channel as well, so that both have the same config.
ROUND_ROBIN: Final = (("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),)


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(f"ipv4:{address}", options=ROUND_ROBIN) as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
