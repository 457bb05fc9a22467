"""How do callbacks that cause each other run one at a time?

A policy that reports to its parent while the parent is updating it must not re-enter the parent.
Both go through one serializer: what is scheduled while a callback runs waits for its turn.

For one loop, not for threads.
"""

from collections import deque
from collections.abc import Callable


class Serializer:
    """Runs callbacks in the order given, never one inside another."""

    __slots__ = ("_is_running", "_queue")

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._is_running = False

    def run(self, callback: Callable[[], None]) -> None:
        """Run now, with all that it schedules in turn; or later, if called by one that runs.

        A callback that raises does not keep the others from running: the outermost `run` raises
        when all are done, an ExceptionGroup if there were several. Only what is not an
        `Exception` (KeyboardInterrupt) stops at once; the rest then runs first on the next `run`.
        """
        self._queue.append(callback)
        if self._is_running:
            return
        self._is_running = True
        try:
            errors = self._drain()
        finally:
            self._is_running = False
        if len(errors) > 1:
            raise ExceptionGroup("several callbacks raised", errors)
        if errors:
            raise errors[0]

    def _drain(self) -> list[Exception]:
        errors: list[Exception] = []
        while self._queue:
            try:
                self._queue.popleft()()
            except Exception as error:
                errors.append(error)
        return errors
