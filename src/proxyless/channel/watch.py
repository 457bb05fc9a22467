"""How does a policy hear of changes, if they happen inside its own calls?

What a policy calls does not call back before it returns (`lb.api`), so that no policy has to expect
to be called while it is at it. What there is to say meanwhile is said soon after.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from proxyless.runtime import IDLE_TIMER, Clock, Timer

if TYPE_CHECKING:
    from proxyless.base import State, Status
    from proxyless.lb.api import StateListener


class Watch:
    """Tells one listener of every change, in their order, soon after they happened."""

    __slots__ = ("_clock", "_listener", "_timer", "_untold")

    def __init__(self, listener: StateListener, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        # Almost always nothing, and there are thousands of us: a deque is never small.
        self._untold: deque[tuple[State, Status]] | None = None
        # Pending while there is something untold.
        self._timer: Timer = IDLE_TIMER

    def post(self, state: State, status: Status) -> None:
        if self._untold is None:
            self._untold = deque()
            self._timer = self._clock.call_later(0, self._tell)
        self._untold.append((state, status))

    def _tell(self) -> None:
        untold = self._untold
        assert untold, "the timer is pending only while there is something untold"
        state, status = untold.popleft()
        # Before the listener is told: whatever it raises, the rest is told, too.
        if untold:
            self._timer = self._clock.call_later(0, self._tell)
        else:
            self._untold = None
        self._listener(state, status)

    def cancel(self) -> None:
        """Tell nothing more. Idempotent."""
        self._timer.cancel()
