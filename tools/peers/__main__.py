"""Run the suites of `tools.peers`: `python -m tools.peers [--only NAME]...`"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from tools.peers.build import BUILD, ROOT, UnavailableError
from tools.peers.clients.stacks import STACKS
from tools.peers.connect import ConnectSuite
from tools.peers.decisions.notes import NOTES
from tools.peers.decisions.suite import CASES, run_decisions
from tools.peers.decisions.table import TITLE, Table, judge_table, make_section
from tools.peers.gapic import GapicSuite
from tools.peers.h2spec import H2specSuite
from tools.peers.interop import InteropSuite
from tools.peers.istio import IstioSuite
from tools.peers.outcomes import BrokenSuiteError, Outcomes, judge
from tools.peers.page import OURS, Section, describe_suite, make_page, split_page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.peers.outcomes import Run
    from tools.peers.suite import Suite

PAGE: Final = ROOT / "docs" / "peers.md"
SUITES: Final[Sequence[Suite]] = (
    ConnectSuite(),
    H2specSuite(),
    InteropSuite(),
    GapicSuite(),
    IstioSuite(),
)
DECISIONS: Final = "decisions"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.peers")
    names = [*(suite.name for suite in SUITES), DECISIONS]
    parser.add_argument("--only", action="append", choices=names, help="a suite; may be repeated")
    only = parser.parse_args().only or names
    chosen = [suite for suite in SUITES if suite.name in only]
    problems = [f"{suite.name}: {problem}" for suite in chosen for problem in run_suite(suite)]
    if DECISIONS in only:
        problems += [f"{DECISIONS}: {problem}" for problem in run_table()]
    write_page()
    for problem in problems:
        print(f"peers: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def run_table() -> list[str]:
    """Run the table of decisions and store it; returns unexpected outcomes."""
    table = run_decisions()
    path = results_path(DECISIONS)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table.to_json())
    return list(judge_table(table, CASES, NOTES))


def run_suite(suite: Suite) -> list[str]:
    """Run a suite with each stack and store the outcomes; returns unexpected ones."""
    try:
        suite.prepare()
    except UnavailableError as error:
        print(f"peers: {suite.name}: skipped: {error}", flush=True)
        return []
    path = results_path(suite.name)
    path.unlink(missing_ok=True)
    runs: dict[str, list[Run]] = {}
    try:
        for stack in STACKS:
            runs[stack] = []
            for number in range(1, suite.runs + 1):
                print(f"peers: {suite.name}: {stack}, run {number}/{suite.runs}", flush=True)
                runs[stack].append(suite.run(stack))
    except BrokenSuiteError as error:
        return [f"broken: {error}"]
    outcomes = Outcomes(suite.name, dict(suite.versions), runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(outcomes.to_json())
    passed = ", ".join(f"{stack} passes {len(outcomes.passed(stack))}" for stack in STACKS)
    print(f"peers: {suite.name}: {len(outcomes.cases())} cases, {passed}", flush=True)
    return list(judge(outcomes, OURS, suite.known))


def write_page() -> None:
    """Write the page from the newest outcomes; a suite without any keeps its section."""
    sections = split_page(PAGE.read_text())
    for suite in SUITES:
        if (path := results_path(suite.name)).exists():
            outcomes = Outcomes.from_json(path.read_text())
            sections[suite.title] = describe_suite(suite, outcomes)
    if (path := results_path(DECISIONS)).exists():
        table = Table.from_json(path.read_text())
        sections[TITLE] = Section("", make_section(table, CASES, NOTES))
    titles = [*(suite.title for suite in SUITES), TITLE]
    found = [sections[title] for title in titles if title in sections]
    PAGE.write_text(make_page(found, version("grpcio")))
    print("peers: wrote docs/peers.md")


def results_path(name: str) -> Path:
    return BUILD / "results" / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main())
