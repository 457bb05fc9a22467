"""The backends of the demo as processes: started, killed and started again at the same port."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxyless.demo.mesh import Place

# A cold start of Python and grpcio on a busy machine.
START_S_MAX: Final = 30.0

_LISTENING: Final = b"listening at "


class Backend:
    """One of them. Driven by the stage."""

    def __init__(self, place: Place, *, is_bad: bool = False) -> None:
        # Fixed at construction.
        self.place: Final = place
        self._is_bad: Final = is_bad
        # From the first start on.
        self.port = 0
        # While it runs.
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Run, at the same port as ever; OSError if that cannot be had."""
        assert self._process is None, "a backend is started once"
        command = ["-m", "proxyless.demo.backend", "--name", self.place.name]
        command += ["--port", str(self.port), *(["--bad"] if self._is_bad else [])]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            # Ctrl-C is for the demo, which ends its backends itself.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(START_S_MAX):
                self.port = await self._read_port(self._process)
        except BaseException:
            await self.kill()
            raise

    async def _read_port(self, process: Process) -> int:
        assert process.stdout is not None, "it was asked for"
        line = await process.stdout.readline()
        if not line.startswith(_LISTENING):
            code = await process.wait()
            raise OSError(f"backend {self.place.name!r} ended with {code} before it listened")
        return int(line.removeprefix(_LISTENING))

    async def kill(self) -> None:
        """End it as a power failure would, with SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            # Also reads what it said, so that nothing of it stays open.
            await process.communicate()
