"""Our whole channel with TLS, to one port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import proxyless
from bench.certificates import channel_credentials, channel_options
from bench.clients import Client
from bench.clients.grpc_aio import GrpcAioClient


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    place, _, directory = address.partition("@")
    credentials = channel_credentials(Path(directory))
    async with proxyless.aio.secure_channel(
        f"ipv4:{place}", credentials, options=channel_options()
    ) as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
