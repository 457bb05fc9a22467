"""Unit tests of tools.interleavings."""

import logging

import pytest

from tools.interleavings import SCENARIOS, main, show
from tools.simulation.explore import Chooser, explore


def test_both_scenarios_are_printed_with_their_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--depth", "1"]) == 0
    tear, flapping = capsys.readouterr().out.splitlines()
    assert tear.startswith("tear: depth 1, 6 orders, 6 distinct states (more beyond)")
    assert flapping.startswith("priority flapping: depth 1, 12 orders, 12 distinct states")
    assert logging.root.manager.disable == logging.NOTSET


def test_violation_is_printed_with_its_order_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SCENARIOS, "tear", (stand_or_fall, 2))
    assert main(["--only", "tear"]) == 1
    assert "  violation: stand > fall: AssertionError: hurt" in capsys.readouterr().out


def test_only_the_chosen_scenario_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--depth", "0", "--only", "priority flapping"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def stand_or_fall(chooser: Chooser) -> None:
    steps = 0
    while (step := chooser.choose(("stand", "fall"))) is not None:
        steps += 1
        assert steps == 1 or step == "stand", "hurt"


def test_each_violation_has_its_line() -> None:
    found = explore(stand_or_fall, 2)
    assert len(show("fall", found).splitlines()) == 1 + len(found.violations) == 3
