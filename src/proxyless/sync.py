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
    """A channel without encryption.

    Options are grpcio's channel arguments, and some of our own (docs/howto/migrate-from-grpcio.md).
    Registries add policies, resolvers and filters to those of the package, and stats plugins. The
    bootstrap of an `xds:` target is a document or a path; without it the environment says, as for
    grpcio.

    Raises ValueError or TypeError for a target or option that is not valid. Whether anybody can be
    reached, the first RPC says.
    """
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
    """A channel with credentials: ours, or grpcio's where they can be read.

    The rest is as for `insecure_channel`. Raises TypeError for credentials that only grpcio uses.
    """
    known = to_channel_credentials(credentials)
    return make_sync_channel(
        target,
        known,
        ChannelSettings(options, compression, registries=registries, bootstrap=bootstrap),
    )
