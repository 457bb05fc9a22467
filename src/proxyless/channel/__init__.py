"""One target: its resolver, its policy tree, its connections and its RPCs.

channel          Channel: who owns what, the order of updates, pickers and queued RPCs
call             Call: an RPC from selection to its end
attempt          one stream for a call, and who else stands around it
method           what the calls of one method share
measured         calls of a channel whose metrics somebody collects
retrying         what retry and hedging policies add to a call
retry            when to try again (pure)
config_selector  which settings apply to an RPC
service_config   what the owner of a service asks of its clients
credentials      metadata that each RPC adds
security         who has a say in how connections are secured
subchannel       how one address becomes a connection, again and again
load_reports     what a backend says about its load while no RPC ends
health           is a backend fit for RPCs, after what it says itself (pure)
health_checker   who asks one backend for the health of one service
health_watch     who wants to know
pool             who else has a connection to this address
watch            how a policy hears of changes
unread           an RPC that is over but for its reader
view             what is there to see of a channel, for explanations
idle             when nobody needs the channel
lame             LameChannel: the target is malformed, every RPC fails

No room here knows grpcio: `front` shows channels as grpcio's.
"""

from proxyless.channel.attempt import CallObserver
from proxyless.channel.call import Call
from proxyless.channel.channel import (
    CHANNEL_CLOSED,
    Channel,
    ChannelOptions,
    LoopStack,
    parse_default_config,
)
from proxyless.channel.config_selector import CONFIG_SELECTOR, CallConfig, ConfigSelector
from proxyless.channel.credentials import CallCredentials
from proxyless.channel.lame import LameChannel
from proxyless.channel.method import Method
from proxyless.channel.pool import SubchannelPool
from proxyless.channel.security import SecuritySource
from proxyless.channel.subchannel import SubchannelOptions
from proxyless.channel.view import ChannelView

__all__ = [
    "CHANNEL_CLOSED",
    "CONFIG_SELECTOR",
    "Call",
    "CallConfig",
    "CallCredentials",
    "CallObserver",
    "Channel",
    "ChannelOptions",
    "ChannelView",
    "ConfigSelector",
    "LameChannel",
    "LoopStack",
    "Method",
    "SecuritySource",
    "SubchannelOptions",
    "SubchannelPool",
    "parse_default_config",
]
