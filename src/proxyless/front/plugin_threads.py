"""Thread pool for the plugins of call credentials, which may block.

They do not run in the loop's executor, which belongs to the application and may be full.

There is one pool per process, with at most `PLUGIN_THREADS_MAX` threads. The child of a fork starts
with an empty pool.
"""

from __future__ import annotations

from typing import Final

from proxyless.runtime.daemon_threads import DaemonThreads
from proxyless.runtime.forks import call_after_fork_in_child

PLUGIN_THREADS_MAX: Final = 64


def new_plugin_threads() -> DaemonThreads:
    purpose = "plugins of call credentials"
    return DaemonThreads("proxyless-plugin", purpose, threads_max=PLUGIN_THREADS_MAX)


_shared = new_plugin_threads()


def plugin_threads() -> DaemonThreads:
    """The thread pool of this process."""
    return _shared


def _after_fork_in_child() -> None:
    global _shared  # noqa: PLW0603 - there is one per process
    _shared = new_plugin_threads()


call_after_fork_in_child(_after_fork_in_child)
