"""Pytest plugin that checks the `spec` marks of tests and records the results of marked tests.

Loaded by tests/conftest.py. A mark that names an unknown clause stops the run, because a mistyped
ID would look like progress. A test that claims more than `CLAIMS_MAX` clauses needs a reason, such
as `@pytest.mark.spec("A1-01", ..., reason="one table over all rows")`: a test of many clauses
usually proves little of each. With `--spec-report` the results of marked tests are written as JSON
for tools/conformance.py; with `--spec-only` no other tests run.
"""

import json
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path

import pytest

from tools.conformance import Outcome, Requirement, Result, load_requirements, unknown_ids, worst

PROPERTY = "spec"
CLAIMS_MAX = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spec-report", metavar="FILE", help="write the results of tests with spec marks"
    )
    parser.addoption("--spec-only", action="store_true", help="run only tests with spec marks")


def pytest_configure(config: pytest.Config) -> None:
    report = config.getoption("--spec-report")
    is_worker = hasattr(config, "workerinput")  # pytest-xdist: results arrive at the controller
    if report and not is_worker:
        config.pluginmanager.register(Recorder(Path(report)), "spec-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a bad claim into a collection error, which pytest-xdist reports too."""
    report = yield
    if report.passed and (bad := describe_bad_claims(report.result)):
        return pytest.CollectReport(collector.nodeid, "failed", longrepr=bad, result=[])
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # A property of the report travels from pytest-xdist's workers; a mark does not.
        item.user_properties.append((PROPERTY, claimed_ids(item)))
    if config.getoption("--spec-only"):
        config.hook.pytest_deselected(items=[item for item in items if not claimed_ids(item)])
        items[:] = [item for item in items if claimed_ids(item)]


def claimed_ids(item: pytest.Item) -> list[str]:
    """List the IDs of all `spec` marks of a test: its own, its class's and its module's."""
    return sorted({str(each) for mark in item.iter_markers("spec") for each in mark.args})


def describe_bad_claims(nodes: Iterable[pytest.Item | pytest.Collector]) -> str:
    """Describe the bad claims of all tests, one line each; empty if there is none."""
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, pytest.Item):
            lines += [f"{node.nodeid}: {text}" for text in bad_claims(node)]
    return "\n".join(lines)


def bad_claims(item: pytest.Item) -> list[str]:
    found: list[str] = []
    marks = list(item.iter_markers("spec"))
    ids = claimed_ids(item)
    if any(not mark.args for mark in marks):
        found.append("spec mark names no clause")
    if unknown := unknown_ids(ids, known_requirements()):
        found.append(f"clause {', '.join(unknown)} is not in docs/spec")
    if keywords := {key for mark in marks for key in mark.kwargs} - {"reason"}:
        found.append(f"spec mark has {', '.join(sorted(keywords))}, wanted only reason")
    if len(ids) > CLAIMS_MAX and not any(mark.kwargs.get("reason") for mark in marks):
        found.append(
            f"claims {len(ids)} clauses, wanted at most {CLAIMS_MAX}: split the test, or give the"
            " spec mark a reason"
        )
    return found


@cache
def known_requirements() -> dict[str, Requirement]:
    return load_requirements()


class Recorder:
    """Collects the results of marked tests and writes them as JSON at the end of the session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome not in {result.value for result in Result}:
            # "rerun": the test runs again, and only the last run counts.
            self._outcomes.pop(report.nodeid, None)
            return
        ids = next((value for name, value in report.user_properties if name == PROPERTY), [])
        assert isinstance(ids, list), "this plugin stored a list"
        if not ids:
            return
        before = self._outcomes.get(report.nodeid)
        # A test passes in its call phase; set-up and tear-down can only fail it.
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
