"""tools/spec_plugin.py: claims are checked at collection, and their results are recorded.

These tests run pytest inside pytest, in a directory of their own.
"""

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CLAIMS = """
import pytest

@pytest.fixture
def breaks_afterwards():
    yield
    assert False

@pytest.mark.spec("A56-01", "A56-02")
@pytest.mark.parametrize("n", [1, 2])
def test_passes(n): pass

@pytest.mark.spec("A56-03")
def test_fails(): assert False

@pytest.mark.spec("A56-04")
def test_breaks_in_tear_down(breaks_afterwards): pass

@pytest.mark.spec("A56-05")
@pytest.mark.skip
def test_is_skipped(): pass

@pytest.mark.spec("A56-06")
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False

seen = []

@pytest.mark.spec("A56-07")
@pytest.mark.flaky(reruns=1)
def test_passes_at_the_second_try():
    seen.append(1)
    assert len(seen) == 2

@pytest.mark.spec("A56-08")
@pytest.mark.flaky(reruns=1)
def test_fails_twice(): assert False

def test_has_no_spec_mark(): assert False
"""


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers = spec(*ids): ids\n")
    return pytester


def run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    plain = ("-p", "tools.spec_plugin", "-p", "no:asyncio", "-p", "no:hypothesispytest")
    return inner.runpytest_inprocess(*plain, *arguments)


def test_unknown_id_is_an_error_of_collection(inner: pytest.Pytester) -> None:
    inner.makepyfile("import pytest\n@pytest.mark.spec('A56-999')\ndef test_x(): pass\n")
    result = run(inner)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*::test_x: clause A56-999 is not in docs/spec")


def test_unknown_id_on_a_class_is_an_error_of_collection(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import pytest\n@pytest.mark.spec('A56-999')\nclass TestX:\n    def test_x(self): pass\n"
    )
    assert run(inner).ret == pytest.ExitCode.INTERRUPTED


def test_mark_without_ids_is_an_error_of_collection(inner: pytest.Pytester) -> None:
    inner.makepyfile("import pytest\n@pytest.mark.spec()\ndef test_x(): pass\n")
    result = run(inner)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*::test_x: spec mark names no clause")


MANY = "'A56-01', 'A56-02', 'A56-03', 'A56-04'"


def test_more_than_three_clauses_without_a_reason_are_an_error_of_collection(
    inner: pytest.Pytester,
) -> None:
    inner.makepyfile(f"import pytest\n@pytest.mark.spec({MANY})\ndef test_x(): pass\n")
    result = run(inner)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*::test_x: claims 4 clauses, wanted at most 3: split the test*")


def test_clauses_of_module_and_function_are_counted_together(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import pytest\npytestmark = pytest.mark.spec('A56-01', 'A56-02')\n"
        "@pytest.mark.spec('A56-03', 'A56-04')\ndef test_x(): pass\n"
    )
    assert run(inner).ret == pytest.ExitCode.INTERRUPTED


def test_more_than_three_clauses_are_accepted_when_there_is_a_reason(
    inner: pytest.Pytester,
) -> None:
    mark = f"@pytest.mark.spec({MANY}, reason='one table')"
    inner.makepyfile(f"import pytest\n{mark}\ndef test_x(): pass\n")
    run(inner).assert_outcomes(passed=1)


def test_another_keyword_than_reason_is_an_error_of_collection(inner: pytest.Pytester) -> None:
    inner.makepyfile("import pytest\n@pytest.mark.spec('A56-01', why='x')\ndef test_x(): pass\n")
    result = run(inner)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*::test_x: spec mark has why, wanted only reason")


def test_known_ids_change_nothing_in_a_plain_run(inner: pytest.Pytester) -> None:
    inner.makepyfile("import pytest\n@pytest.mark.spec('A56-01')\ndef test_x(): pass\n")
    run(inner).assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
@pytest.mark.parametrize("only", [(), ("--spec-only",)], ids=["all", "only"])
def test_report_has_each_tagged_test_with_its_worst_phase(
    inner: pytest.Pytester,
    workers: tuple[str, ...],
    only: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The inner run is its own session, not a worker of the outer one.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    inner.makepyfile(CLAIMS)
    report = Path(inner.path) / "outcomes.json"
    result = run(inner, f"--spec-report={report}", *only, *workers)
    assert ("test_has_no_spec_mark" in result.stdout.str()) is (not only)
    entries = json.loads(report.read_text(encoding="utf-8"))
    found = {entry["test"].partition("::")[2]: entry["result"] for entry in entries}
    assert found == {
        "test_passes[1]": "passed",
        "test_passes[2]": "passed",
        "test_fails": "failed",
        "test_breaks_in_tear_down": "failed",
        "test_is_skipped": "skipped",
        "test_is_expected_to_fail": "skipped",
        "test_passes_at_the_second_try": "passed",
        "test_fails_twice": "failed",
    }
    claims = {entry["test"].partition("::")[2]: entry["ids"] for entry in entries}
    assert claims["test_passes[2]"] == ["A56-01", "A56-02"]
