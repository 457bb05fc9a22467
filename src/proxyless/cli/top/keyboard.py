"""Keys of a terminal, read on the event loop without waiting for a line."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from proxyless.cli.top.navigation import QUIT, split_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

READ_BYTES: Final = 1024


class Keyboard:
    """Calls a function with the name of each key while it is entered.

    Does nothing on Windows, or if standard input is not a terminal. Its exit restores the terminal.
    """

    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key: Final = on_key
        has_terminals = os.name == "posix" and sys.stdin is not None
        self._is_terminal: Final = has_terminals and sys.stdin.isatty()
        self._saved: list[Any] = []

    def __enter__(self) -> Self:
        if self._is_terminal:
            # POSIX only, as are readers of a loop.
            import termios  # noqa: PLC0415
            import tty  # noqa: PLC0415

            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin.fileno())
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_readable)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            import termios  # noqa: PLC0415

            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            with suppress(termios.error):  # The terminal is closed.
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def _on_readable(self) -> None:
        try:
            typed = os.read(sys.stdin.fileno(), READ_BYTES)
        except OSError:  # The terminal is closed.
            typed = b""
        if not typed:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._on_key(QUIT)
        for key in split_keys(typed):
            self._on_key(key)
