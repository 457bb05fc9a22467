"""Commands of pages, and their output.

A command that ends is run to its end. One that is left running has a terminal with a name, whose
output is read as it comes; output that was matched is not matched again.
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

TIMEOUT_S = 60.0
# The time for a command to end by itself.
GRACE_S = 2.0


class PageError(AssertionError):
    """A block of a page fails, or has another output."""


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """Variables of an active virtual environment, without buffering and colours.

    pytest-asyncio is disabled: readers may not have it, and it prints warnings.
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
        self.output = ""

    @classmethod
    async def start(cls, command: str, directory: Path, added: Mapping[str, str]) -> Terminal:
        """Start a command; stdout and stderr are one stream, as in a terminal."""
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

    async def end(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for its end; returns the exit code."""
        async with asyncio.timeout(timeout_s):
            while await self._read():
                pass
            return await self._process.wait()

    async def wait_for(self, pattern: re.Pattern[str]) -> None:
        """Wait for this output, after the output that was matched before."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while (found := pattern.search(self._unread)) is None:
                    if not await self._read():
                        raise PageError(f"ended, and printed:\n{self._unread}")
        except TimeoutError:
            raise PageError(f"printed in {TIMEOUT_S} s only:\n{self._unread}") from None
        self._unread = self._unread[found.end() :]

    async def _read(self) -> bool:
        assert self._process.stdout is not None, "the output is a pipe"
        line = (await self._process.stdout.readline()).decode()
        self.output += line
        self._unread += line
        return bool(line)

    async def stop(self) -> None:
        """End it and its children with SIGINT, then with SIGKILL."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            try:
                # A shell that was started in the background ignores SIGINT.
                await self.end(GRACE_S)
            except TimeoutError:
                continue
            return
