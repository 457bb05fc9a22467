"""The memory of parts: whose are kept, for how long, and how many."""

from collections.abc import Mapping

import pytest

from proxyless.xds.parsing import parts as module
from proxyless.xds.parsing.parts import PARTS_MIN, PartMemory


def some(count: int, value: int = 0) -> Mapping[bytes, int]:
    return {bytes([number]): value for number in range(count)}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> PartMemory[int]:
    """One that holds 50 parts."""
    monkeypatch.setattr(module, "PARTS_MAX", 50)
    return PartMemory[int]()


def kept(memory: PartMemory[int], *resources: str) -> list[str]:
    return [resource for resource in resources if memory.parts_of(resource)]


def test_the_last_version_is_kept(memory: PartMemory[int]) -> None:
    assert memory.parts_of("a") == {}
    memory.keep("a", some(20))
    memory.keep("a", some(20, value=1))
    assert memory.parts_of("a") == some(20, value=1)


def test_what_was_kept_longest_ago_is_forgotten_first(memory: PartMemory[int]) -> None:
    for resource in ("a", "b", "a", "c"):
        memory.keep(resource, some(20))
    assert kept(memory, "a", "b", "c") == ["a", "c"]


def test_a_new_version_takes_the_room_of_the_old_one(memory: PartMemory[int]) -> None:
    memory.keep("a", some(20))
    for _ in range(10):
        memory.keep("b", some(30))
    assert kept(memory, "a", "b") == ["a", "b"]


def test_few_parts_and_too_many_are_not_kept(memory: PartMemory[int]) -> None:
    for count in (PARTS_MIN - 1, 51):
        memory.keep("a", some(20))
        memory.keep("a", some(count))
        assert kept(memory, "a") == []
    memory.keep("b", some(50))
    assert kept(memory, "b") == ["b"]
