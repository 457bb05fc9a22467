"""Interfaces to time, randomness and the network, with their asyncio implementations.

No other package reads a clock, draws random numbers or opens a socket, so that a simulation can
replace all three.

clock       Clock and Timer; LoopClock on an asyncio loop; IDLE_TIMER in place of None
virtual     VirtualClock, which a test advances
deadlines   DeadlineQueue: any number of deadlines on one timer
rand        Random, seeded by the system or by a test
network     Network and Listener; AsyncioNetwork on real sockets
shared_tls  connect_tls: TLS on asyncio's own loops, whose connections share a read buffer
socket_transport  SocketTransport: transport of a TCP connection, on asyncio's own loops
direct_writes  writes past the buffer of an asyncio transport; is_closed_by_peer
lookups     LookupThreads: names are resolved in threads, of which slow names hold only a part
daemon_threads  DaemonThreads: thread pool for calls that may never return
offload     Offload: runs blocking work in a thread and calls back on the loop; run_in_thread
tasks       create_owned_task
forks       hooks in the child of a fork, which uses neither loops nor sockets of its parent
garbage     freeze; full garbage collections are deferred while much work waits
soon        Soon and SoonQueue: run an action once, in the next turn of the loop
work_queue  WorkQueue: runs long work in slices, one per turn of the loop; Steps, finish
logs        LogTrace: events in the standard library's logs; GRPC_VERBOSITY and GRPC_TRACE
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.runtime.clock import IDLE_TIMER, Clock, LoopClock, Timer
from proxyless.runtime.deadlines import DeadlineQueue
from proxyless.runtime.logs import LogTrace, apply_environment
from proxyless.runtime.network import AsyncioNetwork, Listener, Network
from proxyless.runtime.rand import Random, seeded_random, system_random
from proxyless.runtime.soon import Soon, SoonQueue
from proxyless.runtime.work_queue import UNLIMITED_WORK, ActionsJob, Job, StepsJob, Work, WorkQueue

if TYPE_CHECKING:
    from proxyless.runtime.virtual import VirtualClock
else:
    __getattr__ = lazy_exports(__name__, {"VirtualClock": "virtual"})

__all__ = [
    "IDLE_TIMER",
    "UNLIMITED_WORK",
    "ActionsJob",
    "AsyncioNetwork",
    "Clock",
    "DeadlineQueue",
    "Job",
    "Listener",
    "LogTrace",
    "LoopClock",
    "Network",
    "Random",
    "Soon",
    "SoonQueue",
    "StepsJob",
    "Timer",
    "VirtualClock",
    "Work",
    "WorkQueue",
    "apply_environment",
    "seeded_random",
    "system_random",
]
