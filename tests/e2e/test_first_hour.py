"""The first hour of a new user, in this environment: `make first-hour` runs it in a new one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.first_hour import MISTAKES, Terminals, make_mistakes, use_mesh

pytestmark = [pytest.mark.timeout(400), pytest.mark.rerun("processes on real time")]


@pytest.fixture
def terminals(tmp_path: Path) -> Terminals:
    return Terminals(tmp_path, Path(sys.executable).parent)


def test_commands_that_init_prints_lead_to_a_canary_and_a_failover(terminals: Terminals) -> None:
    printed = use_mesh(terminals)
    commands = [step.command for step in terminals.steps]
    shown = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    assert len(shown) == 6
    for command in shown:
        assert any(each.startswith(command) for each in commands), command
    answers = {step.command: step.answer for step in terminals.steps}
    assert (
        "orders 90 %, canary 10 % → orders 0 %, canary 100 %"
        in (answers["proxyless diff before.yaml mesh"])
    )


def test_each_mistake_ends_in_one_line_with_the_next_command_which_names_the_cause(
    terminals: Terminals,
) -> None:
    use_mesh(terminals)
    terminals.steps.clear()
    # The first is a typo. `explain` takes 15 s for it; tests/sim/test_first_mistakes.py has it.
    make_mistakes(terminals, MISTAKES[1:])
    assert [step.change for step in terminals.steps if step.change] == [
        mistake.change for mistake in MISTAKES[1:]
    ]
