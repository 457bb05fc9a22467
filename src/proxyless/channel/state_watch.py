"""StateWatch: notifies a policy of the states of a subchannel.

A policy is never called inside its own calls (`lb.api`), so each notification waits for the next
turn of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.runtime import Soon

if TYPE_CHECKING:
    from proxyless.base import State, Status
    from proxyless.lb.api import StateListener
    from proxyless.runtime import Clock


class StateWatch:
    """Calls one listener with every change, in order, one per turn of the loop."""

    __slots__ = ("_deliver_soon", "_listener", "_undelivered")

    def __init__(self, listener: StateListener, clock: Clock) -> None:
        self._listener = listener
        self._undelivered: tuple[tuple[State, Status], ...] = ()
        self._deliver_soon = Soon(clock, self._deliver)

    def notify(self, state: State, status: Status) -> None:
        if not self._undelivered:
            self._deliver_soon.request()
        self._undelivered += ((state, status),)

    def _deliver(self) -> None:
        (state, status), *_ = self._undelivered
        self._undelivered = self._undelivered[1:]
        # First: an exception in the listener must not lose the other changes.
        if self._undelivered:
            self._deliver_soon.request()
        self._listener(state, status)

    def cancel(self) -> None:
        """Idempotent."""
        self._deliver_soon.cancel()
