"""Our blocking channel with metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

import proxyless
from bench.clients import BlockingClient
from bench.clients.grpc_sync import READY_TIMEOUT_S, GrpcSyncClient
from bench.observed import measured


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[BlockingClient]:
    registries = proxyless.Registries().extended(metrics=[measured()])
    with proxyless.insecure_channel(f"ipv4:{address}", registries=registries) as channel:
        grpc.channel_ready_future(channel).result(READY_TIMEOUT_S)
        yield GrpcSyncClient(channel)
