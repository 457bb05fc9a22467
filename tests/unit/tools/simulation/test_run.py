"""Unit tests of tools.simulation.run."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from tools.simulation import run
from tools.simulation.probes import NAMES
from tools.simulation.report import Outcome
from tools.simulation.run import main, options_of, run_seed_quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from tools.simulation.options import Options
    from tools.simulation.scenario import Scenario

GOOD = Outcome(1, "d", (), Counter(OK=3), Counter({"rpc failed": 2}))
BAD = Outcome(2, "d", ("a is b", "c is d"), Counter(OK=1, UNAVAILABLE=1))
TINY = "clients=1,backends=1,clusters=1,rpcs_per_s=0.2,faults_s=5.0,calm_s=200.0"


def pretend(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[list[int]]:
    """Whatever seeds are asked for, this comes out; gives those that were asked for."""
    asked: list[list[int]] = []

    def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
        asked.append(list(seeds))
        yield from outcomes

    monkeypatch.setattr(run, "run_seeds", run_seeds)
    return asked


def test_a_failing_seed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = pretend(monkeypatch, GOOD, BAD)
    assert main(["--seeds", "2", "--first", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert asked == [[1, 2]]
    assert lines[0] == "python -m tools.simulation --seed 2  # a is b (and 1 more)"
    assert lines[1] == "2 seeds, 1 failed"


def test_situations_that_were_never_reached_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, GOOD)
    assert main(["--seeds", "1"]) == 0
    text = capsys.readouterr().out
    assert "       2 rpc failed" in text
    assert "never connection refused" in text


def test_situations_may_be_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, GOOD)
    assert main(["--seeds", "1", "--require-probes"]) == 1
    assert "never reached: " in capsys.readouterr().out
    pretend(monkeypatch, Outcome(1, "d", (), Counter(OK=3), Counter(NAMES)))
    assert main(["--seeds", "1", "--require-probes"]) == 0


def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, GOOD, BAD)
    main(["--seeds", "2"])
    assert capsys.readouterr().err == ""
    pretend(monkeypatch, GOOD, BAD)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(["--seeds", "2"])
    assert capsys.readouterr().err == "\r1 of 2 seeds, 0 failed\r2 of 2 seeds, 1 failed\n"


def test_a_run_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(seed: int, options: Options | None, *, lines_kept: int | None) -> Outcome:
        raise ValueError(f"seed {seed}")

    monkeypatch.setattr(run, "run_seed", explode)
    outcome = run_seed_quietly(9)
    assert outcome.violations == ("the run raised ValueError: seed 9",)
    assert outcome.kinds == ("raised ValueError",)


def test_a_planted_violation_is_made_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way, with real runs: a checker that minds RPCs of a kind."""

    def check_planted(scenario: Scenario) -> Iterator[str]:
        first = next(iter(scenario.recorder.rpcs.values()))
        yield f"{first.name} of {first.client.name}, started at {first.started_s:.3f} s: planted"

    monkeypatch.setattr(run, "CHECKERS", (check_planted,))
    assert main(["--seed", "1", "--options", f"{TINY},has_sessions=yes", "--shrink"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("rpc.start" in line and "rpc=rpc-0 " in line for line in lines)
    assert lines[-2].endswith("planted")
    assert lines[-1].startswith(f"python -m tools.simulation --seed 1 --options '{TINY}'  # ")


def test_nothing_is_made_smaller_if_nothing_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seed", "1", "--options", TINY, "--shrink"]) == 0
    assert "seed 1 fails nothing" in capsys.readouterr().out


def test_a_seed_has_options_of_its_own() -> None:
    assert options_of(1) != options_of(2)
