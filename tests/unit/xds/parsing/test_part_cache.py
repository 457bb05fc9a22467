"""PartCache: replacement, eviction and limits."""

from collections.abc import Mapping

import pytest

from proxyless.xds.parsing import part_cache as module
from proxyless.xds.parsing.part_cache import PARTS_MIN, PartCache


def make_parts(count: int, value: int = 0) -> Mapping[bytes, int]:
    return {bytes([number]): value for number in range(count)}


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> PartCache[int]:
    """A cache for 50 parts."""
    monkeypatch.setattr(module, "PARTS_MAX", 50)
    return PartCache[int]()


def cached(cache: PartCache[int], *resources: str) -> list[str]:
    return [resource for resource in resources if cache.get(resource)]


def test_put_replaces_the_last_version(cache: PartCache[int]) -> None:
    assert cache.get("a") == {}
    cache.put("a", make_parts(20))
    cache.put("a", make_parts(20, value=1))
    assert cache.get("a") == make_parts(20, value=1)


def test_least_recent_put_is_evicted_first(cache: PartCache[int]) -> None:
    for resource in ("a", "b", "a", "c"):
        cache.put(resource, make_parts(20))
    assert cached(cache, "a", "b", "c") == ["a", "c"]


def test_new_version_evicts_no_other_resource(cache: PartCache[int]) -> None:
    cache.put("a", make_parts(20))
    for _ in range(10):
        cache.put("b", make_parts(30))
    assert cached(cache, "a", "b") == ["a", "b"]


def test_too_few_and_too_many_parts_are_not_cached(cache: PartCache[int]) -> None:
    for count in (PARTS_MIN - 1, 51):
        cache.put("a", make_parts(20))
        cache.put("a", make_parts(count))
        assert cached(cache, "a") == []
    cache.put("b", make_parts(50))
    assert cached(cache, "b") == ["b"]
