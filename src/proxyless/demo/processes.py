"""Backend processes of the demo: started, killed, and started again at the same port."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxyless.demo.mesh import Place

# Enough for a cold start of Python and grpcio on a busy machine.
START_S_MAX: Final = 30.0

_LISTENING: Final = b"listening at "


class Backend:
    """One backend. It owns the process and keeps the port between two starts."""

    def __init__(self, place: Place, *, is_bad: bool = False) -> None:
        self.place: Final = place
        self._is_bad: Final = is_bad
        self.port = 0
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Start the process, at its earlier port if it has one; raises OSError."""
        assert self._process is None, "a backend is started once"
        command = ["-m", "proxyless.demo.backend", "--name", self.place.name]
        command += ["--port", str(self.port), *(["--bad"] if self._is_bad else [])]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            # Ctrl-C must only reach the demo, which ends its backends itself.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(START_S_MAX):
                self.port = await self._read_port(self._process)
        except BaseException:
            await self.kill()
            raise

    async def _read_port(self, process: Process) -> int:
        assert process.stdout is not None, "stdout is a pipe"
        line = await process.stdout.readline()
        if not line.startswith(_LISTENING):
            code = await process.wait()
            raise OSError(f"backend {self.place.name!r} ended with {code} before it listened")
        return int(line.removeprefix(_LISTENING))

    async def kill(self) -> None:
        """Send SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            # Reads the rest of its output, so that the pipes are closed.
            await process.communicate()
