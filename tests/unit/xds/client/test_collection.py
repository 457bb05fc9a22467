"""Unit tests of proxyless.xds.client.collection."""

import pytest

from proxyless.runtime.work_queue import finish
from proxyless.xds.client import collection as collection_module
from proxyless.xds.client.codec import decode_members_in_steps
from proxyless.xds.client.collection import NO_MEMBERS, Collection, CollectionCache, Member


def member(value: str | None, version: str = "1") -> Member:
    return Member(value, (value or "idle").encode(), version)


def test_change_leaves_the_collection_before_it_as_it_was() -> None:
    one = NO_MEMBERS.change({"x": member("1"), "y": member("1")}, {})
    two = one.change({"x": None, "z": member("2")}, {"y": "is bad"})
    assert (dict(one.values), dict(one.errors)) == ({"x": "1", "y": "1"}, {})
    assert (dict(two.values), dict(two.errors)) == ({"y": "1", "z": "2"}, {"y": "is bad"})
    three = two.change({"y": member("3")}, {})
    assert (dict(three.values), dict(three.errors)) == ({"y": "3", "z": "2"}, {})
    with pytest.raises(TypeError):
        three.values["z"] = "4"  # type: ignore[index]


def test_values_are_the_same_object_when_only_versions_or_unused_members_change() -> None:
    one = NO_MEMBERS.change({"x": member("1")}, {})
    two = one.change({"x": member("1", "2"), "idle": member(None)}, {})
    assert two.values is one.values
    assert two.versions() == {"x": "2", "idle": "1"}
    assert two.change({"idle": None}, {}).values is one.values


def test_first_collection_is_published_even_if_no_member_is_used() -> None:
    assert NO_MEMBERS.change({"idle": member(None)}, {}).values is not NO_MEMBERS.values


def test_changed_member_keeps_its_place() -> None:
    one = NO_MEMBERS.change({name: member("1") for name in "abc"}, {})
    assert list(one.change({"a": member("2"), "d": member("1")}, {}).values) == list("abcd")


def test_encoded_members_are_decoded() -> None:
    one = NO_MEMBERS.change({"x": member("1"), "idle": member(None)}, {})
    assert finish(decode_members_in_steps(one.encode())) == [("x", b"1"), ("idle", b"idle")]


def test_new_stream_keeps_the_collections_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, used = CollectionCache(), dict[str, Collection]()
    for name in "ab":
        used[name] = NO_MEMBERS.change({f"{name}1": member("1")}, {f"{name}2": "is bad"})
        cache.put(name, used[name])
    used["b"] = NO_MEMBERS
    assert cache.start_stream(used.get) == {"a1": "1", "a2": ""}
    assert cache.find("b") is NO_MEMBERS
    monkeypatch.setattr(collection_module, "INITIAL_VERSIONS_MAX_BYTES", 10)
    assert cache.start_stream(used.get) == {}
    assert cache.find("a") is NO_MEMBERS
