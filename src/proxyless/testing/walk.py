"""Random walks: steps that a seed chooses, and the shortening of a list of steps.

The seed also chooses the kinds of steps and their frequencies, so that walks differ more than their
steps do. The same seed always gives the same walk. `shorten` removes steps that are not needed to
reproduce an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import State
from proxyless.runtime import seeded_random
from proxyless.testing.fakes import CHANGES, address
from proxyless.testing.steps import (
    Action,
    Advance,
    AtOnce,
    Become,
    ChangeHealth,
    DeferrableStep,
    Names,
    Pick,
    QueueRpcs,
    Resolve,
    ResolverError,
    ShareConnection,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.testing.harness import PolicyHarness

STEPS_PER_WALK: Final = 60

T = TypeVar("T")

_ENDPOINTS: Final[tuple[Names, ...]] = (
    ("a",),
    ("b",),
    ("c",),
    ("d",),
    ("e", "e6"),
    ("f6", "f"),
    ("a", "b"),
)
_NAMES: Final[Names] = ("a", "b", "c", "d", "e", "e6", "f", "f6")
_DELAYS_S: Final = (0.1, 0.25, 1.0, 10.0, 120.0, 1000.0)
# Possible frequencies of a kind of step; 0 is never. Changes of connections always occur.
_WEIGHTS: Final = (0, 1, 1, 2)
_CHANGE_WEIGHT: Final = 8


class Walk:
    """Chooses the steps of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = seeded_random(seed)
        kinds: tuple[Callable[[PolicyHarness], Step], ...] = (
            self._choose_list,
            self._choose_list,
            self._choose_resolver_error,
            self._choose_shared,
            self._choose_health,
            self._choose_picks,
            self._choose_action,
            self._choose_delay,
            self._choose_overlap,
        )
        weighted = ([kind] * self._choose(_WEIGHTS) for kind in kinds)
        self._kinds = [kind for group in weighted for kind in group]
        self._kinds += [self._choose_change] * _CHANGE_WEIGHT

    def choose_step(self, harness: PolicyHarness, steps_taken: int) -> Step:
        """Return the next step; the last one closes the policy."""
        if steps_taken == 0:
            return self._choose_list(harness)
        if steps_taken >= STEPS_PER_WALK:
            # Half of the walks close the policy without a recovery before.
            recovers = steps_taken == STEPS_PER_WALK and self._random.random() < 0.5  # noqa: PLR2004
            if recovers:
                return Action.RECOVER
            return AtOnce(self._choose_deferrable(harness), Action.CLOSE)
        return self._choose(self._kinds)(harness)

    def _choose(self, items: Sequence[T]) -> T:
        return items[self._random.randrange(len(items))]

    def _choose_list(self, _: PolicyHarness) -> Step:
        endpoints = list(_ENDPOINTS)
        self._random.shuffle(endpoints)
        del endpoints[1 + self._random.randrange(5) :]
        if self._random.randrange(8) == 0:
            endpoints.append(endpoints[0])
        return Resolve(tuple(endpoints), revision=self._choose((0, 0, 0, 1)))

    def _choose_resolver_error(self, _: PolicyHarness) -> Step:
        steps: tuple[Step, ...] = (Resolve(()), ResolverError(), ResolverError())
        return self._choose(steps)

    def _choose_shared(self, _: PolicyHarness) -> Step:
        return ShareConnection(self._choose(tuple(CHANGES)[:4]), (self._choose(_NAMES),))

    def _choose_health(self, _: PolicyHarness) -> Step:
        states = (State.READY, State.TRANSIENT_FAILURE, State.CONNECTING)
        return ChangeHealth(self._choose(states), self._choose(_NAMES))

    def _choose_picks(self, _: PolicyHarness) -> Step:
        steps: tuple[Step, ...] = (Pick(), Pick(), Pick(7), QueueRpcs(0), QueueRpcs(2))
        return self._choose(steps)

    def _choose_action(self, _: PolicyHarness) -> Step:
        steps: tuple[Step, ...] = (Action.EXIT_IDLE, Action.RESET_BACKOFF, Action.RECOVER)
        return self._choose(steps)

    def _choose_delay(self, _: PolicyHarness) -> Step:
        return Advance(self._choose(_DELAYS_S))

    def _choose_overlap(self, harness: PolicyHarness) -> Step:
        second = self._choose((self._choose_list, self._choose_action, self._choose_change))
        return AtOnce(self._choose_deferrable(harness), second(harness))

    def _choose_deferrable(self, harness: PolicyHarness) -> DeferrableStep:
        causes: tuple[DeferrableStep, ...] = (Pick(), self._choose_change(harness))
        return self._choose(causes)

    def _choose_change(self, harness: PolicyHarness) -> Become:
        connections = [(name, harness.helper.connection(address(name))) for name in _NAMES]
        possible = [
            Become(state, (name,))
            for name, connection in connections
            for state in CHANGES[connection.state]
            if connection.can_become(state)
        ]
        all_connections = Become(self._choose(tuple(CHANGES)[:4]))
        return self._choose([*possible, *possible, all_connections])


def shorten(steps: Sequence[Step], is_still_broken: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave out steps while the rule is still broken: first halves, then smaller parts."""
    kept = list(steps)
    size = len(kept) // 2
    while size:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if is_still_broken(rest):
                kept = rest
            else:
                start += size
        size //= 2
    return kept
