"""Blocking channels, with grpcio's interface. Exported by `proxyless`.

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
    from os import PathLike

    import grpc

    from proxyless.front import SyncChannel

__all__ = ["insecure_channel", "secure_channel"]


def insecure_channel(
    target: str,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | PathLike[str] | None = None,
) -> SyncChannel:
    """Create a channel without encryption.

    Options are grpcio's channel arguments, and some of our own (docs/howto/migrate-from-grpcio.md).
    Registries add policies, resolvers, filters and stats plugins to the defaults. The bootstrap of
    an `xds:` target is a document or a path; the default is the one that the environment names, as
    with grpcio.

    Raises ValueError or TypeError for a target or option that is not valid. Does not connect: that
    the target is not reachable is an error of the first RPC.
    """
    return secure_channel(
        target,
        insecure_channel_credentials(),
        options,
        compression,
        registries=registries,
        bootstrap=bootstrap,
    )


def secure_channel(
    target: str,
    credentials: ChannelCredentials | grpc.ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | PathLike[str] | None = None,
) -> SyncChannel:
    """Create a channel with credentials: ours, or grpcio's if their content is accessible.

    The other arguments are those of `insecure_channel`. Raises TypeError for credentials that only
    grpcio can use.
    """
    settings = ChannelSettings(options, compression, registries=registries, bootstrap=bootstrap)
    return make_sync_channel(target, to_channel_credentials(credentials), settings)
