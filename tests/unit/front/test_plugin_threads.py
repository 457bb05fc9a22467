"""Unit tests of proxyless.front.plugin_threads; the pool is in runtime/test_daemon_threads.py."""

import subprocess
import sys

# In a process of its own: a forked child of pytest that fails would be a second pytest.
FORK = """
import os, threading
from proxyless.front.plugin_threads import plugin_threads

began, may_end = threading.Event(), threading.Event()
def job():
    began.set()
    may_end.wait(20)
plugin_threads().post(job)
assert began.wait(20)
with plugin_threads()._changed:  # As another thread may hold it when the process is forked.
    child = os.fork()
    if child == 0:
        again = threading.Event()
        plugin_threads().post(again.set)
        os._exit(0 if again.wait(20) else 1)
may_end.set()
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_fork_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=50)
