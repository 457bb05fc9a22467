"""Where may the plugins of call credentials block?

In threads of their own. A plugin may make RPCs, and these need what the loop does in its executor
(names are resolved there): plugins that filled the executor would wait for each other.

There is one pool per process. It has a thread only while there is work, and no more than
`PLUGIN_THREADS_MAX`; what is beyond waits. The child of a fork begins with an empty one.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGER: Final = logging.getLogger("proxyless.channel")
PLUGIN_THREADS_MAX: Final = 64
# How long a thread waits for more work before it ends.
_LINGER_S: Final = 1.0


class PluginThreads:
    """Runs what may block. Driven by whoever posts, in any thread.

    The threads are daemons: a plugin that hangs does not keep the process from ending.
    """

    def __init__(self, threads_max: int = PLUGIN_THREADS_MAX, linger_s: float = _LINGER_S) -> None:
        # Fixed at construction.
        self._threads_max = threads_max
        self._linger_s = linger_s
        # Changed by every thread, with the condition.
        self._news = Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self.threads = 0
        self._idle = 0

    def post(self, job: Callable[[], None]) -> None:
        """Run this as soon as a thread is free. Waits for no job.

        RuntimeError if there is no thread, and none can be started.
        """
        # Held while a thread starts, so that nobody counts on one that does not.
        with self._news:
            self._jobs.append(job)
            if len(self._jobs) <= self._idle:
                self._news.notify()
            elif self.threads < self._threads_max:
                self._start()

    def _start(self) -> None:
        try:
            Thread(target=self._run, name="proxyless-plugin", daemon=True).start()
        except RuntimeError:  # The machine has no more, or the process is about to end.
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
            except BaseException:  # SystemExit, too: it would end the thread, and not the process.
                _LOGGER.exception("exception in a plugin of call credentials")

    def _next(self) -> Callable[[], None] | None:
        with self._news:
            if not self._jobs:
                self._idle += 1
                self._news.wait_for(lambda: self._jobs, self._linger_s)
                self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self.threads -= 1
            return None


_shared = PluginThreads()


def plugin_threads() -> PluginThreads:
    """The pool of this process."""
    return _shared


def _after_fork_in_child() -> None:
    global _shared  # noqa: PLW0603 - there is one per process
    _shared = PluginThreads()


os.register_at_fork(after_in_child=_after_fork_in_child)
