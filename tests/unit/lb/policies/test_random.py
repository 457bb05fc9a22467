"""Unit tests of proxyless.lb.policies.random; what it shares is in spec/test_as_round_robin.py."""

from collections import Counter
from itertools import pairwise

import pytest

from proxyless.base import hits
from proxyless.lb.policies.random import RandomFactory
from proxyless.testing import check_policy
from tests.spec.lb_world import CONNECTING, READY, Name, World


@pytest.fixture
def world() -> World:
    return World(RandomFactory())


def ready(world: World, *names: Name) -> None:
    world.update(*names)
    for name in names:
        world[name].connecting()
        world[name].ready()


def test_it_conforms() -> None:
    assert RandomFactory.name == "random"
    check_policy(RandomFactory())


def test_ready_endpoints_are_picked_alike(world: World) -> None:
    ready(world, *"abcde")
    world["e"].idle()
    shares = Counter(world.picks(10_000))
    assert set(shares) == set("abcd")
    for name in "abcd":
        assert shares[name] / 10_000 == pytest.approx(1 / 4, abs=0.02)


def test_a_pick_does_not_depend_on_the_one_before(world: World) -> None:
    ready(world, *"ab")
    picks = world.picks(10_000)
    pairs = Counter(pairwise(picks))
    for pair in (("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")):
        assert pairs[pair] / 10_000 == pytest.approx(1 / 4, abs=0.02)


def test_state_changes_are_traced(world: World) -> None:
    with hits(world.trace, "random.state") as events:
        ready(world, "a")
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


def test_pickers_have_no_dictionary(world: World) -> None:
    ready(world, "a")
    assert not hasattr(world.picker, "__dict__")


def test_any_config_is_accepted(world: World) -> None:
    assert world.update("a", config={"whatever": 1}).is_ok
