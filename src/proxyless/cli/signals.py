"""Signals that end a command: Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


def call_on_termination(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    """Call `action` on the loop at SIGINT and SIGTERM, for the rest of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, action)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(action))
