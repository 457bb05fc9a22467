"""Unit tests of proxyless.runtime.daemon_threads."""

from threading import Event, Thread, current_thread

import pytest

from proxyless.runtime.daemon_threads import DaemonThreads
from tests.worlds.transports import PATIENCE_S


class Job:
    """Blocks until `may_end` is set."""

    def __init__(self) -> None:
        self.began = Event()
        self.may_end = Event()
        self.thread: Thread | None = None

    def __call__(self) -> None:
        self.thread = current_thread()
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)


def make_threads(threads_max: int = 8, linger_s: float = 1.0) -> DaemonThreads:
    return DaemonThreads("test", "tests", threads_max=threads_max, linger_s=linger_s)


def test_each_job_has_a_thread_up_to_the_limit() -> None:
    threads = make_threads(threads_max=3)
    jobs = [Job() for _ in range(5)]
    for job in jobs:
        threads.post(job)
    for job in jobs[:3]:
        assert job.began.wait(PATIENCE_S)
    assert threads.threads == 3
    assert not any(job.began.is_set() for job in jobs[3:])
    jobs[1].may_end.set()
    assert jobs[3].began.wait(PATIENCE_S)
    assert jobs[3].thread is jobs[1].thread
    for job in jobs:
        job.may_end.set()
    assert jobs[4].began.wait(PATIENCE_S)


def test_idle_threads_end() -> None:
    threads = make_threads(linger_s=0.0)
    job = Job()
    job.may_end.set()
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert job.thread is not None
    job.thread.join(PATIENCE_S)
    assert threads.threads == 0
    again = Job()
    threads.post(again)
    assert again.began.wait(PATIENCE_S)
    again.may_end.set()


def test_an_idle_thread_is_used_again() -> None:
    threads = make_threads(threads_max=1, linger_s=PATIENCE_S)
    first, second = Job(), Job()
    first.may_end.set()
    threads.post(first)
    assert first.began.wait(PATIENCE_S)
    threads.post(second)
    assert second.began.wait(PATIENCE_S)
    assert second.thread is first.thread
    assert second.thread is not None
    assert second.thread.daemon, "a job that hangs does not keep the process from ending"
    second.may_end.set()


def test_the_next_job_runs_after_one_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    threads = make_threads(threads_max=1)

    def broken() -> None:
        raise ValueError("what is this?")

    job = Job()
    threads.post(broken)
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    job.may_end.set()
    assert "exception in a thread for tests" in caplog.text


def test_the_next_job_runs_after_one_that_exits(caplog: pytest.LogCaptureFixture) -> None:
    threads = make_threads(threads_max=1)

    def leave() -> None:
        raise SystemExit

    job = Job()
    threads.post(leave)
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert threads.threads == 1
    job.may_end.set()
    assert "exception in a thread for tests" in caplog.text


def test_post_raises_only_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, refused, job = make_threads(), Job(), Job()
    job.may_end.set()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse_to_start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.post(refused)
    assert threads.threads == 0
    threads.post(job)
    assert job.began.wait(PATIENCE_S)
    assert not refused.began.is_set()


def test_a_job_waits_for_another_thread_if_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, first, second = make_threads(), Job(), Job()
    threads.post(first)
    assert first.began.wait(PATIENCE_S)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse_to_start)
        threads.post(second)
    assert threads.threads == 1
    first.may_end.set()
    assert second.began.wait(PATIENCE_S)
    assert second.thread is first.thread
    second.may_end.set()


def refuse_to_start(_: Thread) -> None:
    raise RuntimeError("can't start new thread")
