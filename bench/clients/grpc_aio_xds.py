"""The reference for xDS: grpc.aio with an `xds:///` target and a control plane."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from bench.clients import TARGET, Client
from bench.clients.grpc_aio import GrpcAioClient


def make_bootstrap(control_plane: str) -> dict[str, Any]:
    """Bootstrap of both clients, so that they have the same config."""
    server = {
        "server_uri": control_plane,
        "channel_creds": [{"type": "insecure"}],
        "server_features": ["xds_v3"],
    }
    return {"xds_servers": [server], "node": {"id": "bench"}}


def set_bootstrap(control_plane: str) -> None:
    """Set it in the environment, which grpcio reads when it opens its first xDS channel."""
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(make_bootstrap(control_plane))


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    set_bootstrap(address)
    async with grpc.aio.insecure_channel(TARGET) as channel:
        await channel.channel_ready()
        yield GrpcAioClient(channel)
