"""Unit tests of proxyless.base.attributes."""

import pytest

from proxyless.base.attributes import EMPTY, Attributes, Key

WEIGHT = Key[int]("weight")
ZONE = Key[str]("zone")
TAGS = Key[list[str]]("tags")


def test_a_key_that_was_not_set_is_none() -> None:
    assert EMPTY.get(WEIGHT) is None
    assert EMPTY.with_(ZONE, "a").get(WEIGHT) is None


def test_with_returns_a_new_one_and_keeps_the_old() -> None:
    old = EMPTY.with_(WEIGHT, 1)
    new = old.with_(WEIGHT, 2).with_(ZONE, "a")
    assert (new.get(WEIGHT), new.get(ZONE)) == (2, "a")
    assert (old.get(WEIGHT), old.get(ZONE)) == (1, None)
    assert EMPTY.get(WEIGHT) is None


def test_without_returns_a_new_one_and_keeps_the_old() -> None:
    old = EMPTY.with_(WEIGHT, 1).with_(ZONE, "a")
    new = old.without(WEIGHT)
    assert (new.get(WEIGHT), new.get(ZONE)) == (None, "a")
    assert old.get(WEIGHT) == 1


def test_without_an_absent_key_changes_nothing() -> None:
    attributes = EMPTY.with_(ZONE, "a")
    assert attributes.without(WEIGHT) is attributes


def test_removing_the_last_key_returns_the_empty_singleton() -> None:
    assert EMPTY.with_(WEIGHT, 1).without(WEIGHT) is EMPTY


def test_keys_with_the_same_name_do_not_collide() -> None:
    other = Key[int]("weight")
    attributes = EMPTY.with_(WEIGHT, 1).with_(other, 2)
    assert (attributes.get(WEIGHT), attributes.get(other)) == (1, 2)


def test_equality_and_hash_are_by_content_in_any_order() -> None:
    one = EMPTY.with_(WEIGHT, 1).with_(ZONE, "a")
    two = EMPTY.with_(ZONE, "a").with_(WEIGHT, 1)
    assert one == two
    assert hash(one) == hash(two)
    assert one != one.with_(WEIGHT, 2)
    assert Attributes() == EMPTY
    assert EMPTY != {}


def test_attributes_with_an_unhashable_value_are_unhashable() -> None:
    attributes = EMPTY.with_(TAGS, ["x"])
    assert attributes == EMPTY.with_(TAGS, ["x"])
    with pytest.raises(TypeError, match="unhashable"):
        hash(attributes)


def test_text_shows_names_and_values() -> None:
    assert repr(EMPTY.with_(WEIGHT, 1).with_(ZONE, "a")) == "Attributes(weight=1, zone='a')"
    assert repr(WEIGHT) == "Key('weight')"
