"""Unit tests of proxyless.controlplane.subscription."""

import itertools

import pytest

from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Resource
from proxyless.controlplane.subscription import (
    FULL_STATE_TYPES,
    Subscription,
    choose_resources,
    is_glob,
)

FULL_STATE = (LISTENER, CLUSTER)
BY_NAME = (ROUTE_CONFIG, ENDPOINTS)


def after(type_url: str, *requests: tuple[str, ...]) -> Subscription:
    """The subscription of a client that has sent these lists of names."""
    subscription = Subscription()
    for names in requests:
        subscription = subscription.after(type_url, names)
    return subscription


def resource(name: str, value: bytes = b"1") -> Resource:
    return Resource(CLUSTER, name, value)


# Names and the wildcard


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_empty_first_request_is_the_wildcard(type_url: str) -> None:
    assert after(type_url, ()).is_wildcard
    assert after(type_url, (), ()).is_wildcard


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_empty_request_after_names_unsubscribes(type_url: str) -> None:
    subscription = after(type_url, ("a",), ())
    assert not subscription.is_wildcard
    assert not subscription.names


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_star_is_the_wildcard_until_a_request_omits_it(type_url: str) -> None:
    assert after(type_url, ("*", "a")) == Subscription(frozenset("a"), True, True)
    assert after(type_url, ("*", "a"), ("a",)) == Subscription(frozenset("a"), False, True)
    assert after(type_url, ("*",), ()) == Subscription(frozenset(), False, True)


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_legacy_wildcard_ends_when_a_request_has_names(type_url: str) -> None:
    assert after(type_url, (), ("a",)) == Subscription(frozenset("a"), False, True)
    assert after(type_url, (), ("a",), ()) == Subscription(frozenset(), False, True)


@pytest.mark.parametrize("type_url", BY_NAME)
def test_other_types_have_no_wildcard(type_url: str) -> None:
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
def test_adds_to_is_true_when_a_name_or_the_wildcard_is_new(
    before: tuple[str, ...], now: tuple[str, ...], adds: bool
) -> None:
    assert after(CLUSTER, before, now).adds_to(after(CLUSTER, before)) is adds


def test_select_returns_named_resources_or_all() -> None:
    resources = {name: resource(name) for name in "abc"}
    assert set(after(CLUSTER, ("a", "z")).select(resources)) == {"a"}
    assert set(after(CLUSTER, ("a", "w", "x", "y", "z")).select(resources)) == {"a"}
    assert set(after(CLUSTER, ()).select(resources)) == {"a", "b", "c"}


# Responses


def all_cases() -> list[tuple[dict[str, Resource], dict[str, Resource], bool]]:
    """All targets and last sent states of two resources with two contents."""
    values = (None, b"1", b"2")
    views = [
        {
            name: resource(name, value)
            for name, value in zip("ab", pair, strict=True)
            if value is not None
        }
        for pair in itertools.product(values, values)
    ]
    return [(target, sent, added) for target in views for sent in views for added in (False, True)]


@pytest.mark.parametrize("type_url", FULL_STATE)
def test_full_state_response_has_all_resources_when_something_differs(type_url: str) -> None:
    assert type_url in FULL_STATE_TYPES
    for target, sent, added in all_cases():
        chosen = choose_resources(type_url, target=target, last_sent=sent, names_added=added)
        is_due = added or target != sent
        assert chosen == (tuple(target.values()) if is_due else None)


@pytest.mark.parametrize("type_url", BY_NAME)
def test_response_of_other_types_has_only_changed_resources(type_url: str) -> None:
    assert type_url not in FULL_STATE_TYPES
    for target, sent, added in all_cases():
        chosen = choose_resources(type_url, target=target, last_sent=sent, names_added=added)
        changed = tuple(each for name, each in target.items() if sent.get(name) != each)
        assert chosen == (changed or None)


@pytest.mark.spec("LE-14")
def test_collection_stands_for_its_members() -> None:
    glob = "xdstp://mesh/T/web/*"
    names = ("xdstp://mesh/T/web/1", "xdstp://mesh/T/web/deeper/1", "xdstp://mesh/T/web/1?a=b")
    resources = {name: resource(name) for name in (*names, "single", "other")}
    subscription = Subscription(frozenset({glob, "single"}), globs=frozenset({glob}))
    assert list(subscription.select(resources)) == [names[0], "single"]
    assert is_glob(glob)
    assert is_glob(f"{glob}?a=b")
    assert not is_glob(names[0])
    assert not is_glob("web/*")
