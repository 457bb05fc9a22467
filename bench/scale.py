"""Benchmark of xDS channels in large and changing meshes. The command line.

    python bench/scale.py [--rows P9,P12] [--rounds N] [--clients CLIENT...] [--json FILE] ...

Clients run in turns: for each round, row and size, each client in a new process.
Exit codes: 0 measured and all measured targets met, 1 no backend, a client failed or a target was
missed, 2 wrong usage, 130 interrupted.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench import scale_rows
from bench.backend import BackendUnavailableError
from bench.interleave import rotated
from bench.processes import ClientLostError, TurnFailedError
from bench.scale_child import raise_file_limit
from bench.scale_targets import (
    OURS,
    REFERENCE,
    ROWS,
    TARGETS,
    RowPlan,
    ScaleResults,
    format_results,
    format_verdicts,
    is_acceptable,
    judge,
    to_json,
)
from bench.scale_world import World, run_world
from bench.selection import select_names

ROUNDS, QUICK_ROUNDS = 5, 1
QUICK_SHARE = 10
CLIENTS = (REFERENCE, *OURS)
USUAL_CLIENTS = (REFERENCE, OURS[0])
INTERRUPTED = 130


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="xDS channels in large meshes, beside grpcio.")
    parser.add_argument("--rows", type=lambda text: text.split(","), help="such as P9,P12")
    parser.add_argument("--rounds", type=int, help=f"turns per client (default {ROUNDS})")
    parser.add_argument("--clients", nargs="+", metavar="CLIENT", default=USUAL_CLIENTS)
    parser.add_argument(
        "--quick", action="store_true", help="small test run; the figures are not reliable"
    )
    parser.add_argument("--profile", metavar="CLIENT", help="profile it, at the last size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    parser.add_argument("--list", action="store_true", help="list the rows and the clients")
    arguments = parser.parse_args(argv)
    try:
        arguments.clients = select_names(CLIENTS, arguments.clients)
        arguments.rows = select_rows(arguments.rows)
    except ValueError as error:
        parser.error(str(error))
    if arguments.rounds is None:
        arguments.rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    if arguments.rounds < 1:
        parser.error("--rounds must be positive")
    return arguments


def select_rows(wanted: list[str] | None) -> list[RowPlan]:
    """The rows with these numbers or names, in their order; all if None."""
    if wanted is None:
        return list(ROWS)
    unknown = set(wanted) - {name for row in ROWS for name in (row.number, row.name)}
    if unknown:
        known = ", ".join(dict.fromkeys(row.number for row in ROWS))
        raise ValueError(f"unknown row {min(unknown)!r}, wanted one of {known}, or a name")
    return [row for row in ROWS if {row.number, row.name} & set(wanted)]


def log_progress(line: str) -> None:
    """Print to stderr; stdout has only the results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def show(text: str) -> None:
    sys.stdout.write(text + "\n")


class Run:
    """One run: collects the measurements."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.results = ScaleResults()

    async def execute(self, world: World) -> None:
        for number in range(self._arguments.rounds):
            for row in self._arguments.rows:
                for size in self._sizes_of(row):
                    for client in rotated(self._arguments.clients, number):
                        await self._run_turn(world, number, row, size, client)

    def _sizes_of(self, row: RowPlan) -> list[int]:
        if not self._arguments.quick:
            return list(row.sizes)
        return sorted({max(size // QUICK_SHARE, 1) for size in row.sizes})

    async def _run_turn(
        self, world: World, number: int, row: RowPlan, size: int, client: str
    ) -> None:
        where = f"{row.number} {row.name} {size:,} {client}"
        behave: scale_rows.Row = getattr(scale_rows, row.name)
        try:
            measured = await behave(world, client, size)
        except (TurnFailedError, ClientLostError, TimeoutError) as error:
            self.results.failures[where] = str(error)
            log_progress(f"{where} failed: {error}")
            return
        self.results.add(row.name, size, client, measured)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
        log_progress(f"round {number + 1}/{self._arguments.rounds} {where}: {shown}")


def describe_environment(rounds: int) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: version(name) for name in ("grpcio", "uvloop", "protobuf")},
        "rounds": rounds,
    }


async def profile(arguments: argparse.Namespace) -> int:
    async with run_world(is_profile=True) as world:
        for row in arguments.rows:
            behave: scale_rows.Row = getattr(scale_rows, row.name)
            await behave(world, arguments.profile, row.sizes[-1])
    return 0


async def run_until_terminated(arguments: argparse.Namespace) -> int:
    """Run; SIGTERM ends the run as Ctrl-C does, with all processes."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if arguments.profile:
        return await profile(arguments)
    run = Run(arguments)
    async with run_world() as world:
        await run.execute(world)
    names = {row.name for row in arguments.rows}
    targets = [target for target in TARGETS if target.row in names]
    verdicts = judge(run.results, arguments.clients, targets)
    show(format_results(run.results, arguments.clients))
    show("\n" + format_verdicts(verdicts))
    if arguments.json:
        environment = describe_environment(arguments.rounds)
        text = json.dumps(to_json(run.results, verdicts, environment), indent=2)
        arguments.json.write_text(text + "\n")
    return 0 if is_acceptable(verdicts) and not run.results.failures else 1


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.list:
        rows = "\n".join(f"{row.number:4} {row.name}: {row.sizes}" for row in ROWS)
        show(f"{rows}\nclients: {' '.join(CLIENTS)}")
        return 0
    raise_file_limit()
    try:
        return asyncio.run(run_until_terminated(arguments))
    except (KeyboardInterrupt, asyncio.CancelledError):
        log_progress("interrupted")
        return INTERRUPTED
    except BackendUnavailableError as error:
        log_progress(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
