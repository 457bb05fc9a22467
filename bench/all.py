"""Benchmark of every row of the list of targets, with grpcio and the other peers in the same run.

    python -m bench.all [--rows P1,P9] [--rounds N] [--results FILE] [--resume] [--short]
                        [--seconds S] [--quick] [--list]

Each row is measured by other programs of this package, in processes of their own; the results are
saved after each row. `--resume` leaves rows alone that the file has. Progress goes to stderr, the
list of rows with their outcomes to stdout.

Exit codes: 0 measured and all targets met, 1 a program failed or a target was missed, 2 wrong
usage, 130 interrupted.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.all_rows import ROWS, RowRun, Step, select_rows
from bench.conversion import Converted
from bench.processes import ROOT
from bench.report import format_columns
from bench.results import MET, RowResult, load, save

ROUNDS: Final = 5
RESULTS: Final = Path("bench/results/latest.json")
PACKAGES: Final = ("grpcio", "uvloop", "protobuf", "opentelemetry-sdk")
INTERRUPTED: Final = 130
# Characters of a failure in the file.
TEXT_MAX: Final = 300
_ERROR: Final = re.compile(r"[\w.]+(Error|Exception)\b: ")


def log_progress(line: str) -> None:
    """Print to stderr; stdout has only the results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def describe_environment() -> dict[str, Any]:
    """Machine, kernel, versions, and how busy the machine is."""
    return {
        "processor": _read_processor(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _find_version(name) for name in PACKAGES},
        "commit": _read_commit(),
        "load_average": os.getloadavg()[0],
    }


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# Read once: the results of each row change a file of the checkout.
@cache
def _read_commit() -> str | None:
    argv = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    try:
        found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def run_step(step: Step, number: str, argv: Sequence[str]) -> Converted:
    """Run one program; its output is progress of ours."""
    with TemporaryDirectory(prefix="bench-all-") as directory:
        path = Path(directory) / "run.json"
        log_progress(f"{number}: {shlex.join(argv)}")
        done = subprocess.run(
            (sys.executable, *argv, "--json", str(path)), cwd=ROOT, stdout=sys.stderr, check=False
        )
        if not path.exists():
            reason = f"exit code {done.returncode}, and no results"
            return Converted(failures={shlex.join(argv): reason})
        return step.convert(number, json.loads(path.read_text()))


def run_row(row: RowRun, arguments: argparse.Namespace) -> RowResult:
    rounds = arguments.rounds
    commands = [
        step.argv(
            rounds,
            seconds=arguments.seconds,
            is_quick=arguments.quick,
            is_short=arguments.short,
        )
        for step in row.steps
    ]
    made = RowResult(
        number=row.number,
        title=row.title,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=describe_environment(),
        rounds=row.count_rounds(rounds, is_quick=arguments.quick),
        commands=tuple(f"python {shlex.join(argv)}" for argv in commands),
    )
    for step, argv in zip(row.steps, commands, strict=True):
        made = merge(made, run_step(step, row.number, argv))
    return made


def merge(row: RowResult, found: Converted) -> RowResult:
    return replace(
        row,
        figures=(*row.figures, *found.figures),
        judgements=(*row.judgements, *found.judgements),
        unavailable={**row.unavailable, **found.unavailable},
        failures={
            **row.failures,
            **{what: shorten(why) for what, why in found.failures.items()},
        },
    )


def shorten(text: str) -> str:
    """The error of a traceback, in one line."""
    lines = [line.strip(" |+-") for line in text.splitlines()]
    errors = [line for line in lines if _ERROR.match(line)]
    found = (errors or [line for line in lines if line] or ["no reason"])[0]
    return found[:TEXT_MAX]


def ordered(rows: Mapping[str, RowResult]) -> list[RowResult]:
    return [rows[row.number] for row in ROWS if row.number in rows]


def format_rows(rows: Sequence[RowResult]) -> str:
    lines = [("row", "what", "outcome", "targets missed")]
    for row in rows:
        missed = sum(each.outcome != MET for each in row.judgements)
        lines.append((row.number, row.title, row.outcome, f"{missed} of {len(row.judgements)}"))
    return format_columns(lines, left=3)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench/all.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=lambda text: text.split(","), help="such as P1,P9")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--seconds", type=float, help="length of a turn of RPCs (default 1)")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default {RESULTS}")
    parser.add_argument("--resume", action="store_true", help="skip rows that the file has")
    parser.add_argument(
        "--short", action="store_true", help="a minute of soak, six minutes of churn"
    )
    parser.add_argument(
        "--quick", action="store_true", help="short test run; the figures are not reliable"
    )
    parser.add_argument("--list", action="store_true", help="list the rows and their programs")
    arguments = parser.parse_args(argv)
    try:
        arguments.rows = select_rows(arguments.rows)
    except ValueError as error:
        parser.error(str(error))
    if arguments.rounds < 1:
        parser.error("--rounds must be positive")
    if arguments.quick and arguments.results == RESULTS:
        parser.error(f"--quick needs --results: {RESULTS} is for reliable figures")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.list:
        for row in arguments.rows:
            print(f"{row.number}: {row.title}")
            for step in row.steps:
                print(f"    python {shlex.join(step.argv(arguments.rounds))}")
        return 0
    rows = {row.number: row for row in load(arguments.results)}
    try:
        for row in arguments.rows:
            if arguments.resume and row.number in rows:
                log_progress(f"{row.number}: in {arguments.results} since {rows[row.number].date}")
                continue
            rows[row.number] = run_row(row, arguments)
            save(arguments.results, ordered(rows))
    except KeyboardInterrupt:
        log_progress("interrupted")
        return INTERRUPTED
    shown = [rows[row.number] for row in arguments.rows]
    print(format_rows(shown))
    return 0 if all(row.outcome == MET and not row.failures for row in shown) else 1


if __name__ == "__main__":
    sys.exit(main())
