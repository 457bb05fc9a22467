"""Verdicts on the expectations of a script.

An expectation about a window without RPCs is missed, because nothing was tested.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.sim.rehearsal.causes import find_causes
from proxyless.sim.rehearsal.fields import show_time
from proxyless.sim.rehearsal.script import Condition, Expectation, Script, Selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.sim.rehearsal.inventory import Inventory
    from proxyless.sim.rehearsal.run import Rpc, RunRecord

# Number of names in a text; more are counted.
_SHOWN_MAX: Final = 3


@frozen
class Verdict:
    """An expectation and its result."""

    what: str
    is_held: bool
    found: str


def judge(script: Script, inventory: Inventory, record: RunRecord) -> list[Verdict]:
    """Verdicts on the expectations of the script, in order, and on the invariants of every run."""
    judge_one = _Judge(script, inventory, record)
    verdicts = [judge_one(expectation) for expectation in script.expectations]
    return [*verdicts, *_judge_always(record)]


def _judge_always(record: RunRecord) -> Iterator[Verdict]:
    stray, left_behind = record.stray_picks, record.left_behind
    picks = _shorten(stray) or "none did"
    yield Verdict("no RPC is sent to an endpoint outside the config", not stray, picks)
    found = _shorten(left_behind) or "nothing is"
    yield Verdict("nothing is left when all is closed", not left_behind, found)


class _Judge:
    """Judge of the expectations of one run."""

    def __init__(self, script: Script, inventory: Inventory, record: RunRecord) -> None:
        self._script = script
        self._inventory = inventory
        self._record = record

    def __call__(self, expected: Expectation) -> Verdict:
        what = self._describe(expected)
        if expected.condition is Condition.REFUSED_CONFIGS:
            return self._judge_nacks(expected, what)
        rpcs = [
            rpc
            for rpc in self._record.rpcs
            if expected.start_s <= rpc.started_s < expected.end_s
            and expected.flow in {"", rpc.flow}
        ]
        if not rpcs:
            return Verdict(what, False, "no RPC was started")
        is_held, found = self._judge_rpcs(expected, rpcs)
        return Verdict(what, is_held, found)

    def _judge_rpcs(self, expected: Expectation, rpcs: Sequence[Rpc]) -> tuple[bool, str]:
        match expected.condition:
            case Condition.FAILOVER_WITHIN:
                return self._judge_failover(expected, rpcs)
            case Condition.ONLY_ZONES | Condition.ONLY_CLUSTERS | Condition.ONLY_ENDPOINTS:
                return self._judge_places(expected, rpcs)
            case _:
                return _judge_ends(expected, rpcs)

    def _judge_places(self, expected: Expectation, rpcs: Sequence[Rpc]) -> tuple[bool, str]:
        arrived = [rpc for rpc in rpcs if rpc.machine]
        if not arrived:
            return False, f"none of {len(rpcs)} RPCs arrived anywhere"
        names = frozenset(expected.names)
        if expected.condition is Condition.ONLY_ZONES:
            others = Counter(
                f"zone {rpc.member.locality.zone or '(none)'}"
                for rpc in arrived
                if rpc.member.locality.zone not in names
            )
        elif expected.condition is Condition.ONLY_CLUSTERS:
            others = Counter(
                f"cluster {rpc.member.cluster}"
                for rpc in arrived
                if names.isdisjoint({rpc.cluster, rpc.member.cluster})
            )
        else:
            machines = self._inventory.select(Selector(endpoints=expected.names))
            allowed = {machine.name for machine in machines}
            others = Counter(rpc.machine for rpc in arrived if rpc.machine not in allowed)
        return not others, _show_others(others, "went to")

    def _judge_failover(self, expected: Expectation, rpcs: Sequence[Rpc]) -> tuple[bool, str]:
        """Check that each failed RPC was under way at its cause, or started soon after it."""
        events = self._script.events
        if not any(expected.start_s <= event.at_s < expected.end_s for event in events):
            return False, "no event is in this time"
        judged = set(map(id, rpcs))
        worst_s, worst = -1.0, ""
        # Causes are found among all RPCs: an outage may have begun before the window.
        for rpc, cause in find_causes(self._record.rpcs, events):
            if id(rpc) not in judged:
                continue
            if cause is None:
                return (
                    False,
                    f"an RPC failed at {show_time(rpc.started_s)}: that began before any event",
                )
            after_s = max(0.0, rpc.started_s - cause.at_s)
            if after_s > worst_s:
                worst_s, worst = after_s, f"{cause.action} at {show_time(cause.at_s)}"
        if not worst:
            return True, "no RPC failed"
        found = f"the last to fail started {worst_s:.3f} s after its cause: {worst}"
        return worst_s <= expected.limit, found

    def _judge_nacks(self, expected: Expectation, what: str) -> Verdict:
        times_s = [nack.at_s for nack in self._record.nacks]
        count = sum(expected.start_s <= at_s < expected.end_s for at_s in times_s)
        return Verdict(what, count <= expected.limit, f"{count} were refused")

    def _describe(self, expected: Expectation) -> str:
        text = _describe_condition(expected)
        if expected.flow:
            text += f" of {expected.flow}"
        if (expected.start_s, expected.end_s) != (0.0, self._script.duration_s):
            text += f", from {show_time(expected.start_s)} to {show_time(expected.end_s)}"
        return text


def _describe_condition(expected: Expectation) -> str:
    text = expected.condition.value.replace("_", " ")
    match expected.condition:
        case Condition.FAILED | Condition.REFUSED_CONFIGS:
            return f"{text} at most {expected.limit:.0f}"
        case Condition.ERROR_RATE_BELOW:
            return f"{text} {expected.limit:.4g}"
        case Condition.FAILOVER_WITHIN | Condition.SLOWEST_BELOW:
            return f"{text} {expected.limit:g} s"
        case _:
            return f"{text} {', '.join(expected.names)}"


def _judge_ends(expected: Expectation, rpcs: Sequence[Rpc]) -> tuple[bool, str]:
    failed = sum(not rpc.is_ok for rpc in rpcs)
    match expected.condition:
        case Condition.FAILED:
            return failed <= expected.limit, f"{failed} of {len(rpcs)} RPCs failed"
        case Condition.ERROR_RATE_BELOW:
            share = failed / len(rpcs)
            return share < expected.limit, f"{share * 100:.2f} % of {len(rpcs)} RPCs failed"
        case Condition.SLOWEST_BELOW:
            if failed == len(rpcs):
                return False, "no RPC succeeded"
            slowest_s = max(rpc.took_s for rpc in rpcs if rpc.is_ok)
            return slowest_s < expected.limit, f"the slowest took {slowest_s:.3f} s"
        case _:
            allowed = {"OK", *expected.names}
            others = Counter(rpc.code for rpc in rpcs if rpc.code not in allowed)
            return not others, _show_others(others, "ended with")


def _show_others(others: Counter[str], verb: str) -> str:
    if not others:
        return f"none {verb} others"
    shown = ", ".join(f"{times} {verb} {name}" for name, times in others.most_common(_SHOWN_MAX))
    more = len(others) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _shorten(texts: Sequence[str]) -> str:
    shown = "; ".join(texts[:_SHOWN_MAX])
    more = len(texts) - _SHOWN_MAX
    return f"{shown}; and {more} more" if more > 0 else shown
