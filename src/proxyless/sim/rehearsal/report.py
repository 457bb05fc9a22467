"""Report of a run: its timeline, its phases and its verdicts.

A phase lasts from one event of the script to the next. The command line formats the report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.sim.backends import UNARY
from proxyless.sim.rehearsal.fields import show_time
from proxyless.sim.rehearsal.run import TimelineEntry
from proxyless.sim.rehearsal.verdicts import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.sim.rehearsal.inventory import Inventory, Member
    from proxyless.sim.rehearsal.run import Rpc, RunRecord
    from proxyless.sim.rehearsal.script import Script

# Failures with a smaller gap are one entry of the timeline.
STREAK_GAP_S: Final = 5.0


@frozen
class Failures:
    """RPCs of a phase that failed with one code."""

    code: str
    times: int
    # The most frequent ones.
    details: str


@frozen
class Share:
    """RPCs of a phase that arrived at one endpoint."""

    cluster: str
    zone: str
    endpoint: str
    rpcs: int


@frozen
class Phase:
    """RPCs between two events."""

    start_s: float
    end_s: float
    began_with: tuple[str, ...]
    rpcs: int
    failed: int
    # Durations of successful RPCs; None if there were none.
    median_s: float | None
    slowest_s: float | None
    failures: tuple[Failures, ...]
    shares: tuple[Share, ...]


@frozen
class Report:
    """Result of a run."""

    seed: int
    duration_s: float
    notes: tuple[str, ...]
    timeline: tuple[TimelineEntry, ...]
    phases: tuple[Phase, ...]
    verdicts: tuple[Verdict, ...]
    # Equal for equal runs.
    digest: str

    @property
    def is_good(self) -> bool:
        return all(verdict.is_held for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        return {"is_good": self.is_good, **asdict(self)}


def make_report(script: Script, inventory: Inventory, record: RunRecord) -> Report:
    return Report(
        seed=script.seed,
        duration_s=script.duration_s,
        notes=tuple(dict.fromkeys(_find_notes(script, inventory, record))),
        timeline=tuple(_make_timeline(script, inventory, record)),
        phases=tuple(_make_phases(script, record)),
        verdicts=tuple(judge(script, inventory, record)),
        digest=record.digest,
    )


def _find_notes(script: Script, inventory: Inventory, record: RunRecord) -> Iterator[str]:
    for mesh in inventory.meshes:
        yield from mesh.notes
    if UNARY in script.methods and not all(rpc.is_ok for rpc in record.rpcs):
        yield f"where no method is given, clients call {UNARY}"


def _make_phases(script: Script, record: RunRecord) -> Iterator[Phase]:
    times = sorted({0.0, script.duration_s, *(event.at_s for event in script.events)})
    for start_s, end_s in pairwise(times):
        rpcs = [rpc for rpc in record.rpcs if start_s <= rpc.started_s < end_s]
        took_s = sorted(rpc.took_s for rpc in rpcs if rpc.is_ok)
        yield Phase(
            start_s,
            end_s,
            tuple(str(event.action) for event in script.events if event.at_s == start_s),
            len(rpcs),
            len(rpcs) - len(took_s),
            took_s[len(took_s) // 2] if took_s else None,
            took_s[-1] if took_s else None,
            tuple(_group_failures(rpcs)),
            tuple(_group_shares(rpcs)),
        )


def _group_failures(rpcs: Sequence[Rpc]) -> Iterator[Failures]:
    by_code: dict[str, Counter[str]] = {}
    for rpc in rpcs:
        if not rpc.is_ok:
            by_code.setdefault(rpc.code, Counter())[rpc.details] += 1
    for code, details in sorted(by_code.items(), key=lambda item: -item[1].total()):
        ((most_frequent, _),) = details.most_common(1)
        yield Failures(code, details.total(), most_frequent)


def _group_shares(rpcs: Sequence[Rpc]) -> Iterator[Share]:
    counts = Counter(
        (_cluster_of(rpc), zone_of(rpc.member), rpc.machine) for rpc in rpcs if rpc.machine
    )
    for (cluster, zone, endpoint), times in sorted(counts.items()):
        yield Share(cluster, zone, endpoint, times)


def _cluster_of(rpc: Rpc) -> str:
    """The cluster of the route, and of an aggregate also the leaf."""
    leaf = rpc.member.cluster
    return rpc.cluster if leaf == rpc.cluster else f"{rpc.cluster}/{leaf}"


def zone_of(member: Member) -> str:
    """The non-empty parts of the locality."""
    locality = member.locality
    return "/".join(filter(None, (locality.region, locality.zone, locality.sub_zone)))


def _make_timeline(script: Script, inventory: Inventory, record: RunRecord) -> list[TimelineEntry]:
    entries = [
        TimelineEntry(0.0, _describe_start(script, inventory)),
        *record.timeline,
        *_find_distinct_nacks(record.nacks),
        *_find_streaks(record.rpcs),
        *_find_moves(script, record.rpcs),
        TimelineEntry(script.duration_s, "the end"),
    ]
    return sorted(entries, key=lambda each: each.at_s)


def _describe_start(script: Script, inventory: Inventory) -> str:
    rate = sum(flow.rate for flow in script.flows)
    targets = dict.fromkeys(
        target for flow in script.flows for target in flow.targets or inventory.targets
    )
    clients = f"{script.clients} client{'s' if script.clients > 1 else ''}"
    machines = len(inventory.machines)
    return f"{clients} with {rate:g} RPCs per second to {', '.join(targets)}; {machines} endpoints"


def _find_distinct_nacks(nacks: Sequence[TimelineEntry]) -> Iterator[TimelineEntry]:
    """Each text once, for any number of clients."""
    seen: set[str] = set()
    for nack in nacks:
        text = nack.what.partition(": ")[2]
        if text not in seen:
            seen.add(text)
            yield nack


def _find_streaks(rpcs: Sequence[Rpc]) -> Iterator[TimelineEntry]:
    """One entry for failures with small gaps, even if other RPCs succeeded in between."""
    streak: list[Rpc] = []
    for rpc in rpcs:
        if rpc.is_ok:
            continue
        if streak and rpc.started_s - streak[-1].started_s > STREAK_GAP_S:
            yield _describe_streak(streak)
            streak = []
        streak.append(rpc)
    if streak:
        yield _describe_streak(streak)


def _describe_streak(streak: Sequence[Rpc]) -> TimelineEntry:
    first_s, last_s = streak[0].started_s, streak[-1].started_s
    ((code, _),) = Counter(rpc.code for rpc in streak).most_common(1)
    if len(streak) == 1:
        return TimelineEntry(first_s, f"an RPC fails: {code}")
    return TimelineEntry(
        first_s, f"{len(streak)} RPCs fail until {show_time(last_s)}: mostly {code}"
    )


def _find_moves(script: Script, rpcs: Sequence[Rpc]) -> Iterator[TimelineEntry]:
    """When a zone starts and stops receiving RPCs, if there are several zones."""
    gap_s = max(STREAK_GAP_S, 20.0 / sum(flow.rate for flow in script.flows))
    times: dict[str, list[float]] = {}
    for rpc in rpcs:
        if rpc.machine:
            times.setdefault(zone_of(rpc.member), []).append(rpc.started_s)
    if len(times) < 2:  # noqa: PLR2004
        return
    for zone, found in sorted(times.items()):
        name = f"zone {zone}" if zone else "endpoints without a zone"
        yield TimelineEntry(found[0], f"first RPC to {name}")
        for before_s, after_s in pairwise(found):
            if after_s - before_s > gap_s:
                yield TimelineEntry(before_s, f"last RPC to {name} for {after_s - before_s:.0f} s")
                yield TimelineEntry(after_s, f"RPCs to {name} again")
        if script.duration_s - found[-1] > gap_s:
            yield TimelineEntry(found[-1], f"last RPC to {name}")
