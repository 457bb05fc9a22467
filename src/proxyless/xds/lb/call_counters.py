"""How many RPCs does this process have under way to a cluster?

Specs: A32: the count is shared process-wide by cluster and EDS service, across channels.

Each loop counts for itself, so no lock is needed; the sum is exact on the loop that asks, and as
fresh as another thread's memory elsewhere. Most processes have one loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

CounterKey = tuple[str, str]


class CallCounter:
    """The RPCs of one loop to one cluster. Driven by the pickers and trackers of that loop."""

    __slots__ = ("_forget", "_shards", "active", "users")

    def __init__(
        self, shards: dict[int, CallCounter], forget: Callable[[CallCounter], None]
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
        self._by_key: dict[CounterKey, dict[int, CallCounter]] = {}

    def acquire(self, key: CounterKey) -> CallCounter:
        """The counter of this cluster for the running loop, to be released."""
        shards = self._by_key.setdefault(key, {})
        loop = _loop_id()
        counter = shards.get(loop)
        if counter is None:

            def forget(unused: CallCounter) -> None:
                if shards.get(loop) is unused:
                    del shards[loop]
                if not shards and self._by_key.get(key) is shards:
                    del self._by_key[key]

            counter = shards[loop] = CallCounter(shards, forget)
        counter.users += 1
        return counter

    def __len__(self) -> int:
        return len(self._by_key)


def _loop_id() -> int:
    try:
        return id(asyncio.get_running_loop())
    except RuntimeError:  # Decisions are tested without a loop.
        return 0


PROCESS_COUNTERS: Final = CallCounters()
