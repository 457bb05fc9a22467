"""Idle timeout of a channel.

Specs: A62 (IDLE_TIMEOUT), A62-15 to A62-18.

Every RPC may begin and end a period of activity, so neither touches the timer. When the timer
fires before the timeout has passed since the last RPC ended, it is started for the remaining time.
"""

from collections.abc import Callable, Collection
from math import inf

from proxyless.runtime import IDLE_TIMER, Clock, Timer
from proxyless.runtime.clock import ROUNDING_S


class Idleness:
    """Calls `on_idle` after `timeout_s` without RPCs."""

    def __init__(
        self,
        clock: Clock,
        timeout_s: float,
        calls: Collection[object],
        on_idle: Callable[[], None],
    ) -> None:
        # Fixed at construction.
        self._clock = clock
        self._timeout_s = timeout_s
        # The RPCs under way. Changed by the channel.
        self._calls = calls
        self._on_idle = on_idle
        # When the last RPC ended.
        self._inactive_since_s = 0.0
        self._when_inactive: list[Callable[[], None]] = []
        self._timer: Timer = IDLE_TIMER

    def start(self) -> None:
        """Start the timeout: the channel leaves IDLE."""
        self._inactive_since_s = self._clock.now_s()
        if self._timeout_s < inf and not self._timer.pending:
            self._timer = self._clock.call_later(self._timeout_s, self._on_timer)

    def stop(self) -> None:
        self._timer.cancel()

    def on_inactive(self) -> None:
        """The last of the current RPCs has ended."""
        self._inactive_since_s = self._clock.now_s()
        if self._when_inactive:
            callbacks, self._when_inactive = self._when_inactive, []
            for callback in callbacks:
                callback()

    def call_when_inactive(self, callback: Callable[[], None]) -> None:
        """Call back once, now or when no RPC is under way."""
        if self._calls:
            self._when_inactive.append(callback)
        else:
            callback()

    def _on_timer(self) -> None:
        inactive_s = self._clock.now_s() - self._inactive_since_s
        if self._calls:
            inactive_s = 0.0
        left_s = self._timeout_s - inactive_s
        if left_s > ROUNDING_S:
            self._timer = self._clock.call_later(left_s, self._on_timer)
        else:
            self._on_idle()
