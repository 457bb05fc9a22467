"""What happens to a policy if anything may happen?

A walk draws one step after the other. The seed decides which kinds of steps there are and how
common each one is, so that walks differ more than their steps do; the same seed always gives the
same walk. A walk that breaks a rule is made as short as possible, by leaving out what did not
matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import State
from proxyless.runtime import seeded_random
from proxyless.testing.fakes import CHANGES, address
from proxyless.testing.steps import (
    Advance,
    AtOnce,
    Become,
    BecomeHealthy,
    Calm,
    Cause,
    Close,
    ConnectElsewhere,
    ExitIdle,
    KeepWaiting,
    Names,
    Pick,
    ResetBackoff,
    Resolve,
    ResolverError,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.testing.world import World

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
# How common a kind of step is, from never; one that matters most is never left out.
_WEIGHTS: Final = (0, 1, 1, 2)
_CHANGE_WEIGHT: Final = 8


class Walk:
    """Draws the steps of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = seeded_random(seed)
        kinds: tuple[Callable[[World], Step], ...] = (
            self._draw_list,
            self._draw_list,
            self._draw_trouble,
            self._draw_elsewhere,
            self._draw_health,
            self._draw_traffic,
            self._draw_request,
            self._draw_time,
            self._draw_coincidence,
        )
        weighted = ([kind] * self._choose(_WEIGHTS) for kind in kinds)
        self._kinds = [kind for some in weighted for kind in some]
        self._kinds += [self._draw_change] * _CHANGE_WEIGHT

    def draw(self, world: World, steps_taken: int) -> Step:
        """The next step in this world; `Close` is the last one."""
        if steps_taken == 0:
            return self._draw_list(world)
        if steps_taken >= STEPS_PER_WALK:
            # Half of all policies are closed in the midst of trouble.
            is_calm_due = steps_taken == STEPS_PER_WALK and self._random.random() < 0.5  # noqa: PLR2004
            return Calm() if is_calm_due else AtOnce(self._draw_cause(world), Close())
        return self._choose(self._kinds)(world)

    def _choose(self, items: Sequence[T]) -> T:
        return items[self._random.randrange(len(items))]

    def _draw_list(self, _: World) -> Step:
        endpoints = list(_ENDPOINTS)
        self._random.shuffle(endpoints)
        del endpoints[1 + self._random.randrange(5) :]
        if self._random.randrange(8) == 0:
            endpoints.append(endpoints[0])
        return Resolve(tuple(endpoints), revision=self._choose((0, 0, 0, 1)))

    def _draw_trouble(self, _: World) -> Step:
        steps: tuple[Step, ...] = (Resolve(()), ResolverError(), ResolverError())
        return self._choose(steps)

    def _draw_elsewhere(self, _: World) -> Step:
        return ConnectElsewhere(self._choose(tuple(CHANGES)[:4]), (self._choose(_NAMES),))

    def _draw_health(self, _: World) -> Step:
        states = (State.READY, State.TRANSIENT_FAILURE, State.CONNECTING)
        return BecomeHealthy(self._choose(states), self._choose(_NAMES))

    def _draw_traffic(self, _: World) -> Step:
        steps: tuple[Step, ...] = (Pick(), Pick(), Pick(7), KeepWaiting(0), KeepWaiting(2))
        return self._choose(steps)

    def _draw_request(self, _: World) -> Step:
        steps: tuple[Step, ...] = (ExitIdle(), ResetBackoff(), Calm())
        return self._choose(steps)

    def _draw_time(self, _: World) -> Step:
        return Advance(self._choose(_DELAYS_S))

    def _draw_coincidence(self, world: World) -> Step:
        second = self._choose((self._draw_list, self._draw_request, self._draw_change))
        return AtOnce(self._draw_cause(world), second(world))

    def _draw_cause(self, world: World) -> Cause:
        causes: tuple[Cause, ...] = (Pick(), self._draw_change(world))
        return self._choose(causes)

    def _draw_change(self, world: World) -> Become:
        connections = [(name, world.helper.connection(address(name))) for name in _NAMES]
        possible = [
            Become(state, (name,))
            for name, connection in connections
            for state in CHANGES[connection.state]
            if connection.can_become(state)
        ]
        everybody = Become(self._choose(tuple(CHANGES)[:4]))
        return self._choose([*possible, *possible, everybody])


def shorten(steps: Sequence[Step], is_still_broken: Callable[[list[Step]], bool]) -> list[Step]:
    """As few of the steps as are needed: halves are left out first, then ever smaller parts."""
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
