"""One target: its resolver, its policy tree, its connections and its RPCs.

channel          Channel: owns resolver, policy tree and RPCs of a target; order of updates
options          ChannelOptions
loop_stack       LoopStack: what all channels of an event loop share
config_state     service config, selector, and the RPCs that wait for a selector
pick_queue       the picker, and the RPCs whose pick was queued
call             Call: one RPC from its start to its end
call_attempts    the attempts of an RPC, and what follows when one ends
call_owner       interfaces between a call and its channel (types)
call_time        start, timeout and deadline of an RPC
request_buffer   request messages that another attempt may have to send
attempt          Attempt: one stream for a call; interfaces of observers and strategies
interception     HTTP filters of an RPC
statuses         statuses that the channel itself gives to RPCs; the logger
method           per-method cache: request encoder, limits, metrics recorder
measured_call    calls of a channel that has stats plugins
measured_attempt attempts of measured calls: durations, bytes and delays
traced_call      calls of a channel that is traced
call_delays      delays of measured calls: kinds and times
mirrored_call    copies of RPCs for mirror clusters
counted_call     calls of a channel that is observed by a live service or a flight recorder
call_counts      counts of the calls of a channel and of its addresses
retry_strategies  retry and hedging policies of a running call
retry            whether another attempt follows, and when (pure)
transparent_retries  replacement of streams that the server never saw (pure)
config_selector  ConfigSelector: chooses the config of each RPC
service_config   service config: parsing and method lookup
credentials      call credentials: metadata that each RPC adds
security         TLS and proxy of the subchannels of a channel
subchannel       Subchannel: one address, and its connection
connectivity     the states of a subchannel (pure)
connection       one attempt to connect, and its transport
connect_queue    starts the attempts of all subchannels in slices
subchannel_metrics  SubchannelMeter: counts connections of a subchannel (A94)
subchannel_options  SubchannelOptions
load_reports     out-of-band load reports of a backend
health           health of a service at one backend (pure)
health_checker   health check stream of one service at one backend
health_watch     health watches of the policies of a channel
health_registry  health checkers of an event loop, shared by watches
pool             pool of subchannels, shared by the channels of an event loop
state_watch      notifies a policy of the states of a subchannel
unread_call      an RPC that has ended, with responses that are not read yet
view             ChannelView: snapshot of a channel, for explanations
idleness         idle timeout of a channel
lame_channel     LameChannel: the target is malformed, every RPC fails

No module here imports grpcio: `front` adapts channels to its API.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.channel.attempt import CallObserver
from proxyless.channel.call import Call
from proxyless.channel.channel import CHANNEL_CLOSED, Channel
from proxyless.channel.config_selector import CONFIG_SELECTOR, CallConfig, ConfigSelector
from proxyless.channel.config_state import parse_default_config
from proxyless.channel.credentials import CallCredentials
from proxyless.channel.loop_stack import LoopStack
from proxyless.channel.method import Method
from proxyless.channel.options import ChannelOptions
from proxyless.channel.pool import SubchannelPool
from proxyless.channel.security import SecuritySource
from proxyless.channel.subchannel_options import SubchannelOptions

if TYPE_CHECKING:
    from proxyless.channel.lame_channel import LameChannel
    from proxyless.channel.view import ChannelView
else:
    __getattr__ = lazy_exports(__name__, {"ChannelView": "view", "LameChannel": "lame_channel"})

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
