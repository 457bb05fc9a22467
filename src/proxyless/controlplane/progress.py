"""When has something happened that somebody waits for?

`Progress` wakes those who wait each time that anything changed, and they look for themselves: a
test that waits so has no interval to choose and misses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress:
    """Driven by whoever changes something (note) and whoever waits (wait_until), on one loop."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def note(self) -> None:
        """Let everybody who waits look again, soon."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Until it holds; TimeoutError names what was waited for."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._wait()
        except TimeoutError:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}") from None

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
