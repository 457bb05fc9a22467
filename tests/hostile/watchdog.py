"""Watchdog of event loops: measures the CPU time of every callback.

The limit is for the machine on which it was set. A slower machine, or one that is slow just now,
gets as much more as a reference loop takes there. Under a tracer nothing is checked.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time  # noqa: TID251 - CPU time, not the time of day
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# "no loop turn over 50 ms of our own CPU"
LIMIT_S: Final = 0.05
# CPU time of `_run_reference` on the machine on which the limit was set.
REFERENCE_S: Final = 0.0017


@dataclass
class Watchdog:
    """The longest callback so far, and the number of callbacks."""

    limit_s: float
    longest_s: float = 0.0
    longest: str = ""
    callbacks: int = 0

    def record(self, handle: asyncio.Handle, cpu_s: float) -> None:
        self.callbacks += 1
        if cpu_s > self.longest_s:
            self.longest_s, self.longest = cpu_s, _describe(handle)

    def check(self) -> None:
        if self.longest_s <= self.limit_s or sys.gettrace() is not None:
            return
        limit_s = self.limit_s * max(1.0, _run_reference() / REFERENCE_S)
        text = f"{self.longest} took {self.longest_s * 1000:.0f} ms of CPU"
        assert self.longest_s <= limit_s, f"{text}, wanted at most {limit_s * 1000:.0f}"


def _run_reference() -> float:
    """CPU time of a fixed piece of work: the median of five runs."""
    times = []
    for _ in range(5):
        start_s = time.thread_time()
        table = {}
        for number in range(15_000):
            table[number] = str(number)
        times.append(time.thread_time() - start_s)
    return sorted(times)[2]


@contextmanager
def loop_watchdog(limit_s: float = LIMIT_S) -> Iterator[Watchdog]:
    """Fail at the end of the block if a callback of an asyncio loop took more CPU time.

    It covers loops of Python's asyncio in all threads, and those derived from them, but not uvloop.
    Garbage collection is off inside: its pauses depend on everything else in the process.
    """
    watchdog = Watchdog(limit_s)
    run = asyncio.Handle._run  # noqa: SLF001 - all callbacks go through it

    def run_measured(handle: asyncio.Handle) -> None:
        # CPU time of this thread: other processes and threads do not count.
        start_s = time.thread_time()
        try:
            run(handle)
        finally:
            watchdog.record(handle, time.thread_time() - start_s)

    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    asyncio.Handle._run = run_measured  # type: ignore[method-assign, assignment]  # noqa: SLF001
    try:
        yield watchdog
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001
        if was_enabled:
            gc.enable()
    watchdog.check()


def _describe(handle: asyncio.Handle) -> str:
    """The callback, or the task that it is a step of. A handle that was cancelled has none."""
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    return repr(owner if isinstance(owner, asyncio.Task) else callback)
