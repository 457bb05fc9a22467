"""`check_policy`: checks that a policy keeps every rule.

It runs the scenarios, then random walks, on fakes and a virtual clock: it never waits, and the same
call always gives the same result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationErrors
from proxyless.testing.harness import PolicyHarness, Subject, Traits
from proxyless.testing.rules import ConformanceError, Reproduction, Rule
from proxyless.testing.scenarios import MANY_ENDPOINTS, SCENARIOS, STACK_FRAMES_MAX, every_ending
from proxyless.testing.steps import Step
from proxyless.testing.walk import Walk, shorten

if TYPE_CHECKING:
    from proxyless.lb import PolicyFactory, PolicyRegistry

# Default seeds of the random walks.
SEEDS: Final = range(50)

# Values of unexpected types for the fields of a config.
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
    """Raise ConformanceError if the policy breaks a `Rule`.

    The config is the policy's JSON in a service config; ValidationError if it is invalid. The
    registry has the policies that may be children; default: pick_first, round_robin, priority and
    weighted_target. Endpoints have one address or two, from `address("a")` to `address("h")` with
    IPv6 addresses of the same letters, and from `address("0")` to `address("499")`.

    An error of a random walk is reproduced with its seed alone: `seeds=[17]`.
    """
    subject = Subject(factory, registry, dict(config or {}), traits or Traits())
    PolicyHarness(subject, seed=0)  # Raises first if the config is invalid.
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
    """Lower the recursion limit, so that few endpoints suffice to exceed it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(min(limit, len(inspect.stack(0)) + STACK_FRAMES_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


# Returns the next step, given the harness and the number of steps taken.
_ChooseStep = Callable[[PolicyHarness, int], Step]


def _following(steps: Sequence[Step]) -> _ChooseStep:
    return lambda _, steps_taken: steps[steps_taken]


def _check_walk(subject: Subject, seed: int) -> None:
    origin = f"seed {seed}"
    steps, first = _run(subject, origin, seed, Walk(seed).choose_step)
    _, second = _run(subject, origin, seed, _following(steps))
    if first != second:
        observed = f"two runs are equal until one {_describe_difference(first, second)}"
        raise ConformanceError(
            Rule.REPEATABLE, observed, _make_reproduction(subject, origin, steps)
        )


def _describe_difference(first: list[str], second: list[str]) -> str:
    for one, other in zip(first, second, strict=False):
        if one != other:
            return f"{one} and the other {other}"
    longer = max(first, second, key=len)
    return f"{longer[min(len(first), len(second))]} and the other does not"


def _run(
    subject: Subject, origin: str, seed: int, choose_step: _ChooseStep
) -> tuple[list[Step], list[str]]:
    """Take steps until the policy is closed. Returns the steps, and the policy's calls."""
    steps: list[Step] = []
    try:
        harness = PolicyHarness(subject, seed)
        while not harness.is_closed:
            steps.append(choose_step(harness, len(steps)))
            harness.take(steps[-1])
    except ConformanceError as error:
        explained = _explain(subject, origin, seed, steps, error)
        raise explained from explained.__cause__
    return steps, harness.helper.events


def _explain(
    subject: Subject, origin: str, seed: int, steps: Sequence[Step], error: ConformanceError
) -> ConformanceError:
    """Return the error with as few steps as possible."""

    def breaks_the_same_rule(candidate: Sequence[Step]) -> bool:
        found = _replay(subject, seed, candidate)
        return found is not None and found.rule is error.rule

    shortest = shorten(steps, breaks_the_same_rule)
    # The error of a policy that is not repeatable may not occur again.
    repeated = _replay(subject, seed, shortest) or error
    explained = ConformanceError(
        repeated.rule, repeated.observed, _make_reproduction(subject, origin, shortest)
    )
    explained.__cause__ = repeated.__cause__
    return explained


def _replay(subject: Subject, seed: int, steps: Sequence[Step]) -> ConformanceError | None:
    try:
        harness = PolicyHarness(subject, seed)
        for step in steps:
            harness.take(step)
    except ConformanceError as error:
        return error
    return None


def _make_reproduction(subject: Subject, origin: str, steps: Sequence[Step]) -> Reproduction:
    return Reproduction(subject.factory.name, origin, tuple(map(str, steps)))


def _check_config(subject: Subject) -> None:
    """Parse configs with missing, unknown and wrongly typed fields."""
    registry = PolicyHarness(subject, seed=0).helper.context.registry
    for json in _odd_configs(subject.json):
        before = deepcopy(json)
        observed = None
        try:
            subject.factory.parse_config(json, ValidationErrors(), registry)
        except Exception as error:
            observed = f"parse_config raises {type(error).__name__}: {error}"
        if json != before:
            observed = f"parse_config makes {json!r} of its input"
        if observed is not None:
            reproduction = Reproduction(subject.factory.name, "odd configs", (f"parse {before!r}",))
            raise ConformanceError(Rule.CONFIG, observed, reproduction)


def _odd_configs(json: Mapping[str, object]) -> Iterator[dict[str, object]]:
    yield dict(json)
    yield {**json, "unknownField": 1}
    for key in json:
        yield {other: value for other, value in json.items() if other != key}
        for odd in _ODD_VALUES:
            yield {**json, key: odd}
