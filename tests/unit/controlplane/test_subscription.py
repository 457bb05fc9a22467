"""Unit tests of proxyless.controlplane.subscription."""

import itertools

import pytest

from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Resource
from proxyless.controlplane.subscription import (
    FULL_STATE_TYPES,
    Reason,
    Subscription,
    choose_answer,
)

FULL_STATE = (LISTENER, CLUSTER)
BY_NAME = (ROUTE_CONFIG, ENDPOINTS)


def after(type_url: str, *requests: tuple[str, ...]) -> Subscription:
    """What a client wants that has sent these lists of names."""
    subscription = Subscription()
    for names in requests:
        subscription = subscription.after(type_url, names)
    return subscription


def resource(name: str, value: bytes = b"1") -> Resource:
    return Resource(CLUSTER, name, value)


# Names and the wildcard


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_no_names_at_first_mean_everything(type_url: str) -> None:
    assert after(type_url, ()).is_wildcard
    assert after(type_url, (), ()).is_wildcard


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_no_names_after_names_mean_nothing(type_url: str) -> None:
    subscription = after(type_url, ("a",), ())
    assert not subscription.is_wildcard
    assert not subscription.names


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_a_star_means_everything_until_it_is_left_out(type_url: str) -> None:
    assert after(type_url, ("*", "a")) == Subscription(frozenset("a"), True, True)
    assert after(type_url, ("*", "a"), ("a",)) == Subscription(frozenset("a"), False, True)
    assert after(type_url, ("*",), ()) == Subscription(frozenset(), False, True)


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_who_wanted_everything_without_saying_so_leaves_by_naming_something(type_url: str) -> None:
    assert after(type_url, (), ("a",)) == Subscription(frozenset("a"), False, True)
    assert after(type_url, (), ("a",), ()) == Subscription(frozenset(), False, True)


@pytest.mark.parametrize("type_url", BY_NAME)
def test_other_types_know_no_wildcard(type_url: str) -> None:
    assert not after(type_url, ()).is_wildcard
    assert not after(type_url, ("*",)).is_wildcard
    assert after(type_url, ("a",), ("b",)).names == {"b"}


@pytest.mark.parametrize(
    ("before", "now", "adds"),
    [
        (("a",), ("a",), False),
        (("a",), ("a", "b"), True),
        (("a", "b"), ("a",), False),
        (("a",), ("*",), True),
        (("*",), ("*", "a"), True),
        (("*",), ("a",), True),
        (("*",), (), False),
    ],
)
def test_what_was_not_asked_for_before_is_added(
    before: tuple[str, ...], now: tuple[str, ...], adds: bool
) -> None:
    assert after(CLUSTER, before, now).adds_to(after(CLUSTER, before)) is adds


def test_selecting_is_by_name_or_everything() -> None:
    resources = {name: resource(name) for name in "abc"}
    assert set(after(CLUSTER, ("a", "z")).select(resources)) == {"a"}
    assert set(after(CLUSTER, ("a", "w", "x", "y", "z")).select(resources)) == {"a"}
    assert set(after(CLUSTER, ()).select(resources)) == {"a", "b", "c"}


# Answers


def all_cases() -> list[tuple[dict[str, Resource], dict[str, Resource], bool]]:
    """Everything that a client can want and know of two resources with two contents."""
    values = (None, b"1", b"2")
    views = [
        {
            name: resource(name, value)
            for name, value in zip("ab", pair, strict=True)
            if value is not None
        }
        for pair in itertools.product(values, values)
    ]
    return [(wanted, told, added) for wanted in views for told in views for added in (False, True)]


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_a_full_state_is_told_whole_whenever_something_differs(type_url: str) -> None:
    for wanted, told, added in all_cases():
        answer = choose_answer(type_url, wanted=wanted, told=told, names_added=added)
        if added or wanted != told:
            assert answer.resources == tuple(wanted.values())
        else:
            assert answer.resources is None


@pytest.mark.parametrize("type_url", BY_NAME)
def test_of_other_types_only_what_differs_is_told(type_url: str) -> None:
    for wanted, told, added in all_cases():
        answer = choose_answer(type_url, wanted=wanted, told=told, names_added=added)
        different = tuple(each for name, each in wanted.items() if told.get(name) != each)
        assert answer.resources == (different or None)


@pytest.mark.parametrize(
    ("wanted", "told", "added", "reason"),
    [
        ("a", "", True, Reason.ASKED),
        ("ab", "a", False, Reason.CHANGED),
        ("a", "ab", False, Reason.REMOVED),
        ("a", "a", False, Reason.UNCHANGED),
    ],
)
def test_an_answer_says_why(wanted: str, told: str, added: bool, reason: Reason) -> None:
    assert {LISTENER, CLUSTER} == FULL_STATE_TYPES
    answer = choose_answer(
        CLUSTER,
        wanted={name: resource(name) for name in wanted},
        told={name: resource(name) for name in told},
        names_added=added,
    )
    assert answer.reason is reason
