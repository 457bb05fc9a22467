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


def fake_outcomes(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[list[int]]:
    """Replace the runs of all seeds by these outcomes; returns the requested seeds."""
    requested: list[list[int]] = []

    def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
        requested.append(list(seeds))
        yield from outcomes

    monkeypatch.setattr(run, "run_seeds", run_seeds)
    return requested


def test_failing_seed_is_printed_as_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requested = fake_outcomes(monkeypatch, GOOD, BAD)
    assert main(["--seeds", "2", "--first", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert requested == [[1, 2]]
    assert lines[0] == "python -m tools.simulation --seed 2  # a is b (and 1 more)"
    assert lines[1] == "2 seeds, 1 failed"


def test_probes_that_were_never_hit_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_outcomes(monkeypatch, GOOD)
    assert main(["--seeds", "1"]) == 0
    text = capsys.readouterr().out
    assert "       2 rpc failed" in text
    assert "never connection refused" in text


def test_run_fails_when_required_probes_were_never_hit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_outcomes(monkeypatch, GOOD)
    assert main(["--seeds", "1", "--require-probes"]) == 1
    assert "never reached: " in capsys.readouterr().out
    fake_outcomes(monkeypatch, Outcome(1, "d", (), Counter(OK=3), Counter(NAMES)))
    assert main(["--seeds", "1", "--require-probes"]) == 0


def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_outcomes(monkeypatch, GOOD, BAD)
    main(["--seeds", "2"])
    assert capsys.readouterr().err == ""
    fake_outcomes(monkeypatch, GOOD, BAD)
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


def test_planted_violation_is_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real runs, and a checker that finds the first RPC."""

    def check_planted(scenario: Scenario) -> Iterator[str]:
        first = next(iter(scenario.recorder.rpcs.values()))
        yield f"{first.name} of {first.client.name}, started at {first.started_s:.3f} s: planted"

    monkeypatch.setattr(run, "CHECKERS", (check_planted,))
    assert main(["--seed", "1", "--options", f"{TINY},has_sessions=yes", "--shrink"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("rpc.start" in line and "rpc=rpc-0 " in line for line in lines)
    assert lines[-2].endswith("planted")
    assert lines[-1].startswith(f"python -m tools.simulation --seed 1 --options '{TINY}'  # ")


def test_run_without_a_violation_is_not_shrunk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seed", "1", "--options", TINY, "--shrink"]) == 0
    assert "seed 1 fails nothing" in capsys.readouterr().out


def test_options_of_two_seeds_differ() -> None:
    assert options_of(1) != options_of(2)
