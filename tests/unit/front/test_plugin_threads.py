"""Do plugins get threads, and no more than there may be?"""

import subprocess
import sys
from threading import Event, Thread, current_thread

import pytest

from proxyless.front.plugin_threads import PluginThreads
from tests.transport_world import PATIENCE_S


class Job:
    """Blocks until it is told not to."""

    def __init__(self) -> None:
        self.began = Event()
        self.go_on = Event()
        self.thread: Thread | None = None

    def __call__(self) -> None:
        self.thread = current_thread()
        self.began.set()
        assert self.go_on.wait(PATIENCE_S)


def test_each_job_has_a_thread_as_long_as_there_may_be_more() -> None:
    threads = PluginThreads(threads_max=3)
    jobs = [Job() for _ in range(5)]
    for job in jobs:
        threads.post(job)
    for job in jobs[:3]:
        assert job.began.wait(PATIENCE_S)
    assert threads.threads == 3
    assert not any(job.began.is_set() for job in jobs[3:])
    jobs[1].go_on.set()
    assert jobs[3].began.wait(PATIENCE_S)
    assert jobs[3].thread is jobs[1].thread
    for job in jobs:
        job.go_on.set()
    assert jobs[4].began.wait(PATIENCE_S)


def test_threads_end_when_there_is_nothing_to_do() -> None:
    threads = PluginThreads(linger_s=0.0)
    job = Job()
    job.go_on.set()
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert job.thread is not None
    job.thread.join(PATIENCE_S)
    assert threads.threads == 0
    again = Job()
    threads.post(again)
    assert again.began.wait(PATIENCE_S)
    again.go_on.set()


def test_an_idle_thread_is_used_again() -> None:
    threads = PluginThreads(threads_max=1, linger_s=PATIENCE_S)
    first, second = Job(), Job()
    first.go_on.set()
    threads.post(first)
    assert first.began.wait(PATIENCE_S)
    threads.post(second)
    assert second.began.wait(PATIENCE_S)
    assert second.thread is first.thread
    assert second.thread is not None
    assert second.thread.daemon, "a plugin that hangs does not keep the process from ending"
    second.go_on.set()


def test_a_job_that_raises_does_not_harm_the_next(caplog: pytest.LogCaptureFixture) -> None:
    threads = PluginThreads(threads_max=1)

    def broken() -> None:
        raise ValueError("what is this?")

    job = Job()
    threads.post(broken)
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    job.go_on.set()
    assert "exception in a plugin of call credentials" in caplog.text


def test_a_job_that_exits_does_not_harm_the_next(caplog: pytest.LogCaptureFixture) -> None:
    threads = PluginThreads(threads_max=1)

    def leave() -> None:
        raise SystemExit

    job = Job()
    threads.post(leave)
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert threads.threads == 1
    job.go_on.set()
    assert "exception in a plugin of call credentials" in caplog.text


def test_without_a_thread_a_job_is_refused_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, refused, job = PluginThreads(), Job(), Job()
    job.go_on.set()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse_to_start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.post(refused)
    assert threads.threads == 0
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert not refused.began.is_set()


def test_a_job_that_gets_no_thread_of_its_own_waits_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, first, second = PluginThreads(), Job(), Job()
    threads.post(first)
    assert first.began.wait(PATIENCE_S)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse_to_start)
        threads.post(second)
    assert threads.threads == 1
    first.go_on.set()
    assert second.began.wait(PATIENCE_S)
    assert second.thread is first.thread
    second.go_on.set()


def refuse_to_start(_: Thread) -> None:
    raise RuntimeError("can't start new thread")


# In a process of its own: a child of pytest's that went wrong would be a second pytest.
FORK = """
import os, threading
from proxyless.front.plugin_threads import plugin_threads

began, go_on = threading.Event(), threading.Event()
def job():
    began.set()
    go_on.wait(20)
plugin_threads().post(job)
assert began.wait(20)
with plugin_threads()._news:  # As another thread may hold it when the process is forked.
    child = os.fork()
    if child == 0:
        again = threading.Event()
        plugin_threads().post(again.set)
        os._exit(0 if again.wait(20) else 1)
go_on.set()
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_fork_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=50)
