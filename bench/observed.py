"""Benchmark of stats plugins: CPU per RPC with metrics and with traces. The command line.

    python bench/observed.py [--rounds N] [--rpcs N] [--json FILE]

One process and one backend; each setting has a channel of its own, and a turn in each round, so
that a change of the machine's speed affects all of them. Spans are dropped when they end: exporting
costs extra, and depends on the exporter.
"""

import argparse
import asyncio
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

import proxyless
from bench.interleave import rotated
from bench.processes import run_backend
from bench.report import format_columns
from proxyless.otel import OpenTelemetryPlugin

ROUNDS, RPCS, IN_FLIGHT = 7, 3_000, 100
PATH, MESSAGE = "/bench.Bench/Echo", bytes(16)
MICROSECONDS = 1e6


def measured() -> OpenTelemetryPlugin:
    return OpenTelemetryPlugin(meter_provider=MeterProvider([InMemoryMetricReader()]))


def traced(share: float) -> OpenTelemetryPlugin:
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share))
    provider.add_span_processor(SpanProcessor())
    return OpenTelemetryPlugin(tracer_provider=provider)


SETTINGS: dict[str, Callable[[], Sequence[OpenTelemetryPlugin]]] = {
    "off": list,
    "metrics": lambda: [measured()],
    "traces, 0 % sampled": lambda: [traced(0.0)],
    "traces, 1 % sampled": lambda: [traced(0.01)],
    "traces, all sampled": lambda: [traced(1.0)],
    "metrics, and traces, 1 % sampled": lambda: [measured(), traced(0.01)],
}


async def measure(rounds: int, rpcs: int) -> dict[str, list[float]]:
    """Microseconds of CPU per RPC, by setting and round."""
    samples: dict[str, list[float]] = {name: [] for name in SETTINGS}
    async with run_backend() as backend, AsyncExitStack() as stack:
        calls: dict[str, Any] = {}
        for name, make_plugins in SETTINGS.items():
            registries = proxyless.Registries().extended(metrics=make_plugins())
            channel = await stack.enter_async_context(
                proxyless.aio.insecure_channel(f"ipv4:{backend.address}", registries=registries)
            )
            calls[name] = channel.unary_unary(PATH, _registered_method=True)
            await take_turn(calls[name], rpcs)
        for turn in range(rounds):
            sys.stderr.write(f"round {turn + 1} of {rounds}\n")
            for name in rotated(list(calls), turn):
                samples[name].append(await take_turn(calls[name], rpcs))
    return samples


async def take_turn(call: Any, rpcs: int) -> float:  # noqa: ANN401 - a multi-callable
    """Microseconds of CPU of this process per RPC."""

    async def run() -> None:
        for _ in range(rpcs // IN_FLIGHT):
            await call(MESSAGE)

    began_s = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(run())
    return (time.process_time() - began_s) / rpcs * MICROSECONDS


def format_samples(samples: Mapping[str, Sequence[float]]) -> str:
    rows = [("CPU per RPC", "median", "by round", "of off")]
    for name, values in samples.items():
        ratio = median(each / off for each, off in zip(values, samples["off"], strict=True))
        span = f"{min(values):.1f}-{max(values):.1f} µs"
        rows.append((name, f"{median(values):.1f} µs", span, f"{ratio:.2f}"))
    return format_columns(rows)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU per RPC with metrics and with traces.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each setting")
    parser.add_argument("--rpcs", type=int, default=RPCS, help="RPCs of a turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1 or arguments.rpcs < IN_FLIGHT:
        parser.error(f"--rounds must be positive, and --rpcs at least {IN_FLIGHT}")
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    samples = asyncio.run(measure(arguments.rounds, arguments.rpcs))
    sys.stdout.write(format_samples(samples) + "\n")
    if arguments.json:
        environment = {"python": platform.python_version(), "machine": platform.platform()}
        run = {"environment": environment, "cpu_us": samples}
        arguments.json.write_text(json.dumps(run, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
