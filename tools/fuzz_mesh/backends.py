"""Backend processes: the C echo server of the benchmarks, one process per backend.

A backend keeps its port for its life, so that a started one replaces a killed one. It is killed by
SIGKILL, drained by SIGTERM (GOAWAY first), and made a black hole by SIGSTOP: the kernel accepts
connections for it, and there are no responses.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from bench.backend import BackendUnavailableError, build_c_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START_S_MAX: Final = 30.0
# A backend answers it with its own address.
WHO: Final = b"\xffWHO"


class Backend:
    """One process, which may be started again at the same port."""

    def __init__(self, binary: Path) -> None:
        self._binary: Final = binary
        # Set by the first start.
        self.port = 0
        # None if it does not run.
        self._process: Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it; one that runs, or has not drained yet, is killed first."""
        await self.kill()
        self._process = await asyncio.create_subprocess_exec(
            self._binary,
            "--die-with-parent",
            str(self.port),
            stdin=DEVNULL,
            stdout=PIPE,
            # Ctrl-C must not reach the backends: the fuzzer ends them itself.
            start_new_session=True,
        )
        assert self._process.stdout is not None, "it is started with a pipe as stdout"
        async with asyncio.timeout(START_S_MAX):
            words = (await self._process.stdout.readline()).decode().split()
        if words[:1] != ["up"]:
            raise BackendUnavailableError(f"backend at port {self.port}: got {words!r}")
        self.port = int(words[1])

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    def drain(self) -> None:
        self._send(signal.SIGTERM)

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "a plan sends signals to backends that run"
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


@asynccontextmanager
async def run_backends(count: int) -> AsyncIterator[list[Backend]]:
    """Running backends; BackendUnavailableError without a C compiler."""
    binary = await asyncio.to_thread(build_c_backend)
    if binary is None:
        raise BackendUnavailableError("no C compiler found, wanted one for bench/backend/be.c")
    backends = [Backend(binary) for _ in range(count)]
    async with AsyncExitStack() as stack:
        for backend in backends:
            stack.push_async_callback(backend.kill)
            await backend.start()
        yield backends
