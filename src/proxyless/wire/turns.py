"""Turns: a budget for the work that a peer can cause in one turn of the event loop.

All connections of a loop share one `Turns`. Work is counted, not timed, so that a simulation is
reproducible. Work that finds the budget used up waits for the next turn, in order; the budget is
refilled only then. Without a `schedule` the budget is unlimited.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from proxyless.wire.limits import COST_PER_TURN_MAX, FRAMES_PER_TURN_MAX

T = TypeVar("T")

Action = Callable[[], None]


class Turns:
    """The budget of the current turn, and the actions that wait for the next one."""

    __slots__ = ("_actions", "_cost_max", "_schedule", "frames_max", "left")

    def __init__(
        self,
        schedule: Callable[[Action], object] | None = None,
        *,
        cost_max: float = COST_PER_TURN_MAX,
        frames_max: int = FRAMES_PER_TURN_MAX,
    ) -> None:
        """`schedule` calls an action in the next turn of the loop."""
        self._schedule: Final = schedule
        self._cost_max: Final = math.inf if schedule is None else cost_max
        # Frames that one connection handles in one turn.
        self.frames_max: Final = 1 << 62 if schedule is None else frames_max
        # What work may cost in this turn. Reduced by the work; may fall below zero.
        self.left = self._cost_max
        self._actions: dict[Action, None] = {}

    def defer(self, action: Action) -> None:
        """Call the action in the next turn, once for all calls before it."""
        if not self._actions:
            assert self._schedule is not None, "an unlimited budget is never used up"
            self._schedule(self._run)
        self._actions[action] = None

    def spread(self, items: Iterable[T], cost: int, act: Callable[[T], None]) -> None:
        """Act on all items, in order; on those beyond the budget in the next turns."""
        self._continue(deque(items), cost, act)

    def _continue(self, items: deque[T], cost: int, act: Callable[[T], None]) -> None:
        while items:
            if self.left <= 0:
                self.defer(partial(self._continue, items, cost, act))
                return
            self.left -= cost
            act(items.popleft())

    def _run(self) -> None:
        self.left = self._cost_max
        actions, self._actions = self._actions, {}
        waiting = iter(actions)
        for action in waiting:
            action()
            if self.left <= 0:
                break
        rest = dict.fromkeys(waiting)
        if rest:
            # They are first in the next turn; what was deferred meanwhile follows.
            if not self._actions:
                assert self._schedule is not None, "an unlimited budget is never used up"
                self._schedule(self._run)
            self._actions = rest | self._actions
