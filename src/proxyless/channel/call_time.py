"""CallTime: start, timeout and deadline of one RPC.

An RPC without a timeout gets a `CallTime` when it has to wait.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.channel.loop_stack import LoopStack
    from proxyless.runtime.deadlines import Expiring


class CallTime:
    """Adds the deadline of its call to the loop's queue, if there is a timeout."""

    __slots__ = ("_clock", "deadline_s", "has_waited", "limit_note", "started_s", "timeout_s")

    def __init__(
        self,
        call: Expiring,
        stack: LoopStack,
        timeout_s: float | None = None,
        started_s: float | None = None,
    ) -> None:
        """Raises TypeError if the timeout is no number."""
        self._clock = stack.clock
        self.started_s = stack.clock.now_s() if started_s is None else started_s
        # The RPC has waited, so less than its timeout remains.
        self.has_waited = False
        # Origin of a timeout that is not the application's, for error texts.
        self.limit_note = ""
        # No timeout unless it is set below.
        self.timeout_s: float | None = None
        self.deadline_s = inf
        if timeout_s is not None and timeout_s != inf:
            # `max` in this order turns NaN, which would break the queue's order, into 0.
            self.timeout_s = max(0.0, timeout_s)
            self.deadline_s = self.started_s + self.timeout_s
            stack.deadlines.expire(call, self.deadline_s)

    @property
    def is_over(self) -> bool:
        return self.timeout_s is not None and self._clock.now_s() >= self.deadline_s

    def remaining_s(self) -> float | None:
        """None without a timeout."""
        if self.timeout_s is None:
            return None
        return max(0.0, self.deadline_s - self._clock.now_s())
