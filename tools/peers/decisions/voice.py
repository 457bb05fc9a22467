"""A voice: a process that sends RPCs.

It reads commands from its standard input, and writes a reply to each, as lines of JSON. Commands
run concurrently. A command has

    id              of the reply
    target          of the channel, which is kept for later commands
    method, body    the path and the request, a text
    metadata        pairs; values of keys that end in -bin are in base64
    count           of RPCs, one after the other, or all at once if `concurrent`
    timeout_s, wait_for_ready

and a reply has the `id` and `rpcs`: the code's name, details, reply, duration in seconds, and the
values of set-cookie, for each RPC.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from tools.peers.build import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

# In addition to the timeouts of a command's RPCs: the start of a Java process under load.
_PATIENCE_S: Final = 60.0
_LINE_BYTES_MAX: Final = 2**22


@dataclass(frozen=True)
class Command:
    """RPCs to send."""

    target: str
    method: str
    body: str = ""
    metadata: Sequence[tuple[str, str]] = ()
    count: int = 1
    concurrent: bool = False
    timeout_s: float = 25.0
    wait_for_ready: bool = False


@dataclass(frozen=True)
class Rpc:
    """The result of an RPC."""

    code: str
    details: str = ""
    reply: str = ""
    seconds: float = 0.0
    cookies: Sequence[str] = field(default=())


class VoiceEndedError(Exception):
    """The process ended before it replied."""


class Voice:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = count()
        self._waiting: dict[int, asyncio.Future[list[Rpc]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, command: Command) -> list[Rpc]:
        """Send the RPCs, and wait for their results."""
        number = next(self._ids)
        future: asyncio.Future[list[Rpc]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        assert self._process.stdin is not None
        line = json.dumps({"id": number, **asdict(command)})
        with suppress(ConnectionError):  # Then `_read` sees the end.
            self._process.stdin.write(f"{line}\n".encode())
            await self._process.stdin.drain()
        if self._reader.done():
            raise VoiceEndedError
        times = 1 if command.concurrent else command.count
        async with asyncio.timeout(command.timeout_s * times + _PATIENCE_S):
            return await future

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            reply = json.loads(line)
            self._waiting.pop(reply["id"]).set_result([Rpc(**each) for each in reply["rpcs"]])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(VoiceEndedError())

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader


@asynccontextmanager
async def running_voice(
    program: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[Voice]:
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES_MAX,
    )
    voice = Voice(process)
    try:
        yield voice
    finally:
        await voice.close()
