"""The process of one client of the churn: RPCs at a fixed rate, and its resources when asked.

    python -m bench.churn_child NAME CONTROL_PLANE RATE

The first line on stdout says that the first RPC has succeeded. Then one JSON line per order on
stdin, one JSON line per answer on stdout; the end of stdin ends the process. Nothing is kept per
RPC, so that growth is the client's.
"""

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import grpc

from bench.clients import METHOD
from bench.pacing import run_paced
from bench.soak_child import FIRST_TIMEOUT_S, PAYLOAD, TIMEOUT_S, answer, open_channel

FOREVER_S: Final = 1e9


class CountingCaller:
    """Calls the method, and counts the RPCs and the failed ones."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - of either library
        self._call = channel.unary_unary(METHOD)
        self.rpcs = 0
        self.failed = 0
        self.last_failure = ""

    async def call(self) -> None:
        try:
            await self._call(PAYLOAD, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            self.failed += 1
            self.last_failure = f"{error.code().name}: {error.details() or ''}"
        self.rpcs += 1


def count_resources(caller: CountingCaller) -> Mapping[str, object]:
    """What this process holds now, after a full collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_kb": pages * resource.getpagesize() // 1000,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "objects": len(gc.get_objects()),
        "cpu_s": time.process_time(),
        "rpcs": caller.rpcs,
        "failed": caller.failed,
        "last_failure": caller.last_failure,
    }


async def run(name: str, control_plane: str, rate_per_s: float, answers: TextIO) -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with open_channel(name, control_plane) as channel:
        first = channel.unary_unary(METHOD)
        await first(PAYLOAD, timeout=FIRST_TIMEOUT_S, wait_for_ready=True)
        caller = CountingCaller(channel)
        load = asyncio.create_task(run_paced(caller.call, rate_per_s, FOREVER_S))
        answer(answers, {"ready": True})
        while line := await orders.readline():
            assert json.loads(line) == {"count": True}, "the only order"
            answer(answers, count_resources(caller))
        load.cancel()
        await asyncio.wait([load])


def main() -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be parsed as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, control_plane, rate_per_s = sys.argv[1:]
    asyncio.run(run(name, control_plane, float(rate_per_s), answers))


if __name__ == "__main__":
    main()
