"""Open loop: starts a fixed number of RPCs per second, independent of their responses.

Event loops round timers to milliseconds in different ways: uvloop rounds 0.4 ms to 0, and would
spin. So sleeps are at least 1 ms, and above 1,000 per second some RPCs start together.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

TICK_S: Final = 0.001


async def run_paced(
    call: Callable[[], Awaitable[None]], rate_per_s: float, duration_s: float
) -> int:
    """Start calls at this rate, then wait for those in flight; returns the number of calls.

    The first call that raises cancels the others.
    """
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    started = 0
    async with asyncio.TaskGroup() as group:
        while (elapsed_s := loop.time() - begin_s) < duration_s:
            for _ in range(int(elapsed_s * rate_per_s) + 1 - started):
                group.create_task(_await(call))
                started += 1
            due_s = begin_s + started / rate_per_s
            await asyncio.sleep(max(due_s - loop.time(), TICK_S))
    return started


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()
