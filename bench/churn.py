"""Churn: memory, descriptors, tasks and objects of a client under load and changes of the config.

    python bench/churn.py [--minutes N] [--marks MINUTE...] [--rate N] [--changes-per-s N]
                          [--restart-s S] [--clients NAME...] [--json FILE]

Clients run at the same time, each in a process of its own, with the control plane and the backend
of the soak; the control plane is restarted now and then. For each count the changes stop for a
moment, always at the same step of the churn, so that the numbers of connections are comparable.

Growth is what a client has at the last mark over what it has at the first one, when caches and
pools are filled; the limits are `LIMITS`.

Exit codes: 0 our client stays within the limits, 1 it does not or one of its RPCs failed, 2 wrong
usage.
"""

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.processes import START_TIMEOUT_S, running
from bench.report import format_columns
from bench.scale_world import run_echo
from bench.soak import PORTS, Plane, SoakClient, run_plane
from bench.soak_child import OURS, REFERENCE
from bench.soak_plane import CLUSTERS, STEPS_PER_ROUTES

MINUTE_S: Final = 60.0
# Time without changes before a count, for connections that are being closed.
SETTLE_S: Final = 3.0
OUTAGE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ChurnLoad:
    """Parameters of a run."""

    minutes: float = 30.0
    marks: tuple[float, ...] = (5.0, 15.0, 30.0)
    rate_per_s: float = 100.0
    changes_per_s: float = 5.0
    restart_s: float = 120.0
    settle_s: float = SETTLE_S


@dataclass(frozen=True, slots=True)
class Count:
    """What a client's process held at one minute."""

    minute: float
    rss_kb: int
    descriptors: int
    tasks: int
    objects: int
    cpu_s: float
    rpcs: int
    failed: int
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """The allowed growth of one column, from the first mark to the last: a share and a number."""

    column: str
    share: float
    number: int

    def allowed(self, first: float) -> float:
        return first * self.share + self.number


# Memory may become fragmented; a connection that is being replaced is a descriptor, some tasks and
# about a hundred objects.
LIMITS: Final = (
    Limit("rss_kb", 0.05, 0),
    Limit("descriptors", 0.0, 2),
    Limit("tasks", 0.0, 4),
    Limit("objects", 0.01, 500),
)


def find_excess(counts: Sequence[Count]) -> list[str]:
    """A line for each column that grew beyond its limit."""
    found = []
    for limit in LIMITS:
        first, last = (float(getattr(each, limit.column)) for each in (counts[0], counts[-1]))
        if last - first > limit.allowed(first):
            found.append(
                f"{limit.column} grew from {first:,.0f} to {last:,.0f},"
                f" wanted at most {first + limit.allowed(first):,.0f}"
            )
    return found


def at_marks(counts: Sequence[Count], marks: Sequence[float]) -> list[Count]:
    """The first count at or after each mark; of the last mark, the last count."""
    found = [next((c for c in counts if c.minute >= mark), counts[-1]) for mark in marks]
    return list(dict.fromkeys(found))


async def change_until(plane: Plane, load: ChurnLoad, until_s: float) -> None:
    """Change steadily until the time, and then until the churn is where it was at the start."""
    loop, cycle = asyncio.get_running_loop(), CLUSTERS * STEPS_PER_ROUTES
    while loop.time() < until_s or plane.step % cycle:
        await asyncio.sleep(1 / load.changes_per_s)
        await plane.change()


async def churn(load: ChurnLoad, clients: Sequence[str]) -> dict[str, list[Count]]:
    """Run all clients at the same time; returns one count per client and minute."""
    counts: dict[str, list[Count]] = {name: [] for name in clients}
    async with AsyncExitStack() as stack:
        echo = await stack.enter_async_context(run_echo(PORTS))
        plane = await stack.enter_async_context(run_plane(echo.ports))
        started = {}
        for name in clients:
            argv = (sys.executable, "-m", "bench.churn_child")
            arguments = (name, plane.address, str(load.rate_per_s))
            process = await stack.enter_async_context(
                running((*argv, *arguments), leaves_at_eof=True)
            )
            started[name] = SoakClient(name, process)
            await started[name].wait_ready()
        await _run_minutes(load, plane, started, counts)
    return counts


async def _run_minutes(
    load: ChurnLoad,
    plane: Plane,
    clients: Mapping[str, SoakClient],
    counts: dict[str, list[Count]],
) -> None:
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    restart_at_s = begin_s + load.restart_s
    interval_s = min(MINUTE_S, load.minutes * MINUTE_S / 3)
    number = 0
    while loop.time() < begin_s + load.minutes * MINUTE_S:
        number += 1
        await change_until(plane, load, begin_s + number * interval_s - load.settle_s)
        if loop.time() >= restart_at_s:
            restart_at_s += load.restart_s
            await plane.lose("restart", OUTAGE_S)
        await asyncio.sleep(load.settle_s)
        minute = (loop.time() - begin_s) / MINUTE_S
        for name, client in clients.items():
            answered: Mapping[str, Any] = await client.send({"count": True}, START_TIMEOUT_S)
            counts[name].append(Count(minute, **answered))
            log_progress(f"{name}: {format_count(counts[name][-1])}")


def log_progress(line: str) -> None:
    """Print to stderr; stdout has only the results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def format_count(count: Count) -> str:
    return "  ".join(
        f"{name} {value:,.1f}" if isinstance(value, float) else f"{name} {value:,}"
        for name, value in asdict(count).items()
        if not isinstance(value, str)
    )


def format_counts(counts: Mapping[str, Sequence[Count]], marks: Sequence[float]) -> str:
    rows: list[Sequence[str]] = [
        ("client", "minute", "RSS MB", "descriptors", "tasks", "objects", "RPCs", "failed", "CPU s")
    ]
    for name, each in counts.items():
        for c in at_marks(each, marks):
            numbers = (f"{n:,}" for n in (c.descriptors, c.tasks, c.objects, c.rpcs, c.failed))
            ends = (f"{c.minute:.1f}", f"{c.rss_kb / 1000:.1f}")
            rows.append((name, *ends, *numbers, f"{c.cpu_s:.1f}"))
    return format_columns(rows)


def find_faults(counts: Mapping[str, Sequence[Count]], marks: Sequence[float]) -> list[str]:
    """Reasons why our client has failed."""
    ours = counts.get(OURS)
    if not ours:
        return []
    found = find_excess(at_marks(ours, marks))
    if failed := ours[-1].failed:
        found.append(f"{failed} RPCs failed, the last one with {ours[-1].last_failure}")
    return found


def to_json(load: ChurnLoad, counts: Mapping[str, Sequence[Count]]) -> dict[str, object]:
    return {
        "environment": {"python": platform.python_version(), "machine": platform.platform()},
        "load": asdict(load),
        "clients": {name: [asdict(count) for count in each] for name, each in counts.items()},
        "faults": find_faults(counts, load.marks),
    }


def parse_arguments(arguments: Sequence[str] | None) -> tuple[ChurnLoad, argparse.Namespace]:
    default = ChurnLoad()
    parser = argparse.ArgumentParser("bench/churn.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=default.minutes)
    parser.add_argument("--marks", type=float, nargs="+", help="minutes that are compared")
    parser.add_argument("--rate", type=float, default=default.rate_per_s, help="RPCs per second")
    parser.add_argument("--changes-per-s", type=float, default=default.changes_per_s)
    parser.add_argument("--restart-s", type=float, default=default.restart_s)
    parser.add_argument("--settle-s", type=float, default=default.settle_s)
    parser.add_argument(
        "--clients", nargs="+", choices=(OURS, REFERENCE), default=(OURS, REFERENCE)
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    found = parser.parse_args(arguments)
    if min(found.minutes, found.rate, found.changes_per_s) <= 0:
        parser.error("--minutes, --rate and --changes-per-s must be positive")
    marks = found.marks or [found.minutes / 6, found.minutes / 2, found.minutes]
    counts = (found.rate, found.changes_per_s, found.restart_s, found.settle_s)
    return ChurnLoad(found.minutes, tuple(marks), *counts), found


def main(arguments: Sequence[str] | None = None) -> int:
    load, found = parse_arguments(arguments)
    counts = asyncio.run(churn(load, found.clients))
    print(format_counts(counts, load.marks))
    faults = find_faults(counts, load.marks)
    print("\n".join(faults) or "within the limits")
    if found.json is not None:
        found.json.write_text(json.dumps(to_json(load, counts), indent=2) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
