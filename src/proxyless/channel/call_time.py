"""CallTime: start, timeout and deadline of one RPC.

An RPC without a timeout gets a `CallTime` when it has to wait.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.channel.loop_stack import LoopStack
    from proxyless.runtime.deadlines import DeadlineQueue, Expiring


class CallTime:
    """Adds the deadline of its call to the loop's queue, if there is a timeout."""

    __slots__ = ("_clock", "deadline_s", "has_waited", "limit_note", "started_s", "timeout_s")

    def __init__(
        self,
        call: Expiring,
        stack: LoopStack,
        timeout_s: float | None = None,
        limit_note: str = "",
    ) -> None:
        """Raises TypeError if the timeout is not a number.

        `limit_note` is the origin of a timeout that is not the application's, for error texts.
        """
        self._clock = stack.clock
        self.started_s = started_s = stack.clock.now_s()
        # The RPC has waited, so less than its timeout remains.
        self.has_waited = False
        self.limit_note = limit_note
        if timeout_s is None or timeout_s == inf:
            self.timeout_s: float | None = None
            self.deadline_s = inf
        else:
            # NaN becomes zero: it would break the order of the queue.
            self.timeout_s = timeout_s = timeout_s if timeout_s > 0 else 0.0
            self.deadline_s = deadline_s = started_s + timeout_s
            stack.deadlines.expire(call, deadline_s)

    def shorten(
        self, call: Expiring, deadlines: DeadlineQueue, timeout_s: float, limit_note: str
    ) -> None:
        """Replace the timeout by a shorter one, which counts from the start of the RPC, too."""
        self.limit_note = limit_note
        self.timeout_s = timeout_s
        self.deadline_s = deadline_s = self.started_s + timeout_s
        deadlines.expire(call, deadline_s)

    @property
    def is_over(self) -> bool:
        return self.timeout_s is not None and self._clock.now_s() >= self.deadline_s

    def remaining_s(self) -> float | None:
        """None without a timeout."""
        if self.timeout_s is None:
            return None
        return max(0.0, self.deadline_s - self._clock.now_s())
