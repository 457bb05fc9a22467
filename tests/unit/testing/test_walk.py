"""Unit tests of proxyless.testing.walk."""

from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing.harness import PolicyHarness, Subject
from proxyless.testing.steps import Action, AtOnce, Pick, Resolve, Step
from proxyless.testing.walk import STEPS_PER_WALK, Walk, shorten


def take_walk(seed: int) -> list[Step]:
    walk, harness = Walk(seed), PolicyHarness(Subject(RoundRobinFactory(), None), seed)
    steps: list[Step] = []
    while not harness.is_closed:
        steps.append(walk.choose_step(harness, len(steps)))
        harness.take(steps[-1])
    return steps


def test_walk_is_determined_by_its_seed() -> None:
    assert take_walk(1) == take_walk(1)
    assert take_walk(1) != take_walk(2)


def test_walk_begins_with_endpoints_and_ends_with_close() -> None:
    for seed in range(10):
        steps = take_walk(seed)
        assert isinstance(steps[0], Resolve)
        assert isinstance(steps[-1], AtOnce)
        assert steps[-1].second == Action.CLOSE
        assert STEPS_PER_WALK < len(steps) <= STEPS_PER_WALK + 2


def test_walks_contain_all_kinds_of_steps() -> None:
    kinds = {type(step).__name__ for seed in range(30) for step in take_walk(seed)}
    assert kinds == {
        "Action",
        "Advance",
        "AtOnce",
        "Become",
        "ChangeHealth",
        "Pick",
        "QueueRpcs",
        "Resolve",
        "ResolverError",
        "ShareConnection",
    }


def test_shorten_removes_steps_that_are_not_needed() -> None:
    steps = [Pick(number + 1) for number in range(100)]

    def is_still_broken(some: list[Step]) -> bool:
        return Pick(7) in some and Pick(80) in some

    assert shorten(steps, is_still_broken) == [Pick(7), Pick(80)]


def test_shorten_keeps_needed_steps() -> None:
    steps: list[Step] = [Action.RECOVER, Pick()]
    assert shorten(steps, lambda some: some == steps) == steps
    assert shorten([], lambda _: True) == []
