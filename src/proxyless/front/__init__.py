"""Channels as applications know them: grpcio's classes, errors and call objects.

aio_channel       AioChannel: grpc.aio's channel on our stack
aio_calls         the call objects it hands out
aio_outcomes      what these know about their RPCs, and who waits for more
aio_interceptors  an application's interceptors
aio_session       AioSession: a channel whose RPCs stay on one backend
sync_channel      SyncChannel: grpcio's blocking channel on our stack
sync_calls        the call objects it hands out
sync_outcomes     what is known about their RPCs, between threads and the loop
sync_requests     an application's iterators of requests
sync_states       who wants to know the state of it
sync_session      SyncSession: a channel whose RPCs stay on one backend
explaining        how an application asks why
session, cookies  what both kinds of session have in common
background        the loop that all of these run on
credentials       ours and grpcio's credentials
plugin_threads    where grpcio's plugins for call credentials may block
options           what channel options mean
values            status codes, metadata and the like, translated both ways

The only room, with the control plane's, that knows grpcio.
"""

from typing import TYPE_CHECKING

from proxyless.base.doors import open_when_asked
from proxyless.front.aio_channel import AioChannel
from proxyless.front.credentials import (
    ChannelCredentials,
    composite_channel_credentials,
    insecure_channel_credentials,
    local_channel_credentials,
    ssl_channel_credentials,
    to_channel_credentials,
    xds_channel_credentials,
)
from proxyless.front.options import make_channel_options
from proxyless.front.values import to_encoding

if TYPE_CHECKING:
    from proxyless.front.aio_session import AioSession
    from proxyless.front.sync_channel import SyncChannel
    from proxyless.front.sync_session import SyncSession
else:
    # A process has channels of one kind, as a rule, and few have sessions.
    __getattr__ = open_when_asked(
        __name__,
        {
            "AioSession": "aio_session",
            "SyncChannel": "sync_channel",
            "SyncSession": "sync_session",
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
    "make_channel_options",
    "ssl_channel_credentials",
    "to_channel_credentials",
    "to_encoding",
    "xds_channel_credentials",
]
