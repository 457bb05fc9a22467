"""Runs of the command line `proxyless` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# Only a hang takes longer, even if the start of a process takes seconds.
PATIENCE_S = 45.0


class Finished(NamedTuple):
    """A command that has ended."""

    code: int | None
    out: str
    err: str


async def run_command(
    *words: str, environ: Mapping[str, str] | None = None, stdin: bytes = b""
) -> Finished:
    """Run `proxyless` with these words to its end, without a terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxyless", *words),
        env={**os.environ, **(environ or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Finished(process.returncode, out.decode(), err.decode())
