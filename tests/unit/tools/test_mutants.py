"""Unit tests of tools.mutants."""

from dataclasses import replace
from difflib import ndiff
from pathlib import Path

import pytest

from tools.conformance import load_requirements
from tools.mutants import (
    PACKAGE,
    ROOT,
    TableError,
    WorkingCopy,
    check_copies,
    check_table,
    choose,
    judge_seed,
    judge_tests,
    main,
    mutate,
    run_all,
    show,
)
from tools.mutations import MUTATIONS, Mutation

BUG = Mutation("adds-one", "sums.py", "a + b", "a + b + 1", "A56-01", tests=("tests/test_sums.py",))

# ---------------------------------------------------------------------------------------------
# The table


def test_every_mutation_matches_the_source() -> None:
    check_table(MUTATIONS, ROOT)


def test_some_mutations_are_caught_by_the_simulator_alone() -> None:
    assert len(MUTATIONS) >= 25
    assert sum(bool(each.seeds) and not each.tests for each in MUTATIONS) >= 3
    explored = [each for each in MUTATIONS if any("interleavings" in test for test in each.tests)]
    assert len(explored) >= 2


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_mutation_is_one_line_and_breaks_a_requirement(
    mutation: Mutation,
) -> None:
    lines = list(ndiff(mutation.old.splitlines(), mutation.new.splitlines()))
    for sign in "-+":
        assert sum(line.startswith(f"{sign} ") for line in lines) <= 1
    is_elsewhere = mutation.breaks.startswith("RFC ") or mutation.breaks == "A6"
    assert is_elsewhere or mutation.breaks in load_requirements()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_tests_of_mutations_exist(mutation: Mutation) -> None:
    for test in mutation.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}" in text


@pytest.mark.parametrize(("text", "count"), [("return a - b", 0), ("a + b or a + b", 2)])
def test_text_that_does_not_occur_exactly_once_is_an_error(text: str, count: int) -> None:
    with pytest.raises(TableError, match=f"adds-one: sums.py has the text {count} times"):
        mutate(text, BUG)


def test_a_mutation_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(TableError, match="would not compile"):
        mutate("x = a + b", replace(BUG, new="a +"))


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ([BUG, BUG], "adds-one: is listed twice"),
        ([replace(BUG, tests=())], "has neither tests nor seeds"),
        ([replace(BUG, file="nowhere.py")], "there is no src/proxyless/nowhere.py"),
    ],
)
def test_invalid_table_is_an_error(broken: list[Mutation], text: str, small_tree: Path) -> None:
    with pytest.raises(TableError, match=text):
        check_table(broken, small_tree)


def test_mutations_are_chosen_by_name_and_an_unknown_name_is_an_error() -> None:
    other = replace(BUG, name="other")
    assert choose([], [BUG, other]) == [BUG, other]
    assert choose(["other"], [BUG, other]) == [other]
    with pytest.raises(TableError, match="no mutation is named nothing"):
        choose(["nothing"], [BUG])


# ---------------------------------------------------------------------------------------------
# Verdicts


def test_a_failed_test_is_a_witness() -> None:
    output = "F\nFAILED tests/spec/test_a56.py::test_x[1] - AssertionError: no\n1 failed in 0.1s"
    verdict = judge_tests(1, output)
    assert (verdict.is_caught, verdict.witness) == (True, "tests/spec/test_a56.py::test_x[1]")


def test_mutation_survives_when_all_tests_pass() -> None:
    assert not judge_tests(0, "7 passed").is_caught
    assert not judge_seed(7, 0, "seed 7: digest 0123").is_caught


@pytest.mark.parametrize("exit_code", [2, 3, 4, 5])
def test_failed_run_catches_nothing(exit_code: int) -> None:
    verdict = judge_tests(exit_code, "ERROR tests/x.py::y\nno tests ran in 0.11s")
    assert verdict.is_error
    assert not verdict.is_caught
    assert f"ended with {exit_code}: no tests ran" in verdict.witness


def test_violation_of_a_seed_is_a_witness() -> None:
    verdict = judge_seed(7, 1, "violation: rpc-1 went wrong\nviolation: two\nseed 7: ...")
    assert (verdict.is_caught, verdict.witness) == (True, "seed 7: rpc-1 went wrong")
    crash = judge_seed(7, 1, "Traceback\nAssertionError: no connection")
    assert (crash.is_caught, crash.witness) == (True, "seed 7: AssertionError: no connection")


# ---------------------------------------------------------------------------------------------
# Runs


@pytest.fixture
def small_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one function and one test, which needs no plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "repository"
    files = {
        f"{PACKAGE}/__init__.py": "",
        f"{PACKAGE}/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sums.py": (
            "from proxyless.sums import add\n\ndef test_add():\n    assert add(2, 2) == 4\n"
        ),
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def texts(root: Path) -> dict[str, str]:
    return {str(path): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}


def test_bugs_are_planted_in_copies_only_and_survivors_are_reported(
    small_tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(small_tree)
    harmless = replace(BUG, name="swaps", new="b + a")
    caught, survived = run_all([BUG, harmless], small_tree, jobs=1)
    assert (caught.is_caught, caught.witness) == (True, "tests/test_sums.py::test_add")
    assert (survived.is_caught, survived.is_error) == (False, False)
    assert texts(small_tree) == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("without any mutation everything passes")
    assert lines[1].startswith("caught ")
    assert lines[3].startswith("SURVIVED ")


def test_copy_runs_its_own_source_and_is_restored(small_tree: Path, tmp_path: Path) -> None:
    copy = WorkingCopy(small_tree, tmp_path / "copy")
    assert copy.origin() == tmp_path / "copy" / PACKAGE / "__init__.py"
    path = tmp_path / "copy" / PACKAGE / BUG.file
    sound = path.read_text(encoding="utf-8")
    with copy.planted(BUG):
        assert "a + b + 1" in path.read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == sound


def test_unchanged_copy_that_fails_is_an_error(small_tree: Path, tmp_path: Path) -> None:
    (small_tree / PACKAGE / "sums.py").write_text("def add(a, b):\n    return a + b + 7\n")
    copy = WorkingCopy(small_tree, tmp_path / "copy")
    with pytest.raises(TableError, match=r"without any mutation: tests/test_sums\.py::test_add"):
        check_copies([copy], [BUG])


def test_line_has_the_broken_requirement_and_the_failed_test() -> None:
    line = show(BUG, replace(judge_tests(0, ""), seconds=1.25))
    assert line.split() == ["SURVIVED", "1.2", "s", "A56-01", "adds-one", "all", "tests", "passed"]


def test_command_lists_mutations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MUTATIONS)
    assert main(["--only", "nothing"]) == 2
    assert "no mutation is named nothing" in capsys.readouterr().err
