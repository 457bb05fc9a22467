"""Unit tests of `tools.pythons`."""

import tomllib
from pathlib import Path

import pytest

from tools import coverage_floor
from tools.pythons import (
    SUITES,
    Job,
    Python,
    candidate_paths,
    choose_commands,
    choose_jobs,
    find_lowest,
    find_pythons,
    main,
)

OLD, NEW = Python(11, Path("/old")), Python(13, Path("/new"))


def write_interpreter(path: Path, answer: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_pythons_are_found_once_each_in_order(tmp_path: Path) -> None:
    newer = write_interpreter(tmp_path / "a" / "python3.13", "Python 3.13.0")
    older = write_interpreter(tmp_path / "a" / "python3.11", "Python 3.11.7")
    again = write_interpreter(tmp_path / "b" / "python3.13", "Python 3.13.1")
    found = find_pythons([newer, older, again, tmp_path / "a" / "python3.12"])
    assert found == [Python(11, older), Python(13, newer)]


def test_interpreter_is_left_out_when_it_does_not_start(tmp_path: Path) -> None:
    shim = write_interpreter(tmp_path / "python3.12", "not active", code=1)
    other = write_interpreter(tmp_path / "python3.13", "Python 3.11.7")
    assert find_pythons([shim, other]) == []


def test_candidates_include_every_version_of_pyenv(tmp_path: Path) -> None:
    (tmp_path / "versions" / "3.12.1" / "bin").mkdir(parents=True)
    paths = set(candidate_paths({"PATH": "/usr/bin", "PYENV_ROOT": str(tmp_path)}, tmp_path))
    expected = {Path("/usr/bin/python3.11"), tmp_path / "versions/3.12.1/bin/python3.12"}
    assert expected <= paths


def test_oldest_python_also_runs_with_the_lowest_dependencies() -> None:
    jobs = choose_jobs([OLD, NEW], only=None, is_latest=False)
    assert jobs == [Job(OLD, is_lowest=True), Job(OLD), Job(NEW)]
    assert [job.name for job in jobs] == ["3.11-lowest", "3.11-newest", "3.13-newest"]


def test_lowest_dependencies_are_the_lower_bounds_of_the_project() -> None:
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lowest = dict(requirement.split("==") for requirement in find_lowest(project))
    extras = project["optional-dependencies"]
    for bound in (*project["dependencies"], *extras["cli"], *extras["fast"]):
        name, version = bound.split(">=")
        assert lowest[name] == version
    # Released together: with the newest of these, pip would refuse the oldest grpcio.
    assert lowest["grpcio-tools"] == lowest["grpcio-reflection"] == lowest["grpcio"]


def test_latest_is_only_the_newest_python() -> None:
    assert choose_jobs([OLD, NEW], only=None, is_latest=True) == [Job(NEW)]


def test_every_suite_runs_once_when_coverage_is_measured() -> None:
    floor, rest = choose_commands([], is_coverage=True)
    assert floor == ("-m", "tools.coverage_floor")
    covered = [suite for suites in coverage_floor.SUITES for suite in suites]
    uncovered = [each for each in rest if each.startswith("tests/")]
    assert not set(covered) & set(uncovered)
    assert {*covered, *uncovered} >= set(SUITES)


def test_arguments_replace_the_suites() -> None:
    commands = choose_commands(["-q", "tests/unit"], is_coverage=False)
    assert commands == [("-m", "pytest", "-q", "tests/unit")]


def test_unknown_version_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", "3.2"]) == 2
    assert "no such Python" in capsys.readouterr().err
