"""LoopStack: clock, network, subchannel pool and list of channels of one event loop."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from proxyless.base import NULL_TRACE, Trace
from proxyless.base.frozen import frozen
from proxyless.runtime import UNLIMITED_WORK

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel.pool import SubchannelPool
    from proxyless.runtime import Clock, DeadlineQueue, Network, Random, Work


class LoopChannels:
    """The channels of one event loop, for the services that show them. Used on that loop."""

    __slots__ = ("__weakref__", "_channels", "observer")

    def __init__(self) -> None:
        # `Channel` is in a higher layer, so it has no type here.
        self._channels: WeakSet[Any] = WeakSet()
        # Called with each channel that is created; None while nothing observes them.
        self.observer: Callable[[Any], None] | None = None

    def add(self, channel: Any) -> None:  # noqa: ANN401 - see above
        self._channels.add(channel)
        if self.observer is not None:
            self.observer(channel)

    def list_all(self) -> list[Any]:
        """The channels that are not garbage-collected, in the order of their IDs."""
        return sorted(self._channels, key=lambda channel: channel.id)


@frozen
class LoopStack:
    """The parts that all channels of one event loop share."""

    clock: Clock
    random: Random
    network: Network
    deadlines: DeadlineQueue
    pool: SubchannelPool
    trace: Trace = NULL_TRACE
    # Slices long updates and the start of many connection attempts.
    work: Work = UNLIMITED_WORK
    channels: LoopChannels = field(default_factory=LoopChannels)
