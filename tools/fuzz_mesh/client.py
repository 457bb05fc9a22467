"""The process of one client: sends RPCs at a steady rate, and prints a JSON line for each.

    python -m tools.fuzz_mesh.client proxyless|grpcio BOOTSTRAP RATE_PER_S

After its first successful RPC it prints `{"ready": true}`. A line on stdin starts the load, the
next one stops it: it then prints the RPCs in flight, and ends when they have ended. Times
are monotonic seconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time  # noqa: TID251 - a client on real time
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import grpc
import grpc.aio

from tools.fuzz_mesh.backends import WHO
from tools.fuzz_mesh.mesh import GOLD, HASH_HEADER, TARGET
from tools.fuzz_mesh.stalls import watch_stalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.fuzz_mesh.records import Stall

# grpcio's objects have no types.
Untyped: TypeAlias = Any

METHOD: Final = "/test.Mesh/Who"
FIRST_RPC_S_MAX: Final = 30.0
# Kinds of RPCs by name: the deadline, and whether the RPC waits for ready.
KINDS: Final = {"plain": (5.0, False), "short": (2.0, False), "patient": (8.0, True)}
# The repeated order of kinds.
KIND_ORDER: Final = ("plain", "patient", "plain", "short", "plain")
GOLD_EVERY: Final = 3
USERS: Final = 50
UNDER_WAY_MAX: Final = 2_000


def open_channel(client: str, bootstrap: Mapping[str, object]) -> Untyped:
    if client == "grpcio":
        os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(bootstrap)
        return grpc.aio.insecure_channel(TARGET)
    import proxyless  # noqa: PLC0415 - not needed in grpcio's process

    return proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap)


class Load:
    """RPCs at a fixed rate, and their records."""

    def __init__(self, channel: Untyped, records: TextIO) -> None:
        self._method = channel.unary_unary(METHOD)
        self._records = records
        # The start times of RPCs in flight, by task.
        self._tasks: dict[asyncio.Task[None], float] = {}

    async def run(self, rate_per_s: float, is_over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        begin_s, number = loop.time(), 0
        while not is_over.is_set():
            due_s = begin_s + number / rate_per_s
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())  # noqa: TID251 - on real time
            elif len(self._tasks) < UNDER_WAY_MAX:
                self._start(number)
                number += 1
            else:
                raise RuntimeError(f"{UNDER_WAY_MAX} RPCs are under way")
        self.print({"under_way": sorted(self._tasks.values())})
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, number: int) -> None:
        task = asyncio.create_task(self._call(number))
        self._tasks[task] = asyncio.get_running_loop().time()
        task.add_done_callback(self._tasks.pop)

    async def _call(self, number: int) -> None:
        kind = KIND_ORDER[number % len(KIND_ORDER)]
        timeout_s, is_patient = KINDS[kind]
        metadata = [(HASH_HEADER, f"u{number * 7 % USERS}")]
        if number % GOLD_EVERY == 0:
            metadata += GOLD.items()
        start_s, code, details, peer = time.monotonic(), "OK", "", ""
        try:
            answer = await self._method(
                WHO, timeout=timeout_s, wait_for_ready=is_patient, metadata=tuple(metadata)
            )
            peer = bytes(answer).decode()
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, str(error.details())
        record = {"kind": kind, "start": start_s, "end": time.monotonic(), "code": code}
        self.print(record | {"details": details, "peer": peer})

    def print_stall(self, stall: Stall) -> None:
        self.print({"stall": {"start": stall.start_s, "end": stall.end_s, "cpu": stall.cpu_s}})

    def print(self, value: Mapping[str, object]) -> None:
        self._records.write(json.dumps(value) + "\n")
        self._records.flush()


async def serve(client: str, bootstrap: str, rate_per_s: str, records: TextIO) -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with open_channel(client, json.loads(bootstrap)) as channel:
        load = Load(channel, records)
        await channel.unary_unary(METHOD)(WHO, timeout=FIRST_RPC_S_MAX, wait_for_ready=True)
        load.print({"ready": True})
        if not await orders.readline():
            return
        is_over = asyncio.Event()
        stalls = asyncio.create_task(watch_stalls(load.print_stall))
        running = asyncio.create_task(load.run(float(rate_per_s), is_over))
        await orders.readline()
        is_over.set()
        await running
        stalls.cancel()


def main() -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be parsed as a record.
    records = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    client, bootstrap, rate_per_s = sys.argv[1:]
    asyncio.run(serve(client, bootstrap, rate_per_s, records))


if __name__ == "__main__":
    main()
