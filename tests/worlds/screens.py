"""A command on a pseudo-terminal, and the text of its screen.

The screen interprets the escape sequences that rich and our commands write: cursor position, erase,
and the alternate screen. Colours are left out.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

LINES, COLUMNS = 30, 120
# Only a hang takes longer, even if the start of a process takes seconds.
PATIENCE_S = 45.0

_SEQUENCE = re.compile(r"\x1b\[(?P<given>[?\d;]*)(?P<kind>[A-Za-z])")


class Screen:
    """The characters of a terminal."""

    def __init__(self) -> None:
        self._lines = [[" "] * COLUMNS for _ in range(LINES)]
        self._row = self._column = 0
        self._unread = ""
        self.is_alternate = False
        self.is_cursor_shown = True

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self._lines)

    def line_with(self, text: str) -> str:
        """The first line that contains the text; empty if there is none."""
        return next((line for line in self.text.splitlines() if text in line), "")

    def feed(self, text: str) -> None:
        self._unread += text
        while self._unread:
            if self._unread[0] != "\x1b":
                self._put(self._unread[0])
                self._unread = self._unread[1:]
                continue
            found = _SEQUENCE.match(self._unread)
            if found is None:
                assert len(self._unread) < 20, f"unknown sequence {self._unread[:20]!r}"
                return
            self._unread = self._unread[found.end() :]
            self._control(found["kind"], found["given"])

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row = min(self._row + 1, LINES - 1)
        elif self._column < COLUMNS:
            self._lines[self._row][self._column] = character
            self._column += 1

    def _control(self, kind: str, given: str) -> None:
        if kind == "H":
            row, _, column = given.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif kind == "J":
            self._lines = [[" "] * COLUMNS for _ in range(LINES)]
        elif kind == "K":
            start = self._column
            self._lines[self._row][start:] = [" "] * (COLUMNS - start)
        elif given == "?1049":
            self.is_alternate = kind == "h"
        elif given == "?25":
            self.is_cursor_shown = kind == "h"
        else:
            assert kind == "m", f"unknown sequence {given}{kind}"


class CommandOnTerminal:
    """A process whose standard streams are a terminal."""

    def __init__(
        self, process: asyncio.subprocess.Process, master: int, slave: int, before: list[Any]
    ) -> None:
        self.process = process
        # The modes of the terminal before the process began.
        self.attributes_before = before
        self.screen = Screen()
        self._master = master
        self._slave = slave
        self._changed = asyncio.Event()
        # A read may end inside a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def attributes(self) -> list[Any]:
        """The modes of the terminal, such as echo."""
        return termios.tcgetattr(self._slave)

    def on_readable(self) -> None:
        self.screen.feed(self._decoder.decode(os.read(self._master, 65_536)))
        self._changed.set()

    async def wait_for(self, is_shown: Callable[[Screen], object], what: str) -> None:
        """Wait until the screen shows it."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_shown(self.screen):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited for {what}, got:\n{self.screen.text}") from None

    async def end(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


@asynccontextmanager
async def on_terminal(
    *words: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[CommandOnTerminal]:
    """Run `proxyless` with these words on a terminal of `LINES` and `COLUMNS`."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    before = termios.tcgetattr(slave)
    kept = {key: os.environ[key] for key in os.environ if key not in {"NO_COLOR", "FORCE_COLOR"}}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxyless", *words),
        env={**kept, "TERM": "xterm-256color", **(environ or {})},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    command = CommandOnTerminal(process, master, slave, before)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, command.on_readable)
    try:
        yield command
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        loop.remove_reader(master)
        os.close(master)
        os.close(slave)
