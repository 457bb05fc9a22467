"""Live view of a process: its channels, clusters, endpoints, RPCs and events, as services.

queries          Query: work for all event loops, run by blocking and asyncio servers
views            views of channels, subchannels and connections
clusters         clusters and endpoints, found in an LB tree
messages         encoding of views as messages of the live service
service          methods of the live service
channelz         encoding of views as messages of channelz
channelz_service  methods of channelz
"""

from proxyless.observe.live.channelz_service import CHANNELZ_SERVICE, ChannelzService
from proxyless.observe.live.queries import StacksByLoop, add_service
from proxyless.observe.live.service import LIVE_SERVICE, LiveService

__all__ = [
    "CHANNELZ_SERVICE",
    "LIVE_SERVICE",
    "ChannelzService",
    "LiveService",
    "StacksByLoop",
    "add_service",
]
