"""Unit tests of proxyless.lb.policies.least_request; see spec/test_least_request.py."""

from collections.abc import Sequence

import pytest

from proxyless.base import OK, Metadata, Status, hits
from proxyless.lb import CallTracker, Complete
from proxyless.lb.policies.least_request import (
    CountedChild,
    LeastRequestFactory,
    LeastRequestPicker,
)
from proxyless.testing import check_policy
from tests.spec.lb_world import ANY_RPC, CONNECTING, READY, FakeSubchannel, World


class End:
    status: Status = OK
    trailing_metadata: Metadata = ()


@pytest.fixture
def world() -> World:
    world = World(LeastRequestFactory())
    world.update(*"abcd")
    for name in "abcd":
        world[name].ready()
    return world


def picker_with(world: World, choice_count: int, draws: Sequence[float]) -> LeastRequestPicker:
    """A picker over the endpoints of the world that draws these numbers."""
    children = _children(world)
    script = iter(draws)
    return LeastRequestPicker(children, choice_count, lambda: next(script))


def _children(world: World) -> tuple[CountedChild, ...]:
    picker = world.picker
    assert isinstance(picker, LeastRequestPicker)
    return picker._children


def pick(world: World, picker: LeastRequestPicker) -> str:
    result = picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    assert isinstance(result.subchannel, FakeSubchannel)
    return world.name(result.subchannel.address)


def busy(world: World, **rpcs: int) -> None:
    for child in _children(world):
        child.active_requests = rpcs.get(world.name(child.endpoint.addresses[0]), 0)


@pytest.mark.spec("LR-02")
@pytest.mark.parametrize(
    ("draws", "picked"),
    [
        # Four endpoints, a quarter of the draws each.
        ([0.0, 0.3], "b"),
        ([0.3, 0.0], "b"),
        ([0.0, 0.999_999], "d"),
        ([0.0, 0.0], "a"),
        # The same count: the earlier one.
        ([0.3, 0.6], "b"),
        ([0.6, 0.3], "c"),
    ],
)
def test_the_fewest_of_those_drawn_wins_and_the_earlier_one_if_equal(
    world: World, draws: list[float], picked: str
) -> None:
    busy(world, a=2, b=1, c=1, d=1)
    assert pick(world, picker_with(world, 2, draws)) == picked


def test_as_many_are_drawn_as_the_choice_count_says(world: World) -> None:
    busy(world, a=3, b=2, c=1)
    assert pick(world, picker_with(world, 4, [0.0, 0.3, 0.6, 0.9])) == "d"
    assert pick(world, picker_with(world, 3, [0.0, 0.3, 0.6, 0.9])) == "c"


def test_a_pick_makes_nothing_new(world: World) -> None:
    results = {world.picker.pick(ANY_RPC) for _ in range(200)}
    assert len(results) == 4


def test_the_tracker_of_an_endpoint_counts(world: World) -> None:
    child = _children(world)[0]
    tracker: CallTracker = child
    for _ in range(3):
        tracker.on_start()
    tracker.on_end(End())
    assert child.active_requests == 2


def test_pickers_have_no_dictionary(world: World) -> None:
    assert not hasattr(world.picker, "__dict__")


def test_state_changes_are_traced() -> None:
    world = World(LeastRequestFactory())
    with hits(world.trace, "least_request.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


@pytest.mark.parametrize("config", [{}, {"choiceCount": 10}])
def test_it_keeps_every_rule_of_policies(config: dict[str, object]) -> None:
    check_policy(LeastRequestFactory(), config=config, seeds=range(25))
