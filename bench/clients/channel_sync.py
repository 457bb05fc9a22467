"""Our blocking channel, on its background loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

import proxyless
from bench.clients import BlockingClient
from bench.clients.grpc_sync import READY_TIMEOUT_S, GrpcSyncClient


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[BlockingClient]:
    with proxyless.insecure_channel(f"ipv4:{address}") as channel:
        grpc.channel_ready_future(channel).result(READY_TIMEOUT_S)
        yield GrpcSyncClient(channel)
