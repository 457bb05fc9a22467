"""Does a policy keep every rule?

`check_policy` runs the scenarios, then random walks, on fakes and a virtual clock: nothing waits,
and the same call always does the same.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationErrors
from proxyless.testing.rules import ConformanceError, Rule, Story
from proxyless.testing.scenarios import MANY_ENDPOINTS, SCENARIOS, STACK_FRAMES_MAX, every_ending
from proxyless.testing.steps import Step
from proxyless.testing.walk import Walk, shorten
from proxyless.testing.world import Subject, Traits, World

if TYPE_CHECKING:
    from proxyless.lb import PolicyFactory, PolicyRegistry

# Of the random walks, unless a caller names others.
SEEDS: Final = range(50)

# What a config may hold where something else was expected.
_ODD_VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "x",
    [],
    [None],
    {},
    {"x": [{}]},
)


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
    factory does not like it. The registry has the policies that may be its children: if left out,
    pick_first, round_robin, priority and weighted_target. Endpoints have one address or two, from
    `address("a")` to `address("h")` with their IPv6 twins, and `address("0")` to `address("499")`.

    What is found with a seed is found again with that seed alone: `seeds=[17]`.
    """
    subject = Subject(factory, registry, dict(config or {}), traits or Traits())
    World(subject, seed=0)  # So that a config that is not valid is said first.
    _check_config(subject)
    for name, scenario in SCENARIOS.items():
        for steps in every_ending(scenario):
            _run(subject, f"scenario {name!r}", 0, _following(steps))
    with _short_stack():
        _run(subject, "scenario 'many endpoints'", 0, _following(MANY_ENDPOINTS))
    for seed in seeds:
        _check_walk(subject, seed)


@contextmanager
def _short_stack() -> Iterator[None]:
    """Python's own limit takes more endpoints than a test has time for."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(min(limit, len(inspect.stack(0)) + STACK_FRAMES_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


# The next step in this world, after so many; `Close` is the last.
_Draw = Callable[[World, int], Step]


def _following(steps: Sequence[Step]) -> _Draw:
    return lambda _, steps_taken: steps[steps_taken]


def _check_walk(subject: Subject, seed: int) -> None:
    origin = f"seed {seed}"
    steps, first = _run(subject, origin, seed, Walk(seed).draw)
    _, second = _run(subject, origin, seed, _following(steps))
    if first != second:
        seen = f"two runs are the same until one {_describe_difference(first, second)}"
        raise ConformanceError(Rule.REPEATABLE, seen, _tell(subject, origin, steps))


def _describe_difference(first: list[str], second: list[str]) -> str:
    for one, other in zip(first, second, strict=False):
        if one != other:
            return f"{one} and the other {other}"
    longer = max(first, second, key=len)
    return f"{longer[min(len(first), len(second))]} and the other does not"


def _run(subject: Subject, origin: str, seed: int, draw: _Draw) -> tuple[list[Step], list[str]]:
    """Take steps until the policy is closed: which ones, and what was seen meanwhile."""
    steps: list[Step] = []
    try:
        world = World(subject, seed)
        while not world.is_closed:
            steps.append(draw(world, len(steps)))
            world.take(steps[-1])
    except ConformanceError as error:
        explained = _explain(subject, origin, seed, steps, error)
        raise explained from explained.__cause__
    return steps, world.helper.events


def _explain(
    subject: Subject, origin: str, seed: int, steps: Sequence[Step], error: ConformanceError
) -> ConformanceError:
    """The same with as few steps as possible."""

    def breaks_the_same_rule(some: Sequence[Step]) -> bool:
        found = _replay(subject, seed, some)
        return found is not None and found.rule is error.rule

    shortest = shorten(steps, breaks_the_same_rule)
    # A policy that is not repeatable may have got away with it this time.
    again = _replay(subject, seed, shortest) or error
    explained = ConformanceError(again.rule, again.seen, _tell(subject, origin, shortest))
    explained.__cause__ = again.__cause__
    return explained


def _replay(subject: Subject, seed: int, steps: Sequence[Step]) -> ConformanceError | None:
    try:
        world = World(subject, seed)
        for step in steps:
            world.take(step)
    except ConformanceError as error:
        return error
    return None


def _tell(subject: Subject, origin: str, steps: Sequence[Step]) -> Story:
    return Story(subject.factory.name, origin, tuple(map(str, steps)))


def _check_config(subject: Subject) -> None:
    """Feed the parser what it did not expect, at every key of the config."""
    registry = World(subject, seed=0).helper.context.registry
    for json in _odd_configs(subject.json):
        before = deepcopy(json)
        seen = None
        try:
            subject.factory.parse_config(json, ValidationErrors(), registry)
        except Exception as error:
            seen = f"parse_config raises {type(error).__name__}: {error}"
        if json != before:
            seen = f"parse_config makes {json!r} of its input"
        if seen is not None:
            story = Story(subject.factory.name, "odd configs", (f"parse {before!r}",))
            raise ConformanceError(Rule.CONFIG, seen, story)


def _odd_configs(json: Mapping[str, object]) -> Iterator[dict[str, object]]:
    yield dict(json)
    yield {**json, "unknownField": 1}
    for key in json:
        yield {other: value for other, value in json.items() if other != key}
        for odd in _ODD_VALUES:
            yield {**json, key: odd}
