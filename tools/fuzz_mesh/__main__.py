"""The command line of the fuzzer.

python -m tools.fuzz_mesh --seeds 10 --seconds 60 --jobs 2
python -m tools.fuzz_mesh --seed 7 --until 12
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.backend import BackendUnavailableError
from tools.fuzz_mesh.judge import Finding, judge
from tools.fuzz_mesh.plan import Plan, make_plan
from tools.fuzz_mesh.report import show_finding, summarize, write_log
from tools.fuzz_mesh.run import ROOT, run_seed

FIRST_SEED: Final = 1
FINDINGS_SHOWN: Final = 5
# A state that fails RPCs of both clients may last a few milliseconds, so that by chance only one
# client has an RPC in it. So few failures count only if a replay has them as well.
CHANCE_RPCS_MAX: Final = 2
REPLAYS: Final = 3


async def fuzz_plan(plan: Plan, seconds: float, logs: Path) -> int:
    """Run one seed and print the results; returns the number of findings."""
    log = logs / f"seed-{plan.seed}"
    log.mkdir(exist_ok=True)
    run = await run_seed(plan, log)
    findings = [each for each in judge(run) if await is_confirmed(plan, each, log)]
    path = write_log(plan, run, findings, log)
    lines = [summarize(plan, run, findings)]
    for finding in findings[:FINDINGS_SHOWN]:
        options = f"--seed {plan.seed} --seconds {seconds:g} --until {finding.step}"
        lines += show_finding(plan, run, finding, f"make fuzz-mesh ARGS='{options}'")
    print("\n".join([*lines, f"  log: {path}"]), flush=True)
    return len(findings)


async def is_confirmed(plan: Plan, finding: Finding, log: Path) -> bool:
    """Whether many RPCs failed, or some in a replay as well."""
    if finding.kind != "failed" or len(finding.ours) > CHANCE_RPCS_MAX:
        return True
    replayed = plan.until(finding.step)
    directory = log / "replay"
    directory.mkdir(exist_ok=True)
    for number in range(1, REPLAYS + 1):
        again = judge(await run_seed(replayed, directory))
        if any((each.kind, each.step) == (finding.kind, finding.step) for each in again):
            return True
        text = f"seed {plan.seed} step {finding.step}: {finding.text}; not in replay {number}"
        print(f"{text} of {REPLAYS}", flush=True)
    return False


async def fuzz_seeds(seeds: range, seconds: float, jobs: int, logs: Path) -> int:
    """Run each seed in a process of its own, `jobs` at a time; returns how many failed."""
    turns = asyncio.Semaphore(jobs)

    async def take_turn(seed: int) -> bool:
        options = ("--seed", str(seed), "--seconds", str(seconds), "--logs", str(logs))
        async with turns:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tools.fuzz_mesh", *options, cwd=ROOT
            )
            try:
                return await process.wait() != 0
            except asyncio.CancelledError:
                process.terminate()
                await process.wait()
                raise

    failed = sum(await asyncio.gather(*map(take_turn, seeds)))
    print(f"fuzz_mesh: {len(seeds)} seeds, {failed} failed; logs in {logs}")
    return failed


def list_plan(plan: Plan) -> None:
    for number, step in enumerate(plan.steps):
        actions = ", ".join(map(str, step.actions))
        print(f"step {number}: {step.name} ({actions}), then {step.wait_s:.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.fuzz_mesh", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds")
    parser.add_argument("--seed", type=int, help="run only this seed; --until and --plan need it")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of the seeds")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a plan")
    parser.add_argument("--jobs", type=int, default=1, help="number of seeds at a time")
    parser.add_argument("--until", type=int, help="end the plan after this step")
    parser.add_argument("--logs", type=Path, help="directory of the logs; a new one otherwise")
    parser.add_argument("--plan", action="store_true", help="print the steps and run nothing")
    arguments = parser.parse_args()
    logs = arguments.logs or Path(tempfile.mkdtemp(prefix="fuzz-mesh-"))
    if arguments.seed is None:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        running = fuzz_seeds(seeds, arguments.seconds, arguments.jobs, logs)
        return int(bool(asyncio.run(running)))
    plan = make_plan(arguments.seed, arguments.seconds)
    if arguments.until is not None:
        plan = plan.until(arguments.until)
    if arguments.plan:
        list_plan(plan)
        return 0
    try:
        return int(bool(asyncio.run(fuzz_plan(plan, arguments.seconds, logs))))
    except BackendUnavailableError as error:
        print(f"fuzz_mesh: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
