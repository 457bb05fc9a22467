"""Who owns which part of the hash space?

Specs: A42 "Ring Construction", A61, A76; requirements RH-02, RH-05.

Each member has entries on the ring, in proportion to its weight; a hash belongs to the first entry
that is not below it, and after the last entry to the first. The places of a member depend on its
key alone, so that most hashes keep their owner when others come and go.

Pure, and the same ring for the same members whatever was before. The ring before only makes it
cheap: entries of members who keep theirs are taken over.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, takewhile
from math import ceil
from operator import attrgetter, is_, itemgetter, sub
from typing import Final, Generic, TypeVar

from xxhash import xxh64_intdigest

T = TypeVar("T")

# If more than this part of the entries is new or gone, it is cheaper to start from scratch.
_EDITED_PART_MAX: Final = 0.25


@dataclass(frozen=True, slots=True)
class RingSize:
    """How many entries there may be."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, eq=False)
class Member(Generic[T]):
    """Somebody who wants entries on the ring. To be kept as long as nothing about it changes."""

    owner: T
    # What is hashed.
    key: str
    weight: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Generic[T]):
    """Who has how many entries: the members, and at the same places their counts."""

    members: Sequence[Member[T]]
    weights: Sequence[int]
    size: RingSize
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Ring(Generic[T]):
    """The entries, sorted by hash. An index is a place among them."""

    hashes: Sequence[int]
    # At the same places: whose entry that is.
    members: Sequence[Member[T]]
    # Kept for the next ring.
    plan: Plan[T]
    has_twins: bool

    def find(self, request_hash: int) -> int:
        """The index of the entry that owns this hash."""
        index = bisect_left(self.hashes, request_hash)
        return index if index < len(self.hashes) else 0


def build_ring(
    members: Sequence[Member[T]], size: RingSize, before: Ring[T] | None = None
) -> Ring[T]:
    """The ring of these members, each of them listed once."""
    assert members, "a ring without members is nobody's"
    plan = _make_plan(members, size, None if before is None else before.plan)
    # The order of twins, entries with the same hash, is that of the list.
    if before is None or before.has_twins:
        return _build_from_scratch(plan)
    return _edit(before, plan) or _build_from_scratch(plan)


# ---------------------------------------------------------------------------------------------
# How many entries


def count_entries(weights: Sequence[int], size: RingSize) -> list[int]:
    """How many entries each member has, if these are their weights.

    "such that the subchannel with the smallest weight has a whole number of entries, clamped" - A42
    What is left of a fraction counts for the members after: with more members than entries, some
    have none. In floating point, as elsewhere, so that all clients come to the same numbers.
    """
    total = sum(weights)
    smallest = min(weights) / total
    scale = min(ceil(smallest * size.minimum) / smallest, size.maximum)
    share = {weight: scale * (weight / total) for weight in set(weights)}
    limits = list(map(ceil, accumulate(map(share.__getitem__, weights))))
    return list(map(sub, limits, chain((0,), limits)))


def _make_plan(members: Sequence[Member[T]], size: RingSize, before: Plan[T] | None) -> Plan[T]:
    weights = list(map(attrgetter("weight"), members))
    if before is not None and before.size == size and before.weights == weights:
        return Plan(members, weights, size, before.counts)
    return Plan(members, weights, size, count_entries(weights, size))


# ---------------------------------------------------------------------------------------------
# Where they are


def hash_entries(key: str, count: int) -> list[int]:
    """Where the entries of a member with this key are."""
    # A key may come from a path, and those may hold anything.
    start = key.encode(errors="surrogatepass")
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
    return Ring(hashes, members, plan, has_twins=len(set(hashes)) < len(hashes))


def _edit(before: Ring[T], plan: Plan[T]) -> Ring[T] | None:
    """Take the entries that are gone out, and put new ones in; None if that does not pay."""
    gone, new = _compare(before.plan, plan)
    changes = sum(gone.values()) + sum(new.values())
    if changes > len(before.hashes) * _EDITED_PART_MAX:
        return None
    hashes, members = list(before.hashes), list(before.members)
    for member, count in gone.items():
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
    return Ring(hashes, members, plan, has_twins=False)


def _compare(before: Plan[T], after: Plan[T]) -> tuple[dict[Member[T], int], dict[Member[T], int]]:
    """The members whose entries are gone, and those whose entries are new, with their counts."""
    start, end = _find_same(before, after)
    had, have = _part(before, start, end), _part(after, start, end)
    gone = {member: count for member, count in had.items() if have.get(member) != count}
    new = {member: count for member, count in have.items() if had.get(member) != count}
    return gone, new


def _find_same(before: Plan[T], after: Plan[T]) -> tuple[int, int]:
    """How much both plans have in common at their start, and how much at their end, or less."""
    start = _count_same(before.members, after.members)
    length = min(len(before.members), len(after.members)) - start
    end = _count_same(islice(reversed(before.members), length), reversed(after.members))
    is_start_same = before.counts[:start] == after.counts[:start]
    is_end_same = end == 0 or before.counts[-end:] == after.counts[-end:]
    return start if is_start_same else 0, end if is_end_same else 0


def _count_same(one: Iterable[Member[T]], other: Iterable[Member[T]]) -> int:
    """How many members both have in common at their start; not a line of Python for each."""
    return sum(takewhile(bool, map(is_, one, other)))


def _part(plan: Plan[T], start: int, end: int) -> dict[Member[T], int]:
    """The counts of all but so many members at the start and at the end."""
    part = slice(start, len(plan.members) - end)
    return dict(zip(plan.members[part], plan.counts[part], strict=True))
