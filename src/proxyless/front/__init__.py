"""The public API on our channels: grpcio's classes, errors and call objects.

aio              the asyncio API
sync             the blocking API
channel_api      methods that channels of both APIs share, and references of errors to RPCs
call_route       where an RPC went, by its call or error
private_channel  attribute of grpcio's channels from which applications read the state
session          cookies and methods that sessions of both APIs share
cookies          cookie jar of a session
credentials      channel and call credentials, ours and grpcio's
plugin_threads   threads for grpcio's call-credentials plugins, which may block
options          channel options
conversions      status codes, metadata, compression and connectivity, to and from grpcio's types

Only this package and the control plane's service import grpcio.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.front.aio.channel import AioChannel
from proxyless.front.conversions import to_encoding
from proxyless.front.credentials import (
    ChannelCredentials,
    composite_channel_credentials,
    insecure_channel_credentials,
    local_channel_credentials,
    ssl_channel_credentials,
    to_channel_credentials,
    xds_channel_credentials,
)
from proxyless.front.options import parse_options

if TYPE_CHECKING:
    from proxyless.front.aio.session import AioSession
    from proxyless.front.sync.channel import SyncChannel
    from proxyless.front.sync.session import SyncSession
else:
    # Not used by most asyncio applications.
    __getattr__ = lazy_exports(
        __name__,
        {
            "AioSession": "aio.session",
            "SyncChannel": "sync.channel",
            "SyncSession": "sync.session",
        },
    )

__all__ = [
    "AioChannel",
    "AioSession",
    "ChannelCredentials",
    "SyncChannel",
    "SyncSession",
    "composite_channel_credentials",
    "insecure_channel_credentials",
    "local_channel_credentials",
    "parse_options",
    "ssl_channel_credentials",
    "to_channel_credentials",
    "to_encoding",
    "xds_channel_credentials",
]
