"""Does a policy keep every rule?

`check_policy` runs the scenarios, then random walks, on fakes and a virtual clock: nothing waits,
and the same call always does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationErrors
from proxyless.testing.rules import ConformanceError, Rule, Story
from proxyless.testing.scenarios import MANY_ENDPOINTS, SCENARIOS, every_ending
from proxyless.testing.steps import Close, Step
from proxyless.testing.walk import Walk, shorten
from proxyless.testing.world import Subject, Traits, World

if TYPE_CHECKING:
    from proxyless.lb import PolicyFactory, PolicyRegistry

SEEDS: Final = range(50)

# What a config may hold where something else was expected.
_ODD_VALUES: Final = (None, True, -1, 1.5, 10**30, "", "x", [], [None], {}, {"x": [{}]})


def check_policy(
    factory: PolicyFactory,
    *,
    config: Mapping[str, object] | None = None,
    registry: PolicyRegistry | None = None,
    traits: Traits | None = None,
    seeds: Iterable[int] = SEEDS,
) -> None:
    """Return if the policy keeps every `Rule`; else raise ConformanceError.

    The config is what a service config would say, an empty one if left out; ValidationError if the
    factory does not like it. The registry has the policies that may be its children: pick_first
    and round_robin if left out. Endpoints have one address or two, from `address("a")` to
    `address("h")` with their IPv6 twins, and `address("0")` to `address("2399")`.

    What is found with a seed is found again with that seed alone: `seeds=[17]`.
    """
    subject = Subject(factory, registry, dict(config or {}), traits or Traits())
    World(subject, seed=0)  # So that a config that is not valid is said first.
    _check_config(subject)
    for name, scenario in SCENARIOS.items():
        for steps in every_ending(scenario):
            _run(subject, f"scenario {name!r}", 0, _following(steps))
    _run(subject, "scenario 'many endpoints'", 0, _following(MANY_ENDPOINTS))
    for seed in seeds:
        _check_walk(subject, seed)


def _check_walk(subject: Subject, seed: int) -> None:
    steps, world = _run(subject, f"seed {seed}", seed, Walk(seed).draw)
    _, again = _run(subject, f"seed {seed}", seed, _following(steps))
    if again.helper.events != world.helper.events:
        number, first, second = _first_difference(world.helper.events, again.helper.events)
        seen = f"event {number} is {first!r}, and in a second run {second!r}"
        raise ConformanceError(
            Rule.REPEATABLE, seen, _story(subject, f"seed {seed}, twice", steps)
        )


# The next step in this world, after so many; `Close` is the last.
_Draw = Callable[[World, int], Step]


def _following(steps: Sequence[Step]) -> _Draw:
    return lambda _, steps_taken: steps[steps_taken]


def _run(subject: Subject, origin: str, seed: int, draw: _Draw) -> tuple[list[Step], World]:
    """Take steps until the policy is closed; the steps, and the world after them."""
    steps: list[Step] = []
    try:
        world = World(subject, seed)
        while not world.is_closed:
            steps.append(draw(world, len(steps)))
            world.take(steps[-1])
    except ConformanceError as error:
        shortest = shorten(steps, lambda some: _breaks(subject, seed, some, error.rule))
        raise _retell(subject, origin, seed, shortest) from error
    return steps, world


def _breaks(subject: Subject, seed: int, steps: Sequence[Step], rule: Rule) -> bool:
    error = _replay(subject, seed, steps)
    return error is not None and error.rule is rule


def _replay(subject: Subject, seed: int, steps: Iterable[Step]) -> ConformanceError | None:
    try:
        world = World(subject, seed)
        for step in steps:
            world.take(step)
    except ConformanceError as error:
        return error
    return None
