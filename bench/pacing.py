"""How is a steady number of RPCs a second kept up, answered or not?

Loops round their timers to milliseconds, each in another way: uvloop makes 0.4 ms nothing, and
would spin. So nobody sleeps for less than one, and above 1,000 a second some RPCs start together.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

TICK_S: Final = 0.001


async def run_paced(
    ask: Callable[[], Awaitable[None]], rate_per_s: float, duration_s: float
) -> int:
    """Ask so often for so long, then wait for what is under way; returns how often.

    Asking that raises ends it all.
    """
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    started = 0
    async with asyncio.TaskGroup() as group:
        while (elapsed_s := loop.time() - begin_s) < duration_s:
            for _ in range(int(elapsed_s * rate_per_s) + 1 - started):
                group.create_task(_await(ask))
                started += 1
            due_s = begin_s + started / rate_per_s
            await asyncio.sleep(max(due_s - loop.time(), TICK_S))
    return started


async def _await(ask: Callable[[], Awaitable[None]]) -> None:
    await ask()
