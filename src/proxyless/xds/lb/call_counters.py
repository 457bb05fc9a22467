"""How many RPCs does this process have under way to a cluster?

Specs: A32: the count is shared process-wide by cluster and EDS service, across channels.

Each loop counts for itself, so no lock is needed; the sum is exact on the loop that asks, and as
fresh as another thread's memory elsewhere. Most processes have one loop.
"""

from __future__ import annotations

import asyncio
from typing import Final

CounterKey = tuple[str, str]


class CallCounter:
    """The RPCs of one loop to one cluster. Driven by the pickers and trackers of that loop."""

    __slots__ = ("_shards", "active", "users")

    def __init__(self, shards: dict[int, CallCounter]) -> None:
        self._shards = shards
        self.active = 0
        # Policies that count here.
        self.users = 0

    def total(self) -> int:
        """Those of all loops."""
        if len(self._shards) == 1:
            return self.active
        return sum(shard.active for shard in list(self._shards.values()))


class CallCounters:
    """The counters of a process. Driven by the policies that acquire and release them."""

    def __init__(self) -> None:
        self._by_key: dict[CounterKey, dict[int, CallCounter]] = {}

    def acquire(self, key: CounterKey) -> CallCounter:
        """The counter of this cluster for the running loop, to be released."""
        shards = self._by_key.setdefault(key, {})
        loop = _loop_id()
        counter = shards.get(loop)
        if counter is None:
            counter = shards[loop] = CallCounter(shards)
        counter.users += 1
        return counter

    def release(self, key: CounterKey, counter: CallCounter) -> None:
        """One policy less. RPCs under way go on counting in what they hold."""
        counter.users -= 1
        shards = self._by_key.get(key)
        if counter.users == 0 and shards is not None:
            for loop, shard in list(shards.items()):
                if shard is counter and not counter.active:
                    del shards[loop]
            if not shards:
                del self._by_key[key]

    def __len__(self) -> int:
        return len(self._by_key)


def _loop_id() -> int:
    try:
        return id(asyncio.get_running_loop())
    except RuntimeError:  # Decisions are tested without a loop.
        return 0


PROCESS_COUNTERS: Final = CallCounters()
