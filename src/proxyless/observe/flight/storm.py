"""Detection of a failure storm: many RPCs fail within a short time (pure)."""

from __future__ import annotations

from collections import deque
from typing import Final

# In the window at least this many RPCs fail, and this share of those that end.
WINDOW_S: Final = 10.0
FAILURES_MIN: Final = 50
SHARE_MIN: Final = 0.5


class StormDetector:
    """Counts of one channel. `on_failure` is called for each failed RPC that is recorded."""

    def __init__(self) -> None:
        # Time of each failure, and the number of successes before it. The oldest leave first.
        self._failures: deque[tuple[float, int]] = deque(maxlen=FAILURES_MIN)

    def on_failure(self, now_s: float, succeeded: int) -> bool:
        """Whether this failure completes a storm. `succeeded` RPCs have ended with OK so far."""
        self._failures.append((now_s, succeeded))
        if len(self._failures) < FAILURES_MIN:
            return False
        began_s, succeeded_before = self._failures[0]
        if now_s - began_s > WINDOW_S:
            return False
        ended = FAILURES_MIN + succeeded - succeeded_before
        return ended * SHARE_MIN <= FAILURES_MIN
