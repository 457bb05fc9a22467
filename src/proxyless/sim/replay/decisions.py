"""Decisions of a client in a recording, and their comparison with those of a re-run (pure).

A decision has a subject, such as the priority of a cluster, and a value. The decisions about one
subject are a sequence; two runs decided in the same way if their sequences are equal, whatever the
time between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxyless.observe.flight import Entry

_LEAF: Final = re.compile(r"\{cluster=(?P<cluster>.*), child_number=\d+\}")
_OVER: Final = "SHUTDOWN"


@frozen
class Decision:
    """One decision. The time is in seconds from the start."""

    at_s: float
    value: str


@frozen
class Comparison:
    """The decisions about one subject, in the recording and in the re-run."""

    subject: str
    recorded: tuple[Decision, ...]
    replayed: tuple[Decision, ...]
    is_same: bool


def find_decisions(
    entries: Iterable[Entry], start_s: float, targets: Mapping[str, str]
) -> dict[str, list[Decision]]:
    """Decisions by subject, without repetitions. `targets` are the xDS targets, by listener."""
    found: dict[str, list[Decision]] = {}
    for entry in entries:
        named = _name(entry.event, entry.fields, targets)
        if named is not None:
            subject, value = named
            sequence = found.setdefault(subject, [])
            if not sequence or sequence[-1].value != value:
                sequence.append(Decision(entry.time - start_s, value))
    return found


def _name(
    event: str, fields: Mapping[str, Any], targets: Mapping[str, str]
) -> tuple[str, str] | None:
    """The subject and the value of the decision that an event reports."""
    match event, fields:
        case "channel.state", {"target": str(target), "state": str(state)}:
            is_ours = target in targets.values() and state != _OVER
            return (f"state of {target}", state) if is_ours else None
        case "xds_resolver.config", {"listener": str(listener), "clusters": [*clusters]}:
            return f"clusters of {targets.get(listener, listener)}", ", ".join(map(str, clusters))
        case "cds.cluster", {"cluster": str(cluster), "endpoints": int(number)}:
            return f'endpoints of cluster "{cluster}"', str(number)
        case "priority.choice", {"child": str(child), "priority": int(priority)}:
            if leaf := _LEAF.fullmatch(child):
                return f'priority of cluster "{leaf["cluster"]}"', str(priority)
            return "leaf of the aggregate cluster", child
        case _:
            return None


def compare_decisions(
    recorded: Mapping[str, Sequence[Decision]],
    replayed: Mapping[str, Sequence[Decision]],
    *,
    end_s: float,
    has_start: bool,
) -> tuple[Comparison, ...]:
    """Compare by subject. A recording without its start has the end of the sequences only."""
    compared = []
    for subject, before in recorded.items():
        after = replayed.get(subject, ())
        values = [each.value for each in before]
        # The re-run ends a little later.
        repeated = [each.value for each in after if each.at_s <= end_s]
        if len(repeated) < len(values):
            repeated = [each.value for each in after][: len(values)]
        is_same = repeated == values if has_start else repeated[-len(values) :] == values
        compared.append(Comparison(subject, tuple(before), tuple(after), is_same))
    return tuple(compared)
