"""Unit tests of proxyless.lb.policies.random_subsetting; see spec/test_random_subsetting.py."""

import pytest

from proxyless.base import hits
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.random_subsetting import (
    RandomSubsettingFactory,
    Ranking,
    choose_subset,
    rank,
)
from proxyless.testing import Sticky, Traits, check_policy
from tests.worlds.policies import PolicyWorld, endpoint

STICKY = {"round_robin": Sticky.UNTIL_UPDATE, "pick_first": Sticky.UNTIL_READY}


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("child", STICKY)
def test_policy_conforms_with_each_child(size: int, child: str) -> None:
    check_policy(
        RandomSubsettingFactory(),
        config={"subsetSize": size, "childPolicy": [{child: {}}]},
        traits=Traits(sticky=STICKY[child]),
        seeds=range(20),
    )


def test_subset_is_traced() -> None:
    world = PolicyWorld(RandomSubsettingFactory(), others=(PickFirstFactory(),))
    with hits(world.trace, "random_subsetting.subset") as events:
        world.update(*"abcd", config={"subsetSize": 2, "childPolicy": [{"pick_first": {}}]})
    [event] = events
    assert event.fields["of"] == 4
    chosen = event.fields["chosen"]
    assert isinstance(chosen, tuple)
    assert len(chosen) == 2


def test_ranking_reuses_ranks_and_drops_removed_endpoints() -> None:
    a, b, c = map(endpoint, "abc")
    ranking = Ranking(7, {id(a): (1, a), id(b): (2, b)})
    assert ranking.updated([b, c]).ranked == {id(b): (2, b), id(c): (rank(c, 7), c)}


def test_subset_has_the_first_endpoints_when_ranks_are_equal() -> None:
    listed = tuple(map(endpoint, "abc"))
    ranking = Ranking(7, {id(each): (5, each) for each in listed})
    assert choose_subset(listed, 2, ranking) == listed[:2]
