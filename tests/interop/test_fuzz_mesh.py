"""A short run of tools/fuzz_mesh beside grpcio. `make fuzz` runs longer, and other seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.backend import BackendUnavailableError
from tools.fuzz_mesh.judge import judge
from tools.fuzz_mesh.plan import make_plan
from tools.fuzz_mesh.report import show_finding, summarize, write_log
from tools.fuzz_mesh.run import ROOT, run_seed

if TYPE_CHECKING:
    from pathlib import Path

SEED = 9
SECONDS = 8.0
# Each client sends 100 a second, also before the first step and after the last one.
RPCS_MIN = 800


@pytest.mark.rerun("compares the RPCs of two processes in a mesh that changes on real time")
async def test_proxyless_fails_no_more_rpcs_than_grpcio_when_a_mesh_changes(tmp_path: Path) -> None:
    plan = make_plan(SEED, SECONDS)
    try:
        run = await run_seed(plan, tmp_path)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    findings = judge(run)
    shown = [line for each in findings for line in show_finding(plan, run, each, "make fuzz")]
    assert not findings, "\n".join(shown)
    assert summarize(plan, run, findings).endswith("; ok")
    assert write_log(plan, run, findings, tmp_path).stat().st_size > 0
    # Steps were carried out, and both clients used several backends.
    assert len(run.timeline.steps) == len(plan.steps)
    for client in (run.ours, run.theirs):
        assert len(client.rpcs) >= RPCS_MIN
        assert len({rpc.peer for rpc in client.rpcs if rpc.is_ok}) > 1


def test_plan_does_not_depend_on_the_order_of_sets() -> None:
    command = [sys.executable, "-m", "tools.fuzz_mesh", "--plan", "--seed", "5"]
    plans = {
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(plans) == 1
