"""Unit tests of proxyless.lb.policies.random; see also spec/test_as_round_robin.py."""

from collections import Counter
from itertools import pairwise

import pytest

from proxyless.base import hits
from proxyless.lb.policies.random import RandomFactory
from proxyless.testing import check_policy
from tests.worlds.policies import CONNECTING, READY, Name, PolicyWorld


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(RandomFactory())


def ready(world: PolicyWorld, *names: Name) -> None:
    world.update(*names)
    for name in names:
        world[name].connecting()
        world[name].ready()


def test_policy_conforms() -> None:
    assert RandomFactory.name == "random"
    check_policy(RandomFactory())


def test_picks_are_distributed_evenly_over_ready_endpoints(world: PolicyWorld) -> None:
    ready(world, *"abcde")
    world["e"].idle()
    shares = Counter(world.picks(10_000))
    assert set(shares) == set("abcd")
    for name in "abcd":
        assert shares[name] / 10_000 == pytest.approx(1 / 4, abs=0.02)


def test_picks_are_independent(world: PolicyWorld) -> None:
    ready(world, *"ab")
    picks = world.picks(10_000)
    pairs = Counter(pairwise(picks))
    for pair in (("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")):
        assert pairs[pair] / 10_000 == pytest.approx(1 / 4, abs=0.02)


def test_state_changes_are_traced(world: PolicyWorld) -> None:
    with hits(world.trace, "random.state") as events:
        ready(world, "a")
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


def test_picker_has_no_dict(world: PolicyWorld) -> None:
    ready(world, "a")
    assert not hasattr(world.picker, "__dict__")


def test_unknown_config_fields_are_ignored(world: PolicyWorld) -> None:
    assert world.update("a", config={"whatever": 1}).is_ok
