"""What does a command say, and has it said what its page shows?

A command that ends is run to its end. One that is left running has a terminal with a name, whose
output is read as it comes; what was matched once is not looked at again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

PATIENCE_S = 60.0
# How long a command has to end by itself.
KINDNESS_S = 2.0


class PageError(AssertionError):
    """A page shows what is not so."""


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """As a user has it whose environment is active; output comes at once and without colours.

    Readers need not have pytest-asyncio, which has things to say where nobody configures it.
    """
    own = str(Path(sys.executable).parent)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    path = f"{own}{os.pathsep}{kept.get('PATH', '')}"
    quiet = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "PYTEST_ADDOPTS": "-p no:asyncio"}
    return {**kept, **quiet, "PATH": path, **added}


class Terminal:
    """One command line, in a shell of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._unread = ""
        self.said = ""

    @classmethod
    async def start(cls, command: str, directory: Path, added: Mapping[str, str]) -> Terminal:
        """What it writes comes together, as in a terminal."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=directory,
            env=environment(added),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return cls(process)

    async def end(self, patience_s: float = PATIENCE_S) -> int:
        """Let it come to its end; returns the exit code."""
        async with asyncio.timeout(patience_s):
            while await self._read():
                pass
            return await self._process.wait()

    async def wait_for(self, pattern: re.Pattern[str]) -> None:
        """Until it has said this, after what was waited for before."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (found := pattern.search(self._unread)) is None:
                    if not await self._read():
                        raise PageError(f"ended, and said:\n{self._unread}")
        except TimeoutError:
            raise PageError(f"said in {PATIENCE_S} s only:\n{self._unread}") from None
        self._unread = self._unread[found.end() :]

    async def _read(self) -> bool:
        assert self._process.stdout is not None, "the output is a pipe"
        line = (await self._process.stdout.readline()).decode()
        self.said += line
        self._unread += line
        return bool(line)

    async def stop(self) -> None:
        """End it as Ctrl-C does, with whatever it has started; then less kindly."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            try:
                # A shell that was started in the background is deaf to Ctrl-C.
                await self.end(KINDNESS_S)
            except TimeoutError:
                continue
            return
