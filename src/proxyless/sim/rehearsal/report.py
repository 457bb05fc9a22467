"""What is there to say about a run: when what happened, and phase by phase what clients saw?

A phase lasts from one event of the script to the next. Everything here is a value made from what
was written down; how it looks is for the command line.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.sim.backends import UNARY
from proxyless.sim.rehearsal.fields import show_time
from proxyless.sim.rehearsal.stage import Happening
from proxyless.sim.rehearsal.verdicts import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.sim.rehearsal.inventory import Inventory, Member
    from proxyless.sim.rehearsal.script import Script
    from proxyless.sim.rehearsal.stage import Performance, Rpc

# Failures that come so soon after each other are one story.
STREAK_GAP_S: Final = 5.0


@frozen
class Failures:
    """RPCs of a phase that failed in the same way, by code; the details most of them had."""

    code: str
    times: int
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
    """What clients saw between two events."""

    start_s: float
    end_s: float
    # The events with which it began.
    began_with: tuple[str, ...]
    rpcs: int
    failed: int
    # Of those that succeeded; None if none did.
    median_s: float | None
    slowest_s: float | None
    failures: tuple[Failures, ...]
    shares: tuple[Share, ...]


@frozen
class Report:
    """All there is to say."""

    seed: int
    duration_s: float
    notes: tuple[str, ...]
    timeline: tuple[Happening, ...]
    phases: tuple[Phase, ...]
    verdicts: tuple[Verdict, ...]
    # The same for two runs in which the same happened.
    digest: str

    @property
    def is_good(self) -> bool:
        return all(verdict.is_held for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"is_good": self.is_good, **asdict(self)}


def make_report(script: Script, inventory: Inventory, performance: Performance) -> Report:
    """Of a run of this script on these machines."""
    return Report(
        seed=script.seed,
        duration_s=script.duration_s,
        notes=tuple(dict.fromkeys(_find_notes(script, inventory, performance))),
        timeline=tuple(_tell(script, inventory, performance)),
        phases=tuple(_make_phases(script, performance)),
        verdicts=tuple(judge(script, inventory, performance)),
        digest=performance.digest,
    )


def _find_notes(script: Script, inventory: Inventory, performance: Performance) -> Iterator[str]:
    for mesh in inventory.meshes:
        yield from mesh.notes
    if UNARY in script.methods and not all(rpc.is_ok for rpc in performance.rpcs):
        yield f"where no method is given, clients call {UNARY}"


# Phases


def _make_phases(script: Script, performance: Performance) -> Iterator[Phase]:
    times = sorted({0.0, script.duration_s, *(event.at_s for event in script.events)})
    for start_s, end_s in pairwise(times):
        rpcs = [rpc for rpc in performance.rpcs if start_s <= rpc.started_s < end_s]
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
    """Of an aggregate, which of its clusters, too."""
    leaf = rpc.member.cluster
    return rpc.cluster if leaf == rpc.cluster else f"{rpc.cluster}/{leaf}"


def zone_of(member: Member) -> str:
    """As much of the locality as it says: mostly just the zone."""
    locality = member.locality
    return "/".join(filter(None, (locality.region, locality.zone, locality.sub_zone)))


# The timeline


def _tell(script: Script, inventory: Inventory, performance: Performance) -> list[Happening]:
    """What the script did, what clients refused, when RPCs failed, where they went."""
    told = [
        Happening(0.0, _describe_start(script, inventory)),
        *performance.happenings,
        *_tell_refusals(performance.refusals),
        *_tell_failures(performance.rpcs),
        *_tell_moves(script, performance.rpcs),
        Happening(script.duration_s, "the end"),
    ]
    return sorted(told, key=lambda each: each.at_s)


def _describe_start(script: Script, inventory: Inventory) -> str:
    rate = sum(flow.rate for flow in script.flows)
    targets = dict.fromkeys(
        target for flow in script.flows for target in flow.targets or inventory.targets
    )
    clients = f"{script.clients} client{'s' if script.clients > 1 else ''}"
    machines = len(inventory.machines)
    return f"{clients} with {rate:g} RPCs per second to {', '.join(targets)}; {machines} endpoints"


def _tell_refusals(refusals: Sequence[Happening]) -> Iterator[Happening]:
    """Each text once, however many clients say it."""
    seen: set[str] = set()
    for refusal in refusals:
        text = refusal.what.partition(": ")[2]
        if text not in seen:
            seen.add(text)
            yield refusal


def _tell_failures(rpcs: Sequence[Rpc]) -> Iterator[Happening]:
    """Each time in which RPCs failed, however many succeeded in between."""
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


def _describe_streak(streak: Sequence[Rpc]) -> Happening:
    """Those that were sent from the first of them to the last."""
    first_s, last_s = streak[0].started_s, streak[-1].started_s
    ((code, _),) = Counter(rpc.code for rpc in streak).most_common(1)
    if len(streak) == 1:
        return Happening(first_s, f"an RPC fails: {code}")
    return Happening(first_s, f"{len(streak)} RPCs fail until {show_time(last_s)}: mostly {code}")


def _tell_moves(script: Script, rpcs: Sequence[Rpc]) -> Iterator[Happening]:
    """When a zone begins to get RPCs and when it ceases to, if there is more than one."""
    gap_s = max(STREAK_GAP_S, 20.0 / sum(flow.rate for flow in script.flows))
    times: dict[str, list[float]] = {}
    for rpc in rpcs:
        if rpc.machine:
            times.setdefault(zone_of(rpc.member), []).append(rpc.started_s)
    if len(times) < 2:  # noqa: PLR2004 - where else should they go
        return
    for zone, found in sorted(times.items()):
        name = f"zone {zone}" if zone else "endpoints without a zone"
        yield Happening(found[0], f"first RPC to {name}")
        for before_s, after_s in pairwise(found):
            if after_s - before_s > gap_s:
                yield Happening(before_s, f"last RPC to {name} for {after_s - before_s:.0f} s")
                yield Happening(after_s, f"RPCs to {name} again")
        if script.duration_s - found[-1] > gap_s:
            yield Happening(found[-1], f"last RPC to {name}")
