"""Verdict on a run of the demo, from its recorded RPCs and steps.

Each row is one claim with its result; the verdict is good if all rows are.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.demo.mesh import NEW, names_in, names_of
from proxyless.demo.story import CALM_S, by_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from proxyless.demo.story import Step, StepLog
    from proxyless.demo.traffic import Rpc

# RPCs under way on a killed backend may fail within this time after the kill.
KILL_WINDOW_S: Final = 1.0
# Text of the status of such an RPC.
LOST: Final = "connection lost"
FAILOVER_S_MAX: Final = 2.0
# An RPC that takes this share of the delay of the late cluster has waited for it.
WAITED_SHARE: Final = 0.8
# Number of reasons in the text: a broken mesh has one for each port.
REASONS_MAX: Final = 3

_KILLS: Final = ("kill-a", "kill-b")


@frozen
class Row:
    """One claim with its result."""

    name: str
    value: str
    is_good: bool = True


@frozen
class Verdict:
    """All rows."""

    rows: tuple[Row, ...]

    @property
    def is_good(self) -> bool:
        return all(row.is_good for row in self.rows)


@frozen
class Evidence:
    """Records of a run."""

    story: Sequence[Step]
    logs: Sequence[StepLog]
    started: int
    rpcs: Sequence[Rpc]


def judge(evidence: Evidence) -> Verdict:
    """Judge a run. A step that was not seen only affects the row of the story."""
    logs = by_key(evidence.logs)
    rows = [
        _judge_story(evidence),
        Row("RPCs sent", f"{evidence.started:,}", evidence.started == len(evidence.rpcs) > 0),
        _judge_failures(evidence.rpcs, kills_of(evidence.logs)),
        _judge_latency(evidence.rpcs),
    ]
    seen = {key: log for key, log in logs.items() if log.seen_s is not None}
    if "kill-a" in seen:
        rows.append(_judge_failover("failover a to b", evidence.rpcs, seen["kill-a"], "a"))
    if "kill-b" in seen:
        rows.append(_judge_failover("failover b to DNS", evidence.rpcs, seen["kill-b"], "b"))
    if "move" in seen:
        rows.append(_judge_session(evidence.rpcs, seen["move"]))
    if {"route", "late"} <= set(seen):
        rows.append(_judge_tear(evidence.rpcs, seen["route"], seen["late"]))
    if {"stop", "start"} <= set(seen):
        rows.append(_judge_restart(evidence.rpcs, seen["stop"], seen["start"]))
    return Verdict(tuple(rows))


def _judge_story(evidence: Evidence) -> Row:
    seen = sum(log.seen_s is not None for log in evidence.logs)
    text = f"{seen} of {len(evidence.story)} steps seen"
    steps = {step.key: step for step in evidence.story}
    for log in evidence.logs:
        if log.got:
            step = steps[log.key]
            text += f"; {step.title}: got: {log.got}, wanted: {step.expected}"
    return Row("story", text, seen == len(evidence.story))


def kills_of(logs: Iterable[StepLog]) -> list[float]:
    return [log.started_s for log in logs if log.key in _KILLS]


def is_excused(rpc: Rpc, kills_s: Iterable[float]) -> bool:
    """Whether the RPC failed because its backend was killed."""
    return (
        rpc.code == "UNAVAILABLE"
        and LOST in rpc.details
        and any(kill_s <= rpc.ended_s <= kill_s + KILL_WINDOW_S for kill_s in kills_s)
    )


def _judge_failures(rpcs: Iterable[Rpc], kills_s: Sequence[float]) -> Row:
    failed = [rpc for rpc in rpcs if not rpc.is_ok]
    reasons = Counter(_reason(rpc, kills_s) for rpc in failed)
    if not failed:
        return Row("RPCs failed", "none")
    shown = [f"{count} {reason}" for reason, count in reasons.most_common(REASONS_MAX)]
    if (others := len(reasons) - len(shown)) > 0:
        shown.append(f"and {others} other reasons")
    return Row("RPCs failed", ", ".join(shown), all(is_excused(rpc, kills_s) for rpc in failed))


def _reason(rpc: Rpc, kills_s: Sequence[float]) -> str:
    if is_excused(rpc, kills_s):
        return f"{rpc.code} on a killed backend"
    return f"{rpc.code}: {rpc.details}"


def _judge_latency(rpcs: Iterable[Rpc]) -> Row:
    took_s = sorted(rpc.took_s for rpc in rpcs if rpc.is_ok)
    if not took_s:
        return Row("latency", "no RPC was answered", is_good=False)
    half, most = took_s[len(took_s) // 2], took_s[len(took_s) * 99 // 100]
    return Row("latency", f"median {_ms(half)}, 99 % {_ms(most)}, longest {_ms(took_s[-1])}")


def failover_s(rpcs: Iterable[Rpc], kill_s: float, killed: Collection[str]) -> float | None:
    """Time from the kill to the first second in which all RPCs succeed on other backends.

    None if there was no such second.
    """
    after = sorted((rpc for rpc in rpcs if rpc.started_s >= kill_s), key=lambda rpc: rpc.started_s)
    begin_s = kill_s
    for rpc in after:
        if rpc.started_s >= begin_s + CALM_S:
            return begin_s - kill_s
        if not rpc.is_ok or rpc.backend in killed:
            begin_s = max(begin_s, rpc.ended_s)
    return None


def _judge_failover(name: str, rpcs: Sequence[Rpc], log: StepLog, zone: str) -> Row:
    took_s = failover_s(rpcs, log.started_s, names_in(zone))
    if took_s is None:
        return Row(name, "not all RPCs succeeded in any second", is_good=False)
    waited_s = _longest_s(rpcs, log.started_s, log.started_s + CALM_S)
    text = f"{_ms(took_s)}, longest RPC {_ms(waited_s)}"
    return Row(name, text, max(took_s, waited_s) <= FAILOVER_S_MAX)


def _longest_s(rpcs: Iterable[Rpc], from_s: float, until_s: float) -> float:
    """Duration of the longest RPC that was under way in this time."""
    inside = (rpc for rpc in rpcs if rpc.ended_s >= from_s and rpc.started_s <= until_s)
    return max((rpc.took_s for rpc in inside), default=0.0)


def _judge_session(rpcs: Iterable[Rpc], log: StepLog) -> Row:
    session = [rpc for rpc in rpcs if rpc.is_session and rpc.is_ok]
    before = [rpc for rpc in session if rpc.ended_s < log.started_s][-1:]
    during = [rpc for rpc in session if log.started_s <= rpc.ended_s <= (log.ended_s or 0.0)]
    places = {(rpc.backend, rpc.peer) for rpc in (*before, *during)}
    names = {name for name, _ in places}
    if names == {log.moved} and len(places) == 1 and before and during:
        return Row("session", f"stayed on {log.moved}, one connection, when that changed priority")
    where = ", ".join(sorted(names)) or "no backend"
    return Row("session", f"answered by {where}, {len(places)} connections", is_good=False)


def _judge_tear(rpcs: Sequence[Rpc], route: StepLog, late: StepLog) -> Row:
    """Check that every RPC was answered without delay, first by the old cluster, then the new."""
    begin_s, end_s = route.started_s, late.ended_s or late.started_s
    inside = [rpc for rpc in rpcs if rpc.ended_s >= begin_s and rpc.started_s <= end_s]
    wait_s_max = WAITED_SHARE * (late.started_s - begin_s)
    problems = [*_find_tears(inside, late.started_s, wait_s_max=wait_s_max)]
    if problems:
        return Row("tear", "; ".join(problems), is_good=False)
    counts = Counter("new" if rpc.backend in names_of(NEW) else "old" for rpc in inside)
    shown = f"{counts['old']} RPCs on the old cluster, then {counts['new']} on the new one"
    return Row("tear", f"none: {shown}, longest {_ms(_longest_s(rpcs, begin_s, end_s))}")


def _find_tears(rpcs: Sequence[Rpc], released_s: float, *, wait_s_max: float) -> Iterable[str]:
    new = names_of(NEW)
    if failed := sum(not rpc.is_ok for rpc in rpcs):
        yield f"{failed} RPCs failed"
    if any(rpc.backend in new and rpc.ended_s < released_s for rpc in rpcs):
        yield "the new cluster answered before it was there"
    answers_s = [rpc.ended_s for rpc in rpcs if rpc.backend in new]
    switched_s = min(answers_s, default=inf)
    if back := sum(rpc.started_s > switched_s and rpc.backend not in new for rpc in rpcs):
        yield f"{back} RPCs went to the old cluster after the new one was in use"
    if not answers_s:
        yield "the new cluster answered nothing"
    if (longest_s := max((rpc.took_s for rpc in rpcs), default=0.0)) > wait_s_max:
        yield f"an RPC waited {_ms(longest_s)}"


def _judge_restart(rpcs: Sequence[Rpc], stop: StepLog, start: StepLog) -> Row:
    back_s = start.acted_s or start.started_s
    inside = [rpc for rpc in rpcs if stop.started_s <= rpc.ended_s <= back_s]
    failed = sum(not rpc.is_ok for rpc in inside)
    away_s = back_s - stop.started_s
    text = f"{len(inside) - failed} of {len(inside)} RPCs answered in the {away_s:.1f} s without it"
    return Row("control plane", text, is_good=bool(inside) and not failed)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def to_json(verdict: Verdict) -> dict[str, object]:
    rows = [{"name": row.name, "value": row.value, "good": row.is_good} for row in verdict.rows]
    return {"good": verdict.is_good, "rows": rows}
