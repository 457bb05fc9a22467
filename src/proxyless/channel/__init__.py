"""One target: its resolver, its policy tree, its connections and its RPCs.

channel          Channel: owns resolver, policy tree and RPCs of a target; order of updates
options          ChannelOptions
loop_stack       LoopStack: what all channels of an event loop share
config_state     service config, selector, and the RPCs that wait for a selector
pick_queue       the picker, and the RPCs whose pick was queued
call             Call: one RPC on its way over the stations
call_attempts    the attempts of an RPC, and what follows when one ends
call_owner       interfaces between a call and its channel (types)
call_time        start, timeout and deadline of an RPC
request_buffer   request messages that another attempt may have to send
attempt          Attempt: one stream for a call; interfaces of observers and strategies
interception     HTTP filters of an RPC
statuses         statuses that the channel itself gives to RPCs; the logger
method           what the calls of one method share
measured         calls of a channel whose metrics somebody collects
retrying         what retry and hedging policies add to a call
retry            when to try again (pure)
config_selector  which settings apply to an RPC
service_config   what the owner of a service asks of its clients
credentials      metadata that each RPC adds
security         who has a say in how connections are secured
subchannel       Subchannel: one address, and its connection
connectivity     the states of a subchannel (pure)
connection       one attempt to connect, and its transport
subchannel_options  SubchannelOptions
load_reports     what a backend says about its load while no RPC ends
health           is a backend fit for RPCs, after what it says itself (pure)
health_checker   who asks one backend for the health of one service
health_watch     what policies watch of it
health_registry  health checkers of an event loop, shared by watches
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
from proxyless.channel.channel import CHANNEL_CLOSED, Channel
from proxyless.channel.config_selector import CONFIG_SELECTOR, CallConfig, ConfigSelector
from proxyless.channel.config_state import parse_default_config
from proxyless.channel.credentials import CallCredentials
from proxyless.channel.lame import LameChannel
from proxyless.channel.loop_stack import LoopStack
from proxyless.channel.method import Method
from proxyless.channel.options import ChannelOptions
from proxyless.channel.pool import SubchannelPool
from proxyless.channel.security import SecuritySource
from proxyless.channel.subchannel_options import SubchannelOptions
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
