"""Our whole channel with an `xds:///` target and a control plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import proxyless
from bench.clients import TARGET, Client
from bench.clients.grpc_aio import GrpcAioClient
from bench.clients.grpc_aio_xds import make_bootstrap


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    bootstrap = make_bootstrap(address)
    async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
