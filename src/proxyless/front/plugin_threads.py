"""Thread pool for the plugins of call credentials, which may block.

They do not run in the loop's executor, which belongs to the application and may be full.

There is one pool per process, with at most `PLUGIN_THREADS_MAX` threads. The child of a fork starts
with an empty pool.
"""

from __future__ import annotations

from typing import Final

from proxyless.runtime.daemon_threads import DaemonThreads
from proxyless.runtime.forks import one_per_process

PLUGIN_THREADS_MAX: Final = 64


def new_plugin_threads() -> DaemonThreads:
    purpose = "plugins of call credentials"
    return DaemonThreads("proxyless-plugin", purpose, threads_max=PLUGIN_THREADS_MAX)


plugin_threads: Final = one_per_process(new_plugin_threads)
