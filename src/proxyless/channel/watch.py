"""How does a policy hear of changes, if they happen inside its own calls?

What a policy calls does not call back before it returns (`lb.api`), so that no policy has to expect
to be called while it is at it. What there is to say meanwhile is said soon after.
"""

from __future__ import annotations

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
        # Almost always empty, and there are thousands of us: a deque is never small.
        self._untold: tuple[tuple[State, Status], ...] = ()
        # Pending while there is something untold.
        self._timer: Timer = IDLE_TIMER

    def post(self, state: State, status: Status) -> None:
        self._untold += ((state, status),)
        if not self._timer.pending:
            self._timer = self._clock.call_later(0, self._tell)

    def _tell(self) -> None:
        (state, status), *rest = self._untold
        self._untold = tuple(rest)
        # Before the listener is told: whatever it raises, the rest is told, too.
        self._timer = self._clock.call_later(0, self._tell) if rest else IDLE_TIMER
        self._listener(state, status)

    def cancel(self) -> None:
        """Tell nothing more. Idempotent."""
        self._timer.cancel()
