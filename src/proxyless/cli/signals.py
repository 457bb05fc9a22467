"""Signals of commands: Ctrl-C and SIGTERM end them, SIGHUP only if a terminal is closed."""

from __future__ import annotations

import signal
import sys
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


def call_on_hangup(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    """Call `action` on the loop at SIGHUP, by which service managers ask for a reload.

    A process with a terminal ends at SIGHUP, because its terminal was closed.
    """
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if hasattr(signal, "SIGHUP") and not has_terminal:
        loop.add_signal_handler(signal.SIGHUP, action)
