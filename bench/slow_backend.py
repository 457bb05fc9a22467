"""Latency with one slow or failing backend, by LB policy. The command line.

    python bench/slow_backend.py                 # in virtual time, the same numbers in each run
    python bench/slow_backend.py --real          # sockets, and backends of grpcio in this process

Five backends, one of which takes ten times as long as the others, or fails at once. RPCs start at
random times, independent of their answers (an open loop). The first second is not counted.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import grpc
import grpc.aio

import proxyless
from bench.report import format_columns
from bench.samples import percentile
from proxyless.base import Status, StatusCode
from proxyless.sim import UNARY, World

POLICIES: Final = ("round_robin", "least_request_experimental", "proxyless.peak_ewma")
BACKENDS: Final = 5
FAST_S, SLOW_S = 0.01, 0.1
RATE, SECONDS, WARM_UP_S = 200, 20.0, 1.0
TIMEOUT_S: Final = 10.0
MILLISECONDS: Final = 1e3

# Sends one RPC, and returns the name of the backend.
Send = Callable[[], Awaitable[bytes]]


@dataclass
class Outcome:
    """The counted RPCs of one run."""

    latencies_s: list[float] = field(default_factory=list)
    backends: Counter[str] = field(default_factory=Counter)
    failures: int = 0

    @property
    def total(self) -> int:
        return len(self.latencies_s) + self.failures

    def percentile_ms(self, percent: int) -> float:
        return percentile(sorted(self.latencies_s), percent / 100) * MILLISECONDS


async def send_all(send: Send, rate: int, seconds: float, seed: int = 1) -> Outcome:
    """Send RPCs at random times. The time is that of the running loop."""
    outcome, random, now_s = Outcome(), Random(seed), asyncio.get_running_loop().time
    began_s = now_s()

    async def send_one() -> None:
        started_s = now_s()
        is_counted = started_s - began_s >= WARM_UP_S
        try:
            name = await send()
        except grpc.RpcError:
            outcome.failures += is_counted
            return
        if is_counted:
            outcome.latencies_s.append(now_s() - started_s)
            outcome.backends[name.decode()] += 1

    async with asyncio.TaskGroup() as group:
        due_s = began_s
        while (due_s := due_s + random.expovariate(rate)) < began_s + WARM_UP_S + seconds:
            await asyncio.sleep(max(0.0, due_s - now_s()))
            group.create_task(send_one())
    return outcome


def sender(channel: Any, path: str) -> Send:  # noqa: ANN401 - a channel with grpcio's interface
    call = channel.unary_unary(path)

    async def send() -> bytes:
        return bytes(await call(b"", timeout=TIMEOUT_S))

    return send


def options_of(policy: str) -> list[tuple[str, str]]:
    return [("grpc.service_config", json.dumps({"loadBalancingConfig": [{policy: {}}]}))]


def simulate(
    policy: str, *, is_failing: bool = False, rate: int = RATE, seconds: float = SECONDS
) -> Outcome:
    """One run in virtual time. The first backend is slow, or fails at once."""
    world = World(seed=1)
    backends = [world.backend(f"b{number}") for number in range(BACKENDS)]
    for backend in backends:
        backend.delay_s = FAST_S
    backends[0].delay_s = 0.0 if is_failing else SLOW_S
    if is_failing:
        backends[0].status = Status(StatusCode.UNAVAILABLE, "failing")
    target = "ipv4:" + ",".join(str(each.address) for each in backends)

    async def story() -> Outcome:
        channel = world.client().channel(target, options=options_of(policy))
        return await send_all(sender(channel, UNARY), rate, seconds)

    return world.run(story())


class DelayedBackend:
    """grpcio server whose methods return its name after a delay, or fail at once."""

    def __init__(self, name: str, delay_s: float, *, is_failing: bool = False) -> None:
        self._name = name
        self._delay_s = delay_s
        self._is_failing = is_failing
        self._server: Any = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def service(self, _details: object) -> Any:  # noqa: ANN401 - called by grpcio
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, context: Any) -> bytes:  # noqa: ANN401
        if self._is_failing:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "failing")
        await asyncio.sleep(self._delay_s)
        return self._name.encode()

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)


async def measure(policy: str, *, is_failing: bool, rate: int, seconds: float) -> Outcome:
    """One run with sockets."""
    backends = [DelayedBackend(f"b{number}", FAST_S) for number in range(1, BACKENDS)]
    backends.insert(0, DelayedBackend("b0", SLOW_S, is_failing=is_failing))
    for backend in backends:
        await backend.start()
    target = "ipv4:" + ",".join(f"127.0.0.1:{each.port}" for each in backends)
    try:
        async with proxyless.aio.insecure_channel(target, options_of(policy)) as channel:
            return await send_all(sender(channel, UNARY), rate, seconds)
    finally:
        for backend in backends:
            await backend.stop()


def format_outcomes(outcomes: Mapping[tuple[str, str], Outcome]) -> str:
    rows = [("one of 5 backends", "policy", "p50", "p99", "to this backend", "failed")]
    for (fault, policy), outcome in outcomes.items():
        rows.append(
            (
                fault,
                policy,
                f"{outcome.percentile_ms(50):.1f} ms",
                f"{outcome.percentile_ms(99):.1f} ms",
                f"{(outcome.backends['b0'] + outcome.failures) / outcome.total:.2%}",
                f"{outcome.failures / outcome.total:.2%}",
            )
        )
    return format_columns(rows, left=2)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Latency with a slow or failing backend.")
    parser.add_argument("--real", action="store_true", help="sockets and backends of grpcio")
    parser.add_argument("--rate", type=int, default=RATE, help="RPCs per second")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="counted time of a run")
    arguments = parser.parse_args(argv)
    load = {"rate": arguments.rate, "seconds": arguments.seconds}
    outcomes: dict[tuple[str, str], Outcome] = {}
    for fault in ("is 10 times slower", "fails at once"):
        is_failing = fault == "fails at once"
        for policy in POLICIES:
            outcomes[fault, policy] = (
                asyncio.run(measure(policy, is_failing=is_failing, **load))
                if arguments.real
                else simulate(policy, is_failing=is_failing, **load)
            )
    sys.stdout.write(format_outcomes(outcomes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
