"""Differences between two meshes, as changes of facts (`mesh_facts`)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.observe.mesh_facts import FIELD_LISTS, SEPARATOR, collect_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyless.observe.mesh_facts import Facts
    from proxyless.protos import Proto


class ChangeKind(Enum):
    """Kind of a change."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@frozen
class Change:
    """A subject that was added or removed, or one aspect of it that changed."""

    kind: ChangeKind
    subject: str
    # Empty if the subject itself was added or removed.
    aspect: str = ""
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        if self.kind is not ChangeKind.CHANGED:
            value = self.after if self.kind is ChangeKind.ADDED else self.before
            is_empty = value in (None, "exists")
            return f"{self.subject}: {self.kind.value}" + ("" if is_empty else f": {value}")
        return f"{self.subject}: {self.aspect}: {self.before or 'unset'} → {self.after or 'unset'}"


def diff_meshes(before: Iterable[Proto], after: Iterable[Proto]) -> list[Change]:
    """The changes from one mesh to another, in the order of the new one; removals come last."""
    old, new = collect_facts(before), collect_facts(after)
    return [*_find_changes(old, new), *_find_removals(old, new)]


def _find_changes(old: Facts, new: Facts) -> Iterator[Change]:
    for subject, facts in new.items():
        known = old.get(subject)
        if known is None:
            yield Change(ChangeKind.ADDED, subject, after=_summarize(facts))
            continue
        for aspect in dict.fromkeys((*known, *facts)):
            before, after = known.get(aspect), facts.get(aspect)
            # What a subject is follows from its aspects, and from other subjects.
            if aspect and before != after:
                if aspect in FIELD_LISTS and before is not None and after is not None:
                    before, after = _without_common(before, after)
                yield Change(ChangeKind.CHANGED, subject, aspect, before, after)


def _without_common(before: str, after: str) -> tuple[str, str]:
    """The fields of two lists that the other one does not have."""
    old, new = before.split(SEPARATOR), after.split(SEPARATOR)
    return (
        SEPARATOR.join(each for each in old if each not in new),
        SEPARATOR.join(each for each in new if each not in old),
    )


def _find_removals(old: Facts, new: Facts) -> Iterator[Change]:
    for subject, facts in old.items():
        if subject not in new:
            yield Change(ChangeKind.REMOVED, subject, before=_summarize(facts))


def _summarize(facts: dict[str, str]) -> str:
    """What the subject is, and where its RPCs go."""
    if "clusters" in facts:
        return f"to {facts['clusters']}"
    return facts.get("kind", facts[""])
