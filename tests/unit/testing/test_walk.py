"""Unit tests of proxyless.testing.walk: the same seed, the same walk; and no step too many."""

from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing.steps import AtOnce, Calm, Close, Pick, Resolve, Step
from proxyless.testing.walk import STEPS_PER_WALK, Walk, shorten
from proxyless.testing.world import Subject, World


def take_walk(seed: int) -> list[Step]:
    walk, world = Walk(seed), World(Subject(RoundRobinFactory(), None), seed)
    steps: list[Step] = []
    while not world.is_closed:
        steps.append(walk.draw(world, len(steps)))
        world.take(steps[-1])
    return steps


def test_the_same_seed_gives_the_same_walk() -> None:
    assert take_walk(1) == take_walk(1)
    assert take_walk(1) != take_walk(2)


def test_a_walk_begins_with_endpoints_and_ends_closed() -> None:
    for seed in range(10):
        steps = take_walk(seed)
        assert isinstance(steps[0], Resolve)
        assert isinstance(steps[-1], AtOnce)
        assert steps[-1].second == Close()
        assert STEPS_PER_WALK < len(steps) <= STEPS_PER_WALK + 2


def test_all_kinds_of_steps_are_drawn_by_some_seed() -> None:
    drawn = {type(step).__name__ for seed in range(30) for step in take_walk(seed)}
    assert drawn == {
        "Advance",
        "AtOnce",
        "Become",
        "BecomeHealthy",
        "Calm",
        "ConnectElsewhere",
        "ExitIdle",
        "KeepWaiting",
        "Pick",
        "ResetBackoff",
        "Resolve",
        "ResolverError",
    }


def test_steps_that_do_not_matter_are_left_out() -> None:
    steps = [Pick(number + 1) for number in range(100)]

    def is_still_broken(some: list[Step]) -> bool:
        return Pick(7) in some and Pick(80) in some

    assert shorten(steps, is_still_broken) == [Pick(7), Pick(80)]


def test_steps_are_kept_if_none_can_be_left_out() -> None:
    steps: list[Step] = [Calm(), Pick()]
    assert shorten(steps, lambda some: some == steps) == steps
    assert shorten([], lambda _: True) == []
