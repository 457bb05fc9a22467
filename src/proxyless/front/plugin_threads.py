"""Thread pool for the plugins of call credentials, which may block.

They do not run in the loop's executor: a plugin may make RPCs, whose names are resolved in that
executor, so plugins that fill it would deadlock.

There is one pool per process, with at most `PLUGIN_THREADS_MAX` threads, which end when they are
idle. The child of a fork starts with an empty pool.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

from proxyless.runtime.forks import call_after_fork_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGER: Final = logging.getLogger("proxyless.channel")
PLUGIN_THREADS_MAX: Final = 64
# How long an idle thread waits for work before it ends.
_LINGER_S: Final = 1.0


class PluginThreads:
    """Thread pool of daemons: a plugin that hangs does not keep the process from ending."""

    def __init__(self, threads_max: int = PLUGIN_THREADS_MAX, linger_s: float = _LINGER_S) -> None:
        # Fixed at construction.
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
            Thread(target=self._run, name="proxyless-plugin", daemon=True).start()
        except RuntimeError:  # The limit of threads is reached, or the interpreter exits.
            _LOGGER.warning("no thread could be started for call credentials")
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
                _LOGGER.exception("exception in a plugin of call credentials")

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


_shared = PluginThreads()


def plugin_threads() -> PluginThreads:
    """The thread pool of this process."""
    return _shared


def _after_fork_in_child() -> None:
    global _shared  # noqa: PLW0603 - there is one per process
    _shared = PluginThreads()


call_after_fork_in_child(_after_fork_in_child)
