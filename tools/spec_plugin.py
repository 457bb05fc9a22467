"""Do the tests' `spec` marks name requirements that exist, and what did those tests say?

A pytest plugin, loaded by tests/conftest.py. An unknown ID stops the run: a claim on a requirement
that does not exist is a typing error that would otherwise look like progress. With `--spec-report`
only tests that carry the mark run, and their results are written as JSON for tools/conformance.py.
"""

import json
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path

import pytest

from tools.conformance import Outcome, Requirement, Result, load_requirements, unknown_ids, worst

PROPERTY = "spec"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spec-report", metavar="FILE", help="run only tests with spec marks; write their results"
    )


def pytest_configure(config: pytest.Config) -> None:
    report = config.getoption("--spec-report")
    is_worker = hasattr(config, "workerinput")  # pytest-xdist: results arrive at the controller
    if report and not is_worker:
        config.pluginmanager.register(Recorder(Path(report)), "spec-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make a bad claim an error of collection, which pytest-xdist reports, too."""
    report = yield
    if report.passed and (bad := describe_bad_claims(report.result)):
        return pytest.CollectReport(collector.nodeid, "failed", longrepr=bad, result=[])
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # A property of the report travels from pytest-xdist's workers; a mark does not.
        item.user_properties.append((PROPERTY, claimed_ids(item)))
    if config.getoption("--spec-report"):
        config.hook.pytest_deselected(items=[item for item in items if not claimed_ids(item)])
        items[:] = [item for item in items if claimed_ids(item)]


def claimed_ids(item: pytest.Item) -> list[str]:
    """List the IDs of all `spec` marks of a test: its own, its class's and its module's."""
    return sorted({str(each) for mark in item.iter_markers("spec") for each in mark.args})


def describe_bad_claims(nodes: Iterable[pytest.Item | pytest.Collector]) -> str:
    """Say in one line per test which claim cannot be right; empty if all can."""
    lines: list[str] = []
    for node in nodes:
        if not isinstance(node, pytest.Item):
            continue
        if any(not mark.args for mark in node.iter_markers("spec")):
            lines.append(f"{node.nodeid}: spec mark names no requirement")
        if unknown := unknown_ids(claimed_ids(node), known_requirements()):
            lines.append(f"{node.nodeid}: requirement {', '.join(unknown)} is not in docs/spec")
    return "\n".join(lines)


@cache
def known_requirements() -> dict[str, Requirement]:
    return load_requirements()


class Recorder:
    """Driven by pytest: hears of every phase of every test, writes the outcomes at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome not in {result.value for result in Result}:
            # "rerun": it has another try, and only that one counts.
            self._outcomes.pop(report.nodeid, None)
            return
        ids = next((value for name, value in report.user_properties if name == PROPERTY), [])
        assert isinstance(ids, list), "this plugin stored a list"
        before = self._outcomes.get(report.nodeid)
        # A test passes in its call; set-up and tear-down can only spoil that.
        if report.when != "call" and report.passed:
            return
        results = [Result(report.outcome)] + ([before.result] if before else [])
        self._outcomes[report.nodeid] = Outcome(report.nodeid, tuple(ids), worst(results))

    def pytest_sessionfinish(self) -> None:
        entries = [
            {"test": outcome.test, "ids": outcome.ids, "result": outcome.result.value}
            for outcome in sorted(self._outcomes.values(), key=lambda outcome: outcome.test)
        ]
        self._path.write_text(json.dumps(entries), encoding="utf-8")
