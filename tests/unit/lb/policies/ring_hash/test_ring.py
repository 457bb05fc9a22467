"""Unit tests of proxyless.lb.policies.ring_hash.ring."""

from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from proxyless.lb.policies.ring_hash import ring as module
from proxyless.lb.policies.ring_hash.ring import (
    Member,
    Ring,
    RingSize,
    build_ring,
    count_entries,
    hash_entries,
)

DEFAULT = RingSize(1024, 4096)


def content(ring: Ring[str]) -> list[tuple[int, str]]:
    return list(zip(ring.hashes, (member.owner for member in ring.members), strict=True))


def transcribe(members: Sequence[Member[str]], size: RingSize) -> list[tuple[int, str]]:
    """Build the ring one entry at a time, as in the definition."""
    total = sum(member.weight for member in members)
    smallest = min(member.weight for member in members) / total
    scale = min(ceil(smallest * size.minimum) / smallest, size.maximum)
    entries: list[tuple[int, str]] = []
    current = target = 0.0
    for member in members:
        target += scale * (member.weight / total)
        number = 0
        while current < target:
            key = f"{member.key}_{number}".encode(errors="surrogatepass")
            entries.append((xxh64_intdigest(key), member.owner))
            number += 1
            current += 1
    return sorted(entries, key=lambda entry: entry[0])


def members_of(names: str) -> list[Member[str]]:
    return [Member(name, f"10.0.0.{ord(name)}:80") for name in names]


def test_three_equal_members_have_342_entries_each() -> None:
    assert count_entries([1, 1, 1], DEFAULT) == [342, 342, 342]
    assert len(build_ring(members_of("abc"), DEFAULT).hashes) == 1026


@pytest.mark.parametrize(
    ("weights", "size", "counts"),
    [
        ([1], RingSize(1, 1), [1]),
        ([5], DEFAULT, [1024]),
        ([3, 3, 4], RingSize(1, 7), [1, 1, 2]),
        ([3, 3, 4], RingSize(7, 7), [3, 2, 2]),
        ([1, 1], RingSize(3, 4096), [2, 2]),
        ([1, 99], RingSize(50, 4096), [1, 99]),
        ([1] * 10, RingSize(1, 4), [1, 0, 1, 0, 0, 1, 0, 1, 0, 0]),
    ],
)
def test_count_entries_returns_the_expected_numbers(
    weights: list[int], size: RingSize, counts: list[int]
) -> None:
    assert count_entries(weights, size) == counts


def test_member_with_the_smallest_weight_has_a_whole_number_of_entries() -> None:
    assert count_entries([1, 2, 3], DEFAULT) == [171, 342, 513]


def test_entries_depend_on_key_and_number() -> None:
    expected = [xxh64_intdigest(f"k_{number}".encode()) for number in range(3)]
    assert hash_entries("k", 3) == expected


def test_key_with_surrogates_is_hashed() -> None:
    assert len(hash_entries("unix:/run/\udcff", 2)) == 2


def test_find_returns_the_first_entry_that_is_not_below_the_hash() -> None:
    ring = build_ring(members_of("abc"), RingSize(3, 3))
    low, middle, high = ring.hashes
    hashes = [0, low, low + 1, middle, middle + 1, high, high + 1, 2**64 - 1]
    assert [ring.find(each) for each in hashes] == [0, 0, 1, 1, 2, 2, 0, 0]


def test_unchanged_members_are_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [Member(str(number), f"key {number}") for number in range(100)]
    before = build_ring(members, DEFAULT)
    hashed: list[tuple[str, int]] = []

    def note(key: str, count: int) -> list[int]:
        hashed.append((key, count))
        return hash_entries(key, count)

    monkeypatch.setattr(module, "hash_entries", note)
    members[50] = Member("new", "new")
    ring = build_ring(members, DEFAULT, before)
    assert hashed == [("key 50", 11), ("new", 11)]
    assert content(ring) == transcribe(members, DEFAULT)
    hashed.clear()
    build_ring(members, DEFAULT, ring)
    assert hashed == []


def test_previous_ring_is_not_changed() -> None:
    members = members_of("abcdefghijklmnop")
    before = build_ring(members, DEFAULT)
    kept = content(before)
    build_ring([*members[:-1], Member("new", "new")], DEFAULT, before)
    assert content(before) == kept


def test_hash_collisions_are_in_the_order_of_members() -> None:
    others = [Member(str(number), f"key {number}") for number in range(40)]
    a, b = Member("a", "same key"), Member("b", "same key")
    ring = build_ring([a, *others], DEFAULT)
    for members in ([a, *others, b], [b, *others, a], [a, b, *others], [b, *others], others):
        ring = build_ring(members, DEFAULT, ring)
        assert content(ring) == transcribe(members, DEFAULT)


MEMBERS = [
    Member(f"{number}/{weight}", f"k{number}", weight) for number in range(30) for weight in (1, 3)
]
MEMBERS += [Member("same key", "k3", 1), Member("another", "k4", 3)]
LISTS = st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=20, unique=True)
SIZES = st.sampled_from([RingSize(1, 7), RingSize(30, 200), RingSize(100, 100), DEFAULT])


@given(st.lists(st.tuples(LISTS, SIZES), min_size=1, max_size=4))
def test_ring_does_not_depend_on_the_previous_ring(
    history: list[tuple[list[Member[str]], RingSize]],
) -> None:
    ring = None
    for members, size in history:
        ring = build_ring(members, size, ring)
        assert content(ring) == transcribe(members, size)


@given(LISTS, st.integers(0, 19), st.sampled_from(MEMBERS), SIZES)
def test_edited_ring_equals_a_rebuilt_one(
    members: list[Member[str]], at: int, other: Member[str], size: RingSize
) -> None:
    ring = build_ring(members, size)
    if other not in members:
        at %= len(members)
        for changed in (
            [*members[:at], other, *members[at + 1 :]],
            [*members[:at], other, *members[at:]],
        ):
            assert content(build_ring(changed, size, ring)) == transcribe(changed, size)
