"""The reference with metrics: grpc.aio with grpcio-observability's plugin, one insecure channel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

import grpc.aio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from bench.clients import Client
from bench.clients.grpc_aio import GrpcAioClient
from bench.peers import GRPC_OBSERVABILITY, use_peer


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    use_peer(GRPC_OBSERVABILITY)
    make_plugin = import_module("grpc_observability").OpenTelemetryPlugin
    plugin = make_plugin(meter_provider=MeterProvider([InMemoryMetricReader()]))
    # It counts only channels that are made after it.
    plugin.register_global()
    async with grpc.aio.insecure_channel(f"ipv4:{address}") as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
    plugin.deregister_global()
