"""Wake-up of an event loop by other threads, through an eventfd where the system has it.

`call_soon_threadsafe` makes a handle and copies a context for each wake-up; asyncio empties its
pipe with two reads, and uvloop runs the handle in a later step. A blocking RPC has one wake-up.
"""

from __future__ import annotations

import os
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


def make_wake_up(
    loop: asyncio.AbstractEventLoop, on_wake: Callable[[], None]
) -> Callable[[], object]:
    """A function that calls `on_wake` on the loop, soon. Any thread may call it.

    Several wake-ups may become one. After the loop is closed a wake-up does nothing, or raises
    RuntimeError. Called before the loop runs.
    """
    try:
        return _EventFd(loop, on_wake).wake
    except (AttributeError, NotImplementedError, OSError):
        # Another system than Linux, or no more descriptors.
        return lambda: loop.call_soon_threadsafe(on_wake)


class _EventFd:
    """A descriptor that the loop reads when a thread has written to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_wake: Callable[[], None]) -> None:
        self._on_wake = on_wake
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # The context of the first RPC would stay alive with the loop.
        Context().run(loop.add_reader, self._descriptor, self._on_readable)

    def wake(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def _on_readable(self) -> None:
        os.eventfd_read(self._descriptor)
        self._on_wake()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Not earlier, because a thread may be about to write: the number may be another file's by
        # then.
        if hasattr(self, "_descriptor"):
            close(self._descriptor)
