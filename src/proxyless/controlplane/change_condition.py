"""Condition for tasks that wait until clients have done something, without polling."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ChangeCondition:
    """Like asyncio.Condition, without a lock: all callers are on one event loop."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify_all(self) -> None:
        """Let each waiting task evaluate its predicate again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for(self, predicate: Callable[[], T | None], what: str, timeout_s: float) -> T:
        """The first true result of the predicate; TimeoutError with `what` in its text."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (result := predicate()):
                    await self._wait()
        except TimeoutError:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}") from None
        return result

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
