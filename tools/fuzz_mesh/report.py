"""Texts of a run for the terminal, and its JSON log."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from tools.fuzz_mesh.judge import is_lost_with_backend, step_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tools.fuzz_mesh.judge import Finding
    from tools.fuzz_mesh.plan import Plan
    from tools.fuzz_mesh.records import ClientRecords, Rpc, Timeline
    from tools.fuzz_mesh.run import Run

RPCS_SHOWN: Final = 8
STEPS_SHOWN: Final = 4
DETAILS_CHARS_MAX: Final = 160


def summarize(plan: Plan, run: Run, findings: Sequence[Finding]) -> str:
    """The progress line of a seed."""
    parts = [f"seed {plan.seed}: {len(run.timeline.steps)} steps"]
    for name, client in (("ours", run.ours), ("grpcio", run.theirs)):
        lost = sum(is_lost_with_backend(rpc, run.timeline) for rpc in client.rpcs)
        failed = sum(not rpc.is_ok for rpc in client.rpcs) - lost
        slowest_s = max((rpc.took_s for rpc in client.rpcs), default=0.0)
        text = f"{name} {len(client.rpcs)} RPCs, {failed} failed, {lost} lost with a backend"
        parts.append(f"{text}, slowest {slowest_s:.2f} s")
    stalled_s = sum(stall.end_s - stall.start_s for stall in run.timeline.stalls)
    if stalled_s:
        parts.append(f"the machine stalled for {stalled_s:.1f} s")
    if run.theirs.crash:
        step = step_at(run.timeline, run.theirs.crash_s)
        parts.append(f"{run.theirs.crash} in step {step}")
    parts.append(f"{len(findings)} FINDINGS" if findings else "ok")
    return "; ".join(parts)


def show_finding(plan: Plan, run: Run, finding: Finding, command: str) -> Iterator[str]:
    """The lines about one finding."""
    yield f"FAILED seed {plan.seed} step {finding.step}: {finding.kind}: {finding.text}"
    begin_s = run.timeline.steps[0].start_s
    for number in range(max(0, finding.step - STEPS_SHOWN + 1), finding.step + 1):
        at_s = run.timeline.steps[number].start_s - begin_s
        actions = ", ".join(map(str, plan.steps[number].actions))
        yield f"  step {number} at {at_s:.2f} s: {plan.steps[number].name} ({actions})"
    for name, rpcs in (("ours", finding.ours), ("grpcio", finding.theirs)):
        yield from (f"  {line}" for line in _show_rpcs(name, rpcs, begin_s))
    yield f"  again: {command}"


def _show_rpcs(name: str, rpcs: Sequence[Rpc], begin_s: float) -> Iterator[str]:
    """Those that failed, then the slowest ones."""
    counts = Counter(rpc.code for rpc in rpcs)
    yield f"{name}: {', '.join(f'{count} {code}' for code, count in counts.items()) or 'none'}"
    for rpc in sorted(rpcs, key=lambda rpc: (rpc.is_ok, -rpc.took_s))[:RPCS_SHOWN]:
        at = f"at {rpc.start_s - begin_s:.3f} s, took {rpc.took_s:.3f} s"
        what = rpc.peer if rpc.is_ok else rpc.details[:DETAILS_CHARS_MAX]
        yield f"  {rpc.kind} {at}: {rpc.code} {what}"


def list_steps(plan: Plan, run: Run) -> Iterator[str]:
    """A line per step: failures, the slowest RPC and the peers of both clients; for the log."""
    timeline = run.timeline
    begin_s = timeline.steps[0].start_s
    for number, step in enumerate(timeline.steps):
        yield f"step {number} at {step.start_s - begin_s:.2f} s: {plan.steps[number].name}"
        for name, client in (("ours", run.ours), ("grpcio", run.theirs)):
            yield f"  {name}: {_sum_up_step(client, timeline, number)}"


def _sum_up_step(client: ClientRecords, timeline: Timeline, number: int) -> str:
    rpcs = [rpc for rpc in client.rpcs if step_at(timeline, rpc.start_s) == number]
    codes = Counter(rpc.code for rpc in rpcs)
    peers = Counter(rpc.peer.rpartition(":")[2] for rpc in rpcs if rpc.is_ok)
    slowest_s = max((rpc.took_s for rpc in rpcs), default=0.0)
    return f"{dict(codes)}, slowest {slowest_s:.3f} s, peers {dict(sorted(peers.items()))}"


def write_log(plan: Plan, run: Run, findings: Sequence[Finding], log: Path) -> Path:
    """Write the run as JSON, and a text with a line per step."""
    (log / "steps.txt").write_text("\n".join(list_steps(plan, run)) + "\n")
    content = {
        "plan": dataclasses.asdict(plan),
        "run": dataclasses.asdict(run),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    path = log / "run.json"
    path.write_text(json.dumps(content, default=sorted))
    return path
