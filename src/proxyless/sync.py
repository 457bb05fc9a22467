"""Blocking channels, with grpcio's interface. `proxyless` itself exports them.

with proxyless.insecure_channel("dns:///orders:50051") as channel:
    stub = orders_pb2_grpc.OrdersStub(channel)
    reply = stub.Get(request, timeout=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.assembly import ChannelSettings, Registries, make_sync_channel
from proxyless.front import (
    ChannelCredentials,
    insecure_channel_credentials,
    to_channel_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import grpc

    from proxyless.front import SyncChannel

__all__ = ["insecure_channel", "secure_channel"]


def insecure_channel(
    target: str,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | None = None,
) -> SyncChannel:
    """A channel without encryption. Raises ValueError for a target or option that is not valid."""
    credentials = insecure_channel_credentials()
    return make_sync_channel(
        target,
        credentials,
        ChannelSettings(options, compression, registries=registries, bootstrap=bootstrap),
    )


def secure_channel(
    target: str,
    credentials: ChannelCredentials | grpc.ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | None = None,
) -> SyncChannel:
    """A channel with credentials: ours, or grpcio's where they can be read."""
    known = to_channel_credentials(credentials)
    return make_sync_channel(
        target,
        known,
        ChannelSettings(options, compression, registries=registries, bootstrap=bootstrap),
    )
