"""Our whole channel with metrics, to one port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

import proxyless
from bench.clients import METHOD, Client
from bench.clients.grpc_aio import GrpcAioClient
from bench.observed import measured


class MeasuredClient(GrpcAioClient):
    """Registered methods, as generated code has them: their names are in the metrics."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        self.unary = channel.unary_unary(METHOD, _registered_method=True)


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    registries = proxyless.Registries().extended(metrics=[measured()])
    async with proxyless.aio.insecure_channel(f"ipv4:{address}", registries=registries) as channel:
        await channel.channel_ready()
        yield MeasuredClient(channel)
