"""judge: compares the records of both clients, and returns failures of ours only. Pure.

An RPC of ours is compared with grpcio's RPCs that started at about the same time. Nothing depends
on the speed of the machine: times in which a client did not get the CPU are ignored, and so are
RPCs of both clients that were in flight to a backend when it was killed. RPCs may fail while a plan
has removed the config or all backends that they need.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from tools.fuzz_mesh.records import Stall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tools.fuzz_mesh.records import Rpc, Timeline
    from tools.fuzz_mesh.run import Run

# RPCs of the two clients are alike if they started within this time of each other: clients apply
# a change at different moments, and their backoffs are jittered.
ALIKE_S: Final = 2.0
# An RPC of ours that takes longer is starved, if all that are alike took less than the other.
STARVED_S: Final = 2.0
PROMPT_S: Final = 0.5
# An RPC that is lost with its backend ends within this time of the kill.
KILL_S: Final = 1.0
# A stall is the machine's if the process used less than this share of the time.
STALL_CPU_SHARE: Final = 0.5
# Longer stalls of grpcio's client and of the control plane make a comparison impossible.
LATE_S: Final = 1.0
# Error texts of the two clients when a connection is lost after an RPC was sent.
LOST_TEXTS: Final = (
    "connection lost",
    "connection reset",
    "socket closed",
    "broken pipe",
    "recvmsg:",
    "sendmsg:",
)
# Error texts of a later connection attempt, which may contain one of the above.
CONNECT_TEXTS: Final = ("failed to connect", "backends failing")


@frozen
class Finding:
    """One kind of failure in one step: at most a few RPCs of each client are shown."""

    # failed, starved, unquiet, queued, nack, crash
    kind: str
    step: int
    text: str
    ours: tuple[Rpc, ...] = ()
    theirs: tuple[Rpc, ...] = ()


@frozen
class _ByStart:
    """RPCs in the order of their start."""

    rpcs: tuple[Rpc, ...]
    starts: tuple[float, ...]

    @classmethod
    def of(cls, rpcs: Iterable[Rpc]) -> _ByStart:
        ordered = tuple(sorted(rpcs, key=lambda rpc: rpc.start_s))
        return cls(ordered, tuple(rpc.start_s for rpc in ordered))

    def near(self, start_s: float) -> Sequence[Rpc]:
        first = bisect_left(self.starts, start_s - ALIKE_S)
        return self.rpcs[first : bisect_right(self.starts, start_s + ALIKE_S)]


def judge(run: Run) -> list[Finding]:
    """All findings; none if our client did as well as grpcio's."""
    return [
        *_find_crashes(run),
        *_find_nacks(run),
        *_find_failed_and_starved(run),
        *_find_unquiet(run),
    ]


def is_lost_with_backend(rpc: Rpc, timeline: Timeline) -> bool:
    """Whether the RPC lost its connection at about the time that a backend was killed."""
    details = rpc.details.lower()
    if rpc.code != "UNAVAILABLE" or not any(text in details for text in LOST_TEXTS):
        return False
    if any(text in details for text in CONNECT_TEXTS):
        return False
    kills_s = (kill_s for step in timeline.steps for kill_s in step.kills_s)
    return any(rpc.start_s <= kill_s + KILL_S and kill_s <= rpc.end_s for kill_s in kills_s)


def step_at(timeline: Timeline, at_s: float) -> int:
    """The step that was the newest at this time; the first one for a time before it."""
    starts = [step.start_s for step in timeline.steps]
    return max(bisect_right(starts, at_s) - 1, 0)


# Crashes and NACKs


def _find_crashes(run: Run) -> Iterator[Finding]:
    if run.ours.crash:
        yield Finding("crash", step_at(run.timeline, run.ours.crash_s), run.ours.crash)


def _find_nacks(run: Run) -> Iterator[Finding]:
    if run.ours.nacks and not run.theirs.nacks:
        yield Finding("nack", 0, f"only our client sent a NACK: {run.ours.nacks[0]}")


# RPCs that failed or waited


def _find_failed_and_starved(run: Run) -> Iterator[Finding]:
    theirs = _ByStart.of(run.theirs.rpcs)
    found: dict[tuple[str, int, str], list[Rpc]] = {}
    for rpc in run.ours.rpcs:
        # After a crash of grpcio there is nothing to compare with.
        if run.theirs.crash and rpc.end_s + ALIKE_S > run.theirs.crash_s:
            continue
        kind = _classify(rpc, theirs.near(rpc.start_s), run)
        if kind:
            step = step_at(run.timeline, rpc.start_s)
            found.setdefault((kind, step, rpc.code), []).append(rpc)
    for (kind, step, code), rpcs in found.items():
        text = f"{len(rpcs)} RPCs of ours {kind} with {code}, none of grpcio's did"
        yield Finding(kind, step, text, tuple(rpcs), tuple(theirs.near(rpcs[0].start_s)))


def _classify(rpc: Rpc, alike: Sequence[Rpc], run: Run) -> str:
    """Failed, starved, or nothing."""
    if rpc.is_ok and rpc.took_s <= STARVED_S:
        return ""
    if is_lost_with_backend(rpc, run.timeline) or _was_stalled(rpc, run):
        return ""
    if rpc.code == "UNAVAILABLE" and _is_in_outage(rpc, run.timeline):
        return ""
    same_kind = [each for each in alike if each.kind == rpc.kind]
    if not rpc.is_ok:
        # The time until an RPC fails depends on its kind.
        comparable = same_kind if rpc.code == "DEADLINE_EXCEEDED" else alike
        return "" if any(_fails_alike(rpc, each, run.timeline) for each in comparable) else "failed"
    slowest_s = max((each.took_s for each in same_kind), default=PROMPT_S)
    return "starved" if slowest_s < PROMPT_S else ""


def _is_in_outage(rpc: Rpc, timeline: Timeline) -> bool:
    return any(
        step.start_s <= rpc.end_s and rpc.start_s < step.outage_until_s for step in timeline.steps
    )


def _fails_alike(rpc: Rpc, other: Rpc, timeline: Timeline) -> bool:
    return other.code == rpc.code and not is_lost_with_backend(other, timeline)


def _was_stalled(rpc: Rpc, run: Run) -> bool:
    """Whether a process did not run while the RPC was in flight.

    A stall of our client counts only if it did not use the CPU. The other processes may be late by
    the time that similar RPCs may be apart.
    """
    ours = (
        stall
        for stall in run.ours.stalls
        if stall.cpu_s < STALL_CPU_SHARE * (stall.end_s - stall.start_s)
    )
    others = (
        Stall(stall.start_s - ALIKE_S, stall.end_s + ALIKE_S, stall.cpu_s)
        for stall in (*run.theirs.stalls, *run.timeline.stalls)
        if stall.end_s - stall.start_s > LATE_S
    )
    return any(
        stall.start_s < rpc.end_s and rpc.start_s < stall.end_s for stall in (*ours, *others)
    )


# The end


def _find_unquiet(run: Run) -> Iterator[Finding]:
    """RPCs of ours that fail, or wait, although all backends are up and nothing changes."""
    if run.ours.crash or run.theirs.crash:
        return
    timeline = run.timeline
    last = len(timeline.steps) - 1
    failed = [
        rpc
        for rpc in run.ours.rpcs
        if not rpc.is_ok
        and timeline.quiet_s <= rpc.start_s < timeline.end_s
        and not _was_stalled(rpc, run)
    ]
    if failed:
        theirs = _ByStart.of(run.theirs.rpcs).near(failed[0].start_s)
        text = f"{len(failed)} RPCs of ours failed when all was up"
        yield Finding("unquiet", last, text, tuple(failed), tuple(theirs))
    queued = [start_s for start_s in run.ours.under_way if start_s < timeline.quiet_s]
    if queued:
        waited_s = timeline.end_s - queued[0]
        text = f"{len(queued)} RPCs of ours still wait when all is up, one for {waited_s:.1f} s"
        yield Finding("queued", last, text)
