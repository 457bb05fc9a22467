"""The process of one client.

    python -m bench.child CLIENT ADDRESS

One JSON line per order on stdin, one JSON line per answer on stdout; the end of stdin ends the
process. The loop keeps running between turns, so timers and pings of connections work. For
blocking clients, `bench.threads` does with threads what this module does with coroutines.
"""

import asyncio
import cProfile
import io
import json
import os
import pstats
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, TextIO, cast

from bench.clients import (
    CLIENTS,
    BlockingClient,
    Client,
    ClientUnavailableError,
    OpenBlockingClient,
    OpenClient,
)
from bench.pacing import run_paced
from bench.samples import Sample, percentile
from bench.threads import measure_blocking, warm_up_blocking
from bench.workloads import WORKLOADS, Workload

# The time for latencies, as a share of the measured time.
LATENCY_SHARE = 0.25
PROFILE_LINES = 40
ORDER_LIMIT_BYTES = 1 << 16
NANOSECONDS_PER_MICROSECOND = 1000.0


class Turn:
    """One turn. When it is stopped, each worker finishes its current call."""

    __slots__ = ("is_running",)

    def __init__(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False


# Runs one coroutine's share of a turn and returns the number of its operations.
Worker = Callable[[Client, Workload, Turn], Coroutine[Any, Any, int]]


async def checked_worker(client: Client, workload: Workload, turn: Turn) -> int:
    """Warm-up that checks every response, so that a client with wrong responses is not timed."""
    request, count = workload.request(), 0
    while turn.is_running:
        if workload.kind == "unary":
            messages = [await client.unary(request)]
        else:
            messages = [message async for message in client.server_stream(request)]
        wanted = b"x" * workload.size_bytes
        if len(messages) != workload.messages_per_call or any(m != wanted for m in messages):
            raise RuntimeError(
                f"wrong answer to {workload.name}: got {len(messages)} messages,"
                f" wanted {workload.messages_per_call} of {workload.size_bytes} B"
            )
        count += len(messages)
    return count


async def unary_worker(client: Client, workload: Workload, turn: Turn) -> int:
    unary, message, count = client.unary, workload.request(), 0
    while turn.is_running:
        await unary(message)
        count += 1
    return count


async def stream_worker(client: Client, workload: Workload, turn: Turn) -> int:
    request, count = workload.request(), 0
    while turn.is_running:
        async for _ in client.server_stream(request):
            count += 1
    return count


def worker_for(workload: Workload) -> Worker:
    return unary_worker if workload.kind == "unary" else stream_worker


async def run_turn(client: Client, workload: Workload, duration_s: float) -> int:
    """One measured turn; returns the number of its operations."""
    if workload.rate_per_s is None:
        return await run_workers(worker_for(workload), client, workload, duration_s)
    unary, message = client.unary, workload.request()

    async def call() -> None:
        await unary(message)

    return await run_paced(call, workload.rate_per_s, duration_s)


async def run_workers(worker: Worker, client: Client, workload: Workload, duration_s: float) -> int:
    """Run the workload's number of workers for a while; returns the sum of their operations."""
    turn = Turn()
    asyncio.get_running_loop().call_later(duration_s, turn.stop)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(worker(client, workload, turn)) for _ in range(workload.concurrency)
        ]
    return sum(task.result() for task in tasks)


async def measure(client: Client, workload: Workload, duration_s: float) -> Sample:
    # A client with a sidecar has a clock that counts both.
    cpu_clock = getattr(client, "cpu_s", time.process_time)
    wall_s, cpu_s = time.perf_counter(), cpu_clock()
    operations = await run_turn(client, workload, duration_s)
    cpu_s, wall_s = cpu_clock() - cpu_s, time.perf_counter() - wall_s
    if workload.kind != "unary":
        return Sample(operations, cpu_s, wall_s)
    latencies = await measure_latencies(client, workload, duration_s * LATENCY_SHARE)
    return Sample(
        operations, cpu_s, wall_s, percentile(latencies, 0.50), percentile(latencies, 0.99)
    )


async def measure_latencies(client: Client, workload: Workload, duration_s: float) -> list[float]:
    """Latencies in microseconds, ordered."""
    latencies_ns: list[int] = []
    unary, message, now = client.unary, workload.request(), time.perf_counter_ns

    async def timed_call() -> None:
        start = now()
        await unary(message)
        latencies_ns.append(now() - start)

    async def timed_worker(client: Client, workload: Workload, turn: Turn) -> int:
        while turn.is_running:
            await timed_call()
        return 0

    if workload.rate_per_s is None:
        await run_workers(timed_worker, client, workload, duration_s)
    else:
        await run_paced(timed_call, workload.rate_per_s, duration_s)
    return [latency / NANOSECONDS_PER_MICROSECOND for latency in sorted(latencies_ns)]


async def profile(client: Client, workload: Workload, duration_s: float) -> str:
    """The functions that took the most time of this thread, by cProfile."""
    profiler = cProfile.Profile()
    with profiler:
        await run_turn(client, workload, duration_s)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(
        PROFILE_LINES
    )
    return text.getvalue()


async def execute_order(
    client: Client | BlockingClient, order: dict[str, Any]
) -> dict[str, object]:
    """Carry out one order: warm up, then measure or profile."""
    workload = WORKLOADS[order["workload"]]
    if workload.kind == "blocking":
        threaded = cast("BlockingClient", client)
        await asyncio.to_thread(warm_up_blocking, threaded, workload, order["warm_up_s"])
        sample = await asyncio.to_thread(
            measure_blocking, threaded, workload, order["duration_s"], LATENCY_SHARE
        )
        return {"sample": asdict(sample)}
    return await execute_in_coroutines(cast("Client", client), workload, order)


async def execute_in_coroutines(
    client: Client, workload: Workload, order: dict[str, Any]
) -> dict[str, object]:
    await run_workers(checked_worker, client, workload, order["warm_up_s"])
    if order["is_profile"]:
        return {"profile": await profile(client, workload, order["duration_s"])}
    return {"sample": asdict(await measure(client, workload, order["duration_s"]))}


async def serve(
    open_client: OpenClient | OpenBlockingClient, address: str, answers: TextIO
) -> None:
    """Answer orders until stdin ends."""
    orders = asyncio.StreamReader(limit=ORDER_LIMIT_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with open_client(address) as client:
        write_answer(answers, {"ready": True})
        while line := await orders.readline():
            try:
                write_answer(answers, await execute_order(client, json.loads(line)))
            except Exception as error:  # Reported to the parent.
                write_answer(answers, {"error": "".join(traceback.format_exception(error))})


def write_answer(answers: TextIO, value: dict[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    if name == "asyncio":
        return asyncio.new_event_loop()
    try:
        import uvloop  # noqa: PLC0415 - not every client needs it
    except ModuleNotFoundError as error:
        raise ClientUnavailableError(str(error)) from error
    return uvloop.new_event_loop()


def main() -> None:
    name, address = sys.argv[1:]
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be parsed as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind = CLIENTS[name]
    try:
        open_client = kind.load()
        with asyncio.Runner(loop_factory=lambda: new_loop(kind.loop)) as runner:
            runner.run(serve(open_client, address, answers))
    except ClientUnavailableError as error:
        write_answer(answers, {"unavailable": str(error)})


if __name__ == "__main__":
    main()
