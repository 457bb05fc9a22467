"""DaemonThreads: thread pool for calls that block and may never return.

Its threads are daemons, so a call that hangs does not keep the process from ending, as it would in
the executor of a loop. They start on demand and end when they are idle.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGER: Final = logging.getLogger("proxyless.channel")
# How long an idle thread waits for work before it ends.
_LINGER_S: Final = 1.0


class DaemonThreads:
    """Pool of at most `threads_max` daemon threads. `purpose` is for the log."""

    def __init__(
        self, name: str, purpose: str, *, threads_max: int, linger_s: float = _LINGER_S
    ) -> None:
        # Fixed at construction.
        self._name = name
        self._purpose = purpose
        self._threads_max = threads_max
        self._linger_s = linger_s
        # Changed by every thread that holds the condition.
        self._changed = Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self.threads = 0
        self._idle = 0

    def post(self, job: Callable[[], None]) -> None:
        """Run this in any thread, as soon as one is free. Does not block.

        Raises RuntimeError if there is no thread and none can be started.
        """
        # Held while a thread starts, so that `threads` counts only those that have started.
        with self._changed:
            self._jobs.append(job)
            if len(self._jobs) <= self._idle:
                self._changed.notify()
            elif self.threads < self._threads_max:
                self._start()

    def _start(self) -> None:
        try:
            Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:  # The limit of threads is reached, or the interpreter exits.
            _LOGGER.warning("no thread could be started for %s", self._purpose)
            if not self.threads:
                self._jobs.pop()
                raise
        else:
            self.threads += 1

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException:  # SystemExit too: it would end the thread.
                _LOGGER.exception("exception in a thread for %s", self._purpose)
            # A job holds its caller; an idle thread must not.
            del job

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if not self._jobs:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs, self._linger_s)
                self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self.threads -= 1
            return None
