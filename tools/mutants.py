"""Mutation testing: plants the bugs of `tools/mutations.py`, and checks that tests fail.

Copies the repository for each job, checks that the tests pass there, plants one bug at a time, and
runs only the tests or seeds of that bug. The checkout itself is not changed. Prints caught/total;
exit code 1 if a bug survived, 2 if the table does not match the source any more or the unchanged
copy fails.

It does not search for untested code: each bug was chosen by hand, and has its tests by name.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from time import monotonic  # noqa: TID251 - durations of runs are on real time
from typing import TYPE_CHECKING

from tools.mutations import MUTATIONS, Mutation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/proxyless"
COPIED = ("src", "tests", "tools", "docs", "bench", "pyproject.toml")
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*_cache", ".build", ".hypothesis")

# A mutant that hangs counts as caught.
RUN_TIMEOUT_S = 300.0
FAILED_LINE = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)
VIOLATION_LINE = re.compile(r"^violation: (.*)$", re.MULTILINE)


class TableError(Exception):
    """The table does not match the source, so there is no result."""


# ---------------------------------------------------------------------------------------------
# The table


def mutate(text: str, mutation: Mutation) -> str:
    """The file with the bug."""
    count = text.count(mutation.old)
    if count != 1:
        raise TableError(
            f"{mutation.name}: {mutation.file} has the text {count} times, wanted once: "
            f"{mutation.old.strip()!r}"
        )
    mutated = text.replace(mutation.old, mutation.new)
    try:
        compile(mutated, mutation.file, "exec")
    except SyntaxError as error:
        raise TableError(f"{mutation.name}: {mutation.file} would not compile: {error}") from None
    return mutated


def check_table(mutations: Sequence[Mutation], root: Path) -> None:
    """Raise on the first entry that cannot be planted in this tree."""
    names = [each.name for each in mutations]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"{name}: is listed twice")
    for mutation in mutations:
        if not mutation.tests and not mutation.seeds:
            raise TableError(f"{mutation.name}: has neither tests nor seeds")
        path = root / PACKAGE / mutation.file
        if not path.is_file():
            raise TableError(f"{mutation.name}: there is no {PACKAGE}/{mutation.file}")
        mutate(path.read_text(encoding="utf-8"), mutation)


def choose(names: Sequence[str], mutations: Sequence[Mutation]) -> list[Mutation]:
    """The mutations with these names, or all of them without names."""
    unknown = sorted(set(names) - {each.name for each in mutations})
    if unknown:
        raise TableError(f"no mutation is named {', '.join(unknown)}")
    return [each for each in mutations if not names or each.name in names]


# ---------------------------------------------------------------------------------------------
# Runs


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one run."""

    is_caught: bool
    # The test that failed, or another reason.
    witness: str
    seconds: float = 0.0
    # Whether the run itself failed, so that it has no result.
    is_error: bool = False


def judge_tests(exit_code: int, output: str) -> Verdict:
    """Result of a run of pytest."""
    if exit_code == 0:
        return Verdict(is_caught=False, witness="all tests passed")
    failed = FAILED_LINE.search(output)
    # 1 is "tests failed"; other codes are errors of the run itself.
    if exit_code == 1 and failed is not None:
        return Verdict(is_caught=True, witness=failed[1])
    last = (output.strip().splitlines() or ["no output"])[-1]
    return Verdict(False, f"pytest ended with {exit_code}: {last}", is_error=True)


def judge_seed(seed: int, exit_code: int, output: str) -> Verdict:
    """Result of a run of one seed."""
    if exit_code == 0:
        return Verdict(is_caught=False, witness=f"seed {seed} has no violation")
    broken = VIOLATION_LINE.search(output)
    if broken is not None:
        return Verdict(is_caught=True, witness=f"seed {seed}: {broken[1]}")
    # The run itself failed, which counts as caught.
    last = (output.strip().splitlines() or ["no output"])[-1]
    return Verdict(is_caught=True, witness=f"seed {seed}: {last}")


class WorkingCopy:
    """A copy of the repository, with at most one bug at a time."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        for name in COPIED:
            source, target = root / name, place / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=NOT_COPIED)
            elif source.is_file():
                shutil.copy2(source, target)

    @contextmanager
    def planted(self, mutation: Mutation) -> Iterator[None]:
        path = self.place / PACKAGE / mutation.file
        sound = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutate(sound, mutation))
            yield
        finally:
            self._write(path, sound)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Bytecode is invalidated by size and modification time in seconds; both may be equal.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def origin(self) -> Path:
        """The path of the package that runs here."""
        _, output = self._run("-c", "import proxyless; print(proxyless.__file__)")
        return Path(output.strip())

    def judge_mutation(self, mutation: Mutation) -> Verdict:
        """Plant the bug and run its tests and seeds."""
        with self.planted(mutation):
            return self.judge(mutation.tests, mutation.seeds)

    def judge(self, tests: Sequence[str], seeds: Sequence[int]) -> Verdict:
        """Run the tests, then the seeds, until one fails."""
        started_s = monotonic()
        verdict = Verdict(is_caught=False, witness="nothing was run")
        runs: list[Sequence[str] | int] = [tests] if tests else []
        for run in (*runs, *seeds):
            verdict = self._judge_one(run)
            if verdict.is_caught or verdict.is_error:
                break
        return replace(verdict, seconds=monotonic() - started_s)

    def _judge_one(self, run: Sequence[str] | int) -> Verdict:
        try:
            if isinstance(run, int):
                return judge_seed(run, *self._run("-m", "tools.simulation", "--seed", str(run)))
            options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider")
            scratch = str(self.place / "scratch")
            return judge_tests(*self._run("-m", "pytest", *options, "--basetemp", scratch, *run))
        except subprocess.TimeoutExpired:
            return Verdict(is_caught=True, witness=f"no end after {RUN_TIMEOUT_S:g} s")

    def _run(self, *arguments: str) -> tuple[int, str]:
        # Before the checkout, which an editable install adds to the path.
        environment = {**os.environ, "PYTHONPATH": str(self.place / "src"), "COLUMNS": "400"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout


def check_copies(copies: Sequence[WorkingCopy], mutations: Sequence[Mutation]) -> None:
    """Raise unless the copies run their own source, and pass all tests and seeds."""
    tests = list(dict.fromkeys(test for each in mutations for test in each.tests))
    seeds = list(dict.fromkeys(seed for each in mutations for seed in each.seeds))
    jobs = len(copies)

    def check(job: int) -> None:
        copy = copies[job]
        origin = copy.origin()
        if not origin.is_relative_to(copy.place):
            wanted = f"wanted the copy in {copy.place}"
            raise TableError(f"the package that runs is {origin}, {wanted}")
        verdict = copy.judge(tests[job::jobs], seeds[job::jobs])
        if verdict.is_caught or verdict.is_error:
            raise TableError(f"without any mutation: {verdict.witness}")

    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(check, range(jobs)):
            pass


# ---------------------------------------------------------------------------------------------
# The command


def show(mutation: Mutation, verdict: Verdict) -> str:
    outcome = "error" if verdict.is_error else "caught" if verdict.is_caught else "SURVIVED"
    return (
        f"{outcome:8} {verdict.seconds:5.1f} s  {mutation.breaks:14} {mutation.name}\n"
        f"{'':25}{verdict.witness}"
    )


def run_all(mutations: Sequence[Mutation], root: Path, jobs: int) -> list[Verdict]:
    """Plant each of them, in one copy per job; prints each result."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        places = [Path(scratch).resolve() / str(job) for job in range(jobs)]
        for place in places:
            place.mkdir()
        copies = [WorkingCopy(root, place) for place in places]
        started_s = monotonic()
        check_copies(copies, mutations)
        print(f"without any mutation everything passes ({monotonic() - started_s:.1f} s)")
        free: SimpleQueue[WorkingCopy] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge_mutation(mutation: Mutation) -> Verdict:
            copy = free.get()
            try:
                verdict = copy.judge_mutation(mutation)
            finally:
                free.put(copy)
            print(show(mutation, verdict), flush=True)
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge_mutation, mutations))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tools.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="number of copies")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="plant this")
    parser.add_argument("--list", action="store_true", help="list the mutations and run nothing")
    settings = parser.parse_args(arguments)
    started_s = monotonic()
    try:
        chosen = choose(settings.only, MUTATIONS)
        check_table(chosen, ROOT)
        if settings.list:
            for mutation in chosen:
                print(f"{mutation.breaks:14} {mutation.name} ({mutation.file})")
            return 0
        verdicts = run_all(chosen, ROOT, min(settings.jobs, len(chosen)))
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    caught = sum(verdict.is_caught for verdict in verdicts)
    print(f"caught {caught}/{len(verdicts)} in {monotonic() - started_s:.0f} s")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
