"""Counters of the RPCs in flight to each cluster, for the circuit breaker, and their tracker.

Specs: A32: the count is shared process-wide by cluster and EDS service, across channels.

Each event loop has its own counter, so no lock is needed: the calling loop's part of the sum is
exact, the parts of other loops may be slightly old. RPCs of a closed loop, or of the parent process
of a fork, are not counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from proxyless.runtime.forks import call_after_fork_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.lb import CallEnd
    from proxyless.xds.client.load_counters import LocalityLoad

CounterKey = tuple[str, str]
Loop = asyncio.AbstractEventLoop


class CallCounter:
    """The RPCs of one loop to one cluster. Used only on that loop."""

    __slots__ = ("_on_unused", "_shards", "active", "users")

    def __init__(
        self, shards: dict[Loop | None, CallCounter], on_unused: Callable[[CallCounter], None]
    ) -> None:
        self._shards = shards
        self._on_unused = on_unused
        self.active = 0
        # The number of policies that hold this counter.
        self.users = 0

    def total(self) -> int:
        """The RPCs of all loops to the cluster."""
        if len(self._shards) == 1:
            return self.active
        return sum(shard.active for shard in list(self._shards.values()))

    def end_call(self) -> None:
        self.active -= 1
        if not self.active and not self.users:
            self._on_unused(self)

    def release(self) -> None:
        """Drop one policy's hold. RPCs in flight are still counted here."""
        self.users -= 1
        if not self.active and not self.users:
            self._on_unused(self)


class ClusterTracker:
    """Counts RPCs of one locality, for the circuit breaker and for load reports.

    Immutable: the end of an RPC is counted in the same counters as its start.
    """

    __slots__ = ("_counter", "_load")

    def __init__(self, counter: CallCounter, load: LocalityLoad | None) -> None:
        self._counter = counter
        self._load = load

    def on_start(self) -> None:
        self._counter.active += 1
        if self._load is not None:
            self._load.on_start()

    def on_end(self, end: CallEnd) -> None:
        self._counter.end_call()
        if self._load is not None:
            self._load.on_end(end.status.is_ok)


class CallCounters:
    """The counters of a process."""

    def __init__(self) -> None:
        self._by_key: dict[CounterKey, dict[Loop | None, CallCounter]] = {}

    def acquire(self, key: CounterKey) -> CallCounter:
        """The counter of this cluster for the running loop; the caller releases it."""
        shards = self._by_key.setdefault(key, {})
        loop = _running_loop()
        counter = shards.get(loop)
        if counter is None:
            for other in list(shards):  # A copy: loops of other threads change the shards, too.
                if other is not None and other.is_closed():
                    shards.pop(other, None)

            def on_unused(unused: CallCounter) -> None:
                if shards.get(loop) is unused:
                    del shards[loop]
                if not shards and self._by_key.get(key) is shards:
                    del self._by_key[key]

            counter = shards[loop] = CallCounter(shards, on_unused)
        counter.users += 1
        return counter

    def clear(self) -> None:
        """Remove all counters. Policies that hold one still count in it."""
        self._by_key = {}


def _running_loop() -> Loop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # Policies are tested without a loop.
        return None


PROCESS_COUNTERS: Final = CallCounters()

call_after_fork_in_child(PROCESS_COUNTERS.clear)
