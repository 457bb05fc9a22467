"""Who owns which part of the hash space?

Specs: A42 "Ring Construction", A61, A76; requirements RH-02, RH-05.

Each member has entries on the ring, in proportion to its weight; a hash belongs to the first entry
that is not below it, and after the last entry to the first. The places of a member depend on its
key alone, so that most hashes keep their owner when others come and go.

Pure, and the same ring for the same members whatever was before. The ring before only makes it
cheap: entries of members who keep theirs are taken over.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, islice, takewhile
from math import ceil
from operator import attrgetter, is_, itemgetter, sub
from typing import Final, Generic, TypeVar

from xxhash import xxh64_intdigest

from proxyless.base.frozen import frozen

T = TypeVar("T")

# If more than this part of the entries is new or gone, it is cheaper to start from scratch.
_EDITED_PART_MAX: Final = 0.25


@frozen
class RingSize:
    """How many entries there may be."""

    minimum: int
    maximum: int


@frozen(eq=False)
class Member(Generic[T]):
    """Somebody who wants entries on the ring. To be kept as long as nothing about it changes."""

    owner: T
    # What is hashed.
    key: str
    weight: int = 1


@frozen(eq=False)
class Plan(Generic[T]):
    """Who has how many entries: the members, and at the same places their counts."""

    members: Sequence[Member[T]]
    weights: Sequence[int]
    size: RingSize
    counts: Sequence[int]


@frozen(eq=False)
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
    members = tuple(members)  # Because they are kept, and the caller may change a list.
    # The order of twins, entries with the same hash, is that of the list.
    if before is None or before.has_twins:
        weights = list(map(attrgetter("weight"), members))
        return _build_from_scratch(Plan(members, weights, size, count_entries(weights, size)))
    same = _find_same(before.plan.members, members)
    plan = _change_plan(before.plan, members, size, same)
    return _edit(before, plan, same) or _build_from_scratch(plan)


# ---------------------------------------------------------------------------------------------
# How many entries


def count_entries(weights: Sequence[int], size: RingSize) -> list[int]:
    """How many entries each member has, if these are their weights.

    "such that the subchannel with the smallest weight has a whole number of entries, clamped" - A42
    What is left of a fraction counts for the members after, in the order of the list: with more
    members than entries, some have none. In floating point, as elsewhere, so that all clients come
    to the same numbers.
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
    weights[same.but(before.members)] = [member.weight for member in members[same.but(members)]]
    if size == before.size and weights == before.weights:
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


def _edit(before: Ring[T], plan: Plan[T], same: "_Same") -> Ring[T] | None:
    """Take the entries that are gone out, and put new ones in; None if that does not pay."""
    same = _narrow(same, before.plan, plan)
    # Everybody may have more or fewer than before, and there are more of them than entries.
    if len(plan.members) - same.start - same.end > len(before.hashes):
        return None
    gone, new = _compare(_part(before.plan, same), _part(plan, same))
    if sum(gone.values()) + sum(new.values()) > len(before.hashes) * _EDITED_PART_MAX:
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


def _compare(
    had: Mapping[Member[T], int], have: Mapping[Member[T], int]
) -> tuple[dict[Member[T], int], dict[Member[T], int]]:
    """Whose entries are gone, and whose are new, with their counts."""
    gone = {member: count for member, count in had.items() if have.get(member) != count}
    new = {member: count for member, count in have.items() if had.get(member) != count}
    return gone, new


# ---------------------------------------------------------------------------------------------
# What two lists have in common


@frozen
class _Same:
    """How much two lists have in common at their start, and how much at their end."""

    start: int
    end: int

    def but(self, items: Sequence[object]) -> slice:
        """All items of one of them but those."""
        return slice(self.start, len(items) - self.end)


def _find_same(before: Sequence[Member[T]], after: Sequence[Member[T]]) -> _Same:
    start = _count_same(before, after)
    length = min(len(before), len(after)) - start
    return _Same(start, _count_same(islice(reversed(before), length), reversed(after)))


def _count_same(one: Iterable[Member[T]], other: Iterable[Member[T]]) -> int:
    """How many members both have in common at their start; not a line of Python for each."""
    return sum(takewhile(bool, map(is_, one, other)))


def _narrow(same: _Same, before: Plan[T], after: Plan[T]) -> _Same:
    """What is the same if counts have to be, too."""
    has_start = before.counts[: same.start] == after.counts[: same.start]
    rest = same.but(before.counts).stop, same.but(after.counts).stop
    has_end = before.counts[rest[0] :] == after.counts[rest[1] :]
    return _Same(same.start if has_start else 0, same.end if has_end else 0)


def _part(plan: Plan[T], same: _Same) -> dict[Member[T], int]:
    """The counts of all members but those."""
    part = same.but(plan.members)
    return dict(zip(plan.members[part], plan.counts[part], strict=True))
