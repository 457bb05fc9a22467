"""The hash ring: assigns hashes to members in proportion to their weights.

Specs: A42 "Ring Construction", A61, A76; requirements RH-02, RH-05.

A hash belongs to the first entry that is not below it, and after the last entry to the first. The
entries of a member depend on its key only, so that most hashes keep their owner when other members
are added or removed.

Pure: the ring depends on the members only. The previous ring provides unchanged entries, which
makes an update cheap.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice, takewhile
from math import ceil
from operator import attrgetter, is_, itemgetter, sub
from typing import Final, Generic, TypeVar

from xxhash import xxh64_intdigest

from proxyless.base.frozen import frozen

T = TypeVar("T")

# If a larger fraction of the entries changes, rebuilding the ring is cheaper.
_EDITED_FRACTION_MAX: Final = 0.25


@frozen
class RingSize:
    """Limits of the number of entries."""

    minimum: int
    maximum: int


@frozen(eq=False)
class Member(Generic[T]):
    """Owner of entries. Compared by identity, so callers keep it as long as it is unchanged."""

    owner: T
    # Its text is hashed, if the member has entries.
    key: object
    weight: int = 1


@frozen(eq=False)
class Plan(Generic[T]):
    """Members, and their weights and numbers of entries at the same indices."""

    members: Sequence[Member[T]]
    weights: Sequence[int]
    size: RingSize
    counts: Sequence[int]


@frozen(eq=False)
class Ring(Generic[T]):
    """The entries, sorted by hash."""

    hashes: Sequence[int]
    # The members of the entries, at the same indices.
    members: Sequence[Member[T]]
    # For the next ring.
    plan: Plan[T]
    has_collisions: bool

    def find(self, request_hash: int) -> int:
        """Return the index of the entry that owns this hash."""
        index = bisect_left(self.hashes, request_hash)
        return index if index < len(self.hashes) else 0


def build_ring(
    members: Sequence[Member[T]], size: RingSize, before: Ring[T] | None = None
) -> Ring[T]:
    """Build the ring of these members, which must be unique."""
    assert members, "a ring has at least one member"
    members = tuple(members)  # A copy: the ring keeps them, and the caller may change its list.
    # With hash collisions the ring is rebuilt, because their order is that of the members.
    if before is None or before.has_collisions:
        weights = list(map(attrgetter("weight"), members))
        return _build_from_scratch(Plan(members, weights, size, count_entries(weights, size)))
    same = _find_same(before.plan.members, members)
    plan = _change_plan(before.plan, members, size, same)
    return _edit(before, plan, same) or _build_from_scratch(plan)


# Numbers of entries


def count_entries(weights: Sequence[int], size: RingSize) -> list[int]:
    """Return the number of entries of each member.

    "such that the subchannel with the smallest weight has a whole number of entries, clamped" - A42
    Fractions are carried over to the next member: with more members than entries, some have none.
    Floating point is used as in other implementations, so that all clients build the same ring.
    """
    total = sum(weights)
    smallest = min(weights) / total
    scale = min(ceil(smallest * size.minimum) / smallest, size.maximum)
    share = {weight: scale * (weight / total) for weight in set(weights)}
    limits = list(map(ceil, accumulate(map(share.__getitem__, weights))))
    return list(map(sub, limits, chain((0,), limits)))


def _change_plan(
    before: Plan[T], members: Sequence[Member[T]], size: RingSize, same: "_Same"
) -> Plan[T]:
    weights = list(before.weights)
    changed = members[same.changed_slice(members)]
    weights[same.changed_slice(before.members)] = [member.weight for member in changed]
    if size == before.size and weights == before.weights:
        return Plan(members, weights, size, before.counts)
    return Plan(members, weights, size, count_entries(weights, size))


# Entries


def hash_entries(key: object, count: int) -> list[int]:
    """Return the hashes of a member's entries."""
    # A key may be a file path, which may contain surrogates.
    start = str(key).encode(errors="surrogatepass")
    return [xxh64_intdigest(b"%b_%d" % (start, number)) for number in range(count)]


def _build_from_scratch(plan: Plan[T]) -> Ring[T]:
    entries = [
        (entry, member)
        for member, count in zip(plan.members, plan.counts, strict=True)
        if count
        for entry in hash_entries(member.key, count)
    ]
    entries.sort(key=itemgetter(0))
    hashes, members = zip(*entries, strict=True)
    return Ring(hashes, members, plan, has_collisions=len(set(hashes)) < len(hashes))


def _edit(before: Ring[T], plan: Plan[T], same: "_Same") -> Ring[T] | None:
    """Remove and insert the changed entries; None if rebuilding is cheaper or hashes collide."""
    same = _narrow(same, before.plan, plan)
    # With more changed members than entries, even the comparison is too expensive.
    if len(plan.members) - same.start - same.end > len(before.hashes):
        return None
    old_counts, new_counts = _changed_counts(before.plan, same), _changed_counts(plan, same)
    removed = {
        member: count for member, count in old_counts.items() if new_counts.get(member) != count
    }
    new = {member: count for member, count in new_counts.items() if old_counts.get(member) != count}
    if sum(removed.values()) + sum(new.values()) > len(before.hashes) * _EDITED_FRACTION_MAX:
        return None
    hashes, members = list(before.hashes), list(before.members)
    for member, count in removed.items():
        for entry in hash_entries(member.key, count):
            index = bisect_left(hashes, entry)
            del hashes[index], members[index]
    for member, count in new.items():
        for entry in hash_entries(member.key, count):
            index = bisect_left(hashes, entry)
            if index < len(hashes) and hashes[index] == entry:
                return None
            hashes.insert(index, entry)
            members.insert(index, member)
    return Ring(hashes, members, plan, has_collisions=False)


# Common parts of two lists


@frozen
class _Same:
    """Lengths of the common prefix and the common suffix of two lists."""

    start: int
    end: int

    def changed_slice(self, items: Sequence[object]) -> slice:
        """Return the slice of one of the lists between prefix and suffix."""
        return slice(self.start, len(items) - self.end)


def _find_same(before: Sequence[Member[T]], after: Sequence[Member[T]]) -> _Same:
    start = _count_same(before, after)
    length = min(len(before), len(after)) - start
    return _Same(start, _count_same(islice(reversed(before), length), reversed(after)))


def _count_same(one: Iterable[Member[T]], other: Iterable[Member[T]]) -> int:
    """Return the length of the common prefix. No Python bytecode runs per member."""
    return sum(takewhile(bool, map(is_, one, other)))


def _narrow(same: _Same, before: Plan[T], after: Plan[T]) -> _Same:
    """Return the common parts in which the numbers of entries are also equal."""
    has_start = before.counts[: same.start] == after.counts[: same.start]
    end_before, end_after = len(before.counts) - same.end, len(after.counts) - same.end
    has_end = before.counts[end_before:] == after.counts[end_after:]
    return _Same(same.start if has_start else 0, same.end if has_end else 0)


def _changed_counts(plan: Plan[T], same: _Same) -> dict[Member[T], int]:
    part = same.changed_slice(plan.members)
    return dict(zip(plan.members[part], plan.counts[part], strict=True))
