"""The reference with metrics: grpcio's blocking API with grpcio-observability's plugin, one port.

Not grpc.aio: with this plugin (1.85) it stops after some thousand RPCs, in a deadlock between the
plugin's lock and the interpreter's.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

import grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from bench.clients import BlockingClient
from bench.clients.grpc_sync import READY_TIMEOUT_S, GrpcSyncClient
from bench.peers import GRPC_OBSERVABILITY, use_peer


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[BlockingClient]:
    use_peer(GRPC_OBSERVABILITY)
    make_plugin = import_module("grpc_observability").OpenTelemetryPlugin
    plugin = make_plugin(meter_provider=MeterProvider([InMemoryMetricReader()]))
    # It counts only channels that are made after it.
    plugin.register_global()
    with grpc.insecure_channel(f"ipv4:{address}") as channel:
        grpc.channel_ready_future(channel).result(READY_TIMEOUT_S)
        yield GrpcSyncClient(channel)
    plugin.deregister_global()
