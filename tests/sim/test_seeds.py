"""Do a handful of seeds keep every promise, and does a seed always give the same run?

`make sim` runs more of them. A seed that once failed stays here for ever, with what it found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from proxyless.sim.run import Outcome, main, run_seed
from proxyless.sim.scenario import Options

# 2 has sessions, 5 a ring and load reports, 15 every workload and a fallback server, 19 aggregates.
SEEDS = (2, 5, 15, 19)
DIGEST_OF = "from proxyless.sim.run import run_seed_quietly; print(run_seed_quietly(15).digest)"


@cache
def run_once(seed: int) -> Outcome:
    return run_seed(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_keeps_every_promise(seed: int) -> None:
    outcome = run_once(seed)
    assert outcome.violations == ()
    assert outcome.rpcs["OK"] > 300


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST_OF],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    digests = [digest("1"), digest("77")]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 64


def test_another_seed_gives_another_run() -> None:
    options = Options(faults_s=20.0, calm_s=200.0)
    assert run_seed(1, options).digest != run_seed(2, options).digest


def test_the_command_tells_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "15"]) == 0
    assert f"seed 15: digest {run_once(15).digest[:16]}" in capsys.readouterr().out
