"""Does a failing seed tell how to run it again?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proxyless.sim import run
from proxyless.sim.run import Outcome, main, run_seed_quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

GOOD = Outcome(1, "d", (), Counter(OK=3), Counter({"rpc failed": 2}))
BAD = Outcome(2, "d", ("a is b", "c is d"), Counter(OK=1, UNAVAILABLE=1))


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
    assert lines[0] == "python -m proxyless.sim --seed 2  # a is b (and 1 more)"
    assert lines[1] == "2 seeds, 1 failed, rpcs OK 4, UNAVAILABLE 1"


def test_situations_that_were_never_reached_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, GOOD)
    assert main(["--seeds", "1"]) == 0
    text = capsys.readouterr().out
    assert "       2 rpc failed" in text
    assert "never connection refused" in text


def test_a_run_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(seed: int) -> Outcome:
        raise ValueError(f"seed {seed}")

    monkeypatch.setattr(run, "run_seed", explode)
    assert run_seed_quietly(9).violations == ("the run raised ValueError: seed 9",)
