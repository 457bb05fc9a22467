"""Channels for asyncio, with grpc.aio's interface.

async with proxyless.aio.insecure_channel("dns:///orders:50051") as channel:
    stub = orders_pb2_grpc.OrdersStub(channel)
    reply = await stub.Get(request, timeout=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.assembly import ChannelSettings, Registries, make_aio_channel
from proxyless.front import (
    ChannelCredentials,
    insecure_channel_credentials,
    to_channel_credentials,
    xds_channel_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import grpc

    from proxyless.front import AioChannel

__all__ = ["insecure_channel", "secure_channel", "xds_channel_credentials"]


def insecure_channel(
    target: str,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | None = None,
) -> AioChannel:
    """A channel without encryption. Raises ValueError for a target or option that is not valid."""
    credentials = insecure_channel_credentials()
    return make_aio_channel(
        target,
        credentials,
        ChannelSettings(options, compression, interceptors, registries, bootstrap),
    )


def secure_channel(  # noqa: PLR0913 - grpcio's arguments, and two
    target: str,
    credentials: ChannelCredentials | grpc.ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
    *,
    registries: Registries | None = None,
    bootstrap: Mapping[str, object] | str | None = None,
) -> AioChannel:
    """A channel with credentials: ours, or grpcio's where they can be read."""
    known = to_channel_credentials(credentials)
    return make_aio_channel(
        target, known, ChannelSettings(options, compression, interceptors, registries, bootstrap)
    )
