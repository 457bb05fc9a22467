"""The seams between decisions and the world: time, chance and the network.

The only room that reads a clock, draws at random or opens a socket. Each seam is a Protocol with
its asyncio version beside it; the simulator brings its own.

clock       Clock and Timer; LoopClock on an asyncio loop; IDLE_TIMER for "none"
virtual     VirtualClock, which stands still until a test advances it
deadlines   DeadlineQueue: any number of deadlines on one timer
rand        Random, and where to get one
network     Network and Listener; AsyncioNetwork on real sockets
logs        LogTrace: events in the standard library's logs; what GRPC_TRACE asks for
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.runtime.clock import IDLE_TIMER, Clock, LoopClock, Timer
from proxyless.runtime.deadlines import Deadline, DeadlineQueue
from proxyless.runtime.logs import LogTrace, apply_environment
from proxyless.runtime.network import AsyncioNetwork, Listener, Network
from proxyless.runtime.rand import Random, seeded_random, system_random

if TYPE_CHECKING:
    from proxyless.runtime.virtual import VirtualClock
else:
    __getattr__ = lazy_exports(__name__, {"VirtualClock": "virtual"})

__all__ = [
    "IDLE_TIMER",
    "AsyncioNetwork",
    "Clock",
    "Deadline",
    "DeadlineQueue",
    "Listener",
    "LogTrace",
    "LoopClock",
    "Network",
    "Random",
    "Timer",
    "VirtualClock",
    "apply_environment",
    "seeded_random",
    "system_random",
]
