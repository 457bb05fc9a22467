"""How many RPCs does this process have under way to a cluster?

Specs: A32: the count is shared process-wide by cluster and EDS service, across channels.

Each loop counts for itself, so no lock is needed; the sum is exact on the loop that asks, and as
fresh as another thread's memory elsewhere. Most processes have one loop. RPCs of a loop that was
closed, or of the process that this one was forked from, are not under way any more.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

CounterKey = tuple[str, str]
Loop = asyncio.AbstractEventLoop


class CallCounter:
    """The RPCs of one loop to one cluster. Driven by the pickers and trackers of that loop."""

    __slots__ = ("_forget", "_shards", "active", "users")

    def __init__(
        self, shards: dict[Loop | None, CallCounter], forget: Callable[[CallCounter], None]
    ) -> None:
        self._shards = shards
        self._forget = forget
        self.active = 0
        # Policies that count here.
        self.users = 0

    def total(self) -> int:
        """Those of all loops."""
        if len(self._shards) == 1:
            return self.active
        return sum(shard.active for shard in list(self._shards.values()))

    def end_call(self) -> None:
        """An RPC that was counted has ended."""
        self.active -= 1
        if not self.active and not self.users:
            self._forget(self)

    def release(self) -> None:
        """One policy less. RPCs under way go on counting here."""
        self.users -= 1
        if not self.active and not self.users:
            self._forget(self)


class CallCounters:
    """The counters of a process. Driven by the policies that acquire and release them."""

    def __init__(self) -> None:
        self._by_key: dict[CounterKey, dict[Loop | None, CallCounter]] = {}

    def acquire(self, key: CounterKey) -> CallCounter:
        """The counter of this cluster for the running loop, to be released."""
        shards = self._by_key.setdefault(key, {})
        loop = _running_loop()
        counter = shards.get(loop)
        if counter is None:
            for other in list(shards):  # Other threads have loops, too.
                if other is not None and other.is_closed():
                    shards.pop(other, None)

            def forget(unused: CallCounter) -> None:
                if shards.get(loop) is unused:
                    del shards[loop]
                if not shards and self._by_key.get(key) is shards:
                    del self._by_key[key]

            counter = shards[loop] = CallCounter(shards, forget)
        counter.users += 1
        return counter

    def clear(self) -> None:
        """Start afresh; whoever counts already goes on for itself."""
        self._by_key = {}

    def __len__(self) -> int:
        return len(self._by_key)


def _running_loop() -> Loop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # Decisions are tested without a loop.
        return None


PROCESS_COUNTERS: Final = CallCounters()

os.register_at_fork(after_in_child=PROCESS_COUNTERS.clear)
