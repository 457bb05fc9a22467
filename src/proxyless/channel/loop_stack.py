"""LoopStack: clock, network and subchannel pool of one event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import NULL_TRACE, Trace
from proxyless.base.frozen import frozen
from proxyless.runtime import UNLIMITED_WORK

if TYPE_CHECKING:
    from proxyless.channel.pool import SubchannelPool
    from proxyless.runtime import Clock, DeadlineQueue, Network, Random, Work


@frozen
class LoopStack:
    """The parts that all channels of one event loop share."""

    clock: Clock
    random: Random
    network: Network
    deadlines: DeadlineQueue
    pool: SubchannelPool
    trace: Trace = NULL_TRACE
    # Of long updates, and of connection attempts.
    work: Work = UNLIMITED_WORK
