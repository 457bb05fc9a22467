"""Runs the unit, spec and e2e suites on every Python of this machine from 3.11 on.

Each Python gets an environment of its own (`.pythons/`) with the newest releases of what it needs;
the oldest Python also one with the oldest releases that are supported. `--latest` runs
only the newest Python, and `--coverage` measures the coverage of the cores in the same run, as CI
does beside `make test`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".pythons"
SUITES = ("tests/unit", "tests/spec", "tests/e2e")
# The suites that tools/coverage_floor.py does not run.
UNCOVERED_SUITES = ("tests/e2e",)
PYTEST = ("-m", "pytest")
WORKERS = ("-q", "-n", "2", "--dist", "loadfile", "--max-worker-restart=0")
MINOR_MIN = 11
MINOR_MAX = 20
# Extras whose lower bounds are tested. Not otel: tests of what proxyless.otel does with the
# private names of OpenTelemetry's SDK need a newer one.
LOWEST_EXTRAS = ("cli", "fast")
# Packages for tests that belong to a release of grpcio.
GRPCIO = "grpcio"
_LOWER_BOUND = re.compile(r"(?P<name>[\w-]+)>=(?P<version>[\w.]+)")


@dataclass(frozen=True, order=True)
class Python:
    """An interpreter of this machine."""

    minor: int
    executable: Path

    @property
    def name(self) -> str:
        return f"3.{self.minor}"


@dataclass(frozen=True)
class Job:
    """One Python with one set of dependencies."""

    python: Python
    is_lowest: bool = False

    @property
    def name(self) -> str:
        return f"{self.python.name}-{'lowest' if self.is_lowest else 'newest'}"


def find_lowest(project: Mapping[str, Any]) -> list[str]:
    """The lower bounds of a `project` table, as requirements of exactly these releases."""
    extras = project["optional-dependencies"]
    bounds = [*project["dependencies"], *(each for name in LOWEST_EXTRAS for each in extras[name])]
    bounds += [each for each in extras["test"] if each.startswith(GRPCIO)]
    matches = (_LOWER_BOUND.fullmatch(each) for each in bounds)
    return [f"{match['name']}=={match['version']}" for match in matches if match is not None]


def candidate_paths(environ: dict[str, str], home: Path) -> Iterable[Path]:
    """Paths at which interpreters are commonly installed; not all exist."""
    directories = [Path(each) for each in environ.get("PATH", "").split(os.pathsep) if each]
    versions = Path(environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    directories += sorted(versions.glob("3.*/bin")) if versions.is_dir() else []
    for directory in directories:
        for minor in range(MINOR_MIN, MINOR_MAX):
            yield directory / f"python3.{minor}"


def find_pythons(paths: Iterable[Path]) -> list[Python]:
    """One interpreter per version, oldest first; those that do not start are left out."""
    found: dict[int, Python] = {}
    for path in paths:
        minor = int(path.name.removeprefix("python3."))
        if minor in found or not os.access(path, os.X_OK):
            continue
        # A shim of a version manager may exist for a version that is not active.
        run = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if run.returncode == 0 and re.match(rf"Python 3\.{minor}\.", run.stdout):
            found[minor] = Python(minor, path)
    return sorted(found.values())


def choose_jobs(pythons: Sequence[Python], *, only: str | None, is_latest: bool) -> list[Job]:
    chosen = [python for python in pythons if only is None or python.name == only]
    if is_latest:
        return [Job(python) for python in chosen[-1:]]
    jobs = [Job(python) for python in chosen]
    return [Job(python, is_lowest=True) for python in chosen[:1]] + jobs


def choose_commands(arguments: Sequence[str], *, is_coverage: bool) -> list[Sequence[str]]:
    """Arguments of each process of Python that a job runs, one after the other."""
    if arguments:
        return [(*PYTEST, *arguments)]
    if is_coverage:
        return [("-m", "tools.coverage_floor"), (*PYTEST, *WORKERS, *UNCOVERED_SUITES)]
    return [(*PYTEST, *WORKERS, *SUITES)]


def run_job(job: Job, commands: Sequence[Sequence[str]]) -> int:
    """Install and run; the exit code of the first step that failed, or 0."""
    environment = ENVIRONMENTS / job.name
    python = environment / "bin" / "python"
    if not python.exists():
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([job.python.executable, "-m", "venv", environment], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = find_lowest(project) if job.is_lowest else []
    packages = ["--upgrade", "--editable", ".[test]", *lowest]
    if code := subprocess.call([*pip, *packages], cwd=ROOT):
        return code
    codes = (subprocess.call([python, *command], cwd=ROOT) for command in commands)
    return next((code for code in codes if code), 0)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.pythons", description=__doc__.partition("\n")[0])
    parser.add_argument("--python", metavar="3.N", help="only this version")
    parser.add_argument(
        "--latest", action="store_true", help="only the newest Python, with the newest releases"
    )
    parser.add_argument(
        "--coverage", action="store_true", help="run what `make coverage` runs, and e2e"
    )
    parser.add_argument("--list", action="store_true", help="print what would run")
    parser.add_argument("arguments", nargs="*", help="for pytest, in place of the suites")
    parsed = parser.parse_args(argv)
    if parsed.coverage and parsed.arguments:
        parser.error("--coverage has its own arguments for pytest")
    pythons = find_pythons(candidate_paths(dict(os.environ), Path.home()))
    jobs = choose_jobs(pythons, only=parsed.python, is_latest=parsed.latest)
    if not jobs:
        found = ", ".join(python.name for python in pythons) or "none"
        print(f"error: no such Python from 3.{MINOR_MIN} on; found: {found}", file=sys.stderr)
        return 2
    commands = choose_commands(parsed.arguments, is_coverage=parsed.coverage)
    failed = []
    for job in jobs:
        print(f"== {job.name}: {job.python.executable}", flush=True)
        if not parsed.list and run_job(job, commands) != 0:
            failed.append(job.name)
    if not parsed.list:
        print(f"{len(jobs) - len(failed)} of {len(jobs)} environments passed", flush=True)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
