"""How is a steady number of RPCs a second kept up, answered or not?

Timers of event loops have steps of a millisecond, so above 1,000 a second some start together.
"""

import asyncio
from collections.abc import Awaitable, Callable


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
            await asyncio.sleep(begin_s + started / rate_per_s - loop.time())
    return started


async def _await(ask: Callable[[], Awaitable[None]]) -> None:
    await ask()
