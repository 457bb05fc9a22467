"""Unit tests of proxyless.runtime.offload."""

import asyncio
import threading

import pytest

from proxyless.runtime.daemon_threads import DaemonThreads
from proxyless.runtime.offload import run_in_thread, thread_offload


async def test_work_runs_in_a_thread_and_the_callback_on_the_loop() -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, bool]] = loop.create_future()
    offload = thread_offload("a name", "tests")

    def on_result(name: str) -> None:
        done.set_result((name, threading.current_thread() is threading.main_thread()))

    offload(lambda: threading.current_thread().name, on_result)
    assert await done == ("a name", True)


async def test_work_is_done_in_order() -> None:
    loop = asyncio.get_running_loop()
    done, results = loop.create_future(), list[int]()
    offload = thread_offload("a name", "tests")
    for number in range(50):
        offload(lambda number=number: number, results.append)  # type: ignore[misc]
    offload(lambda: None, done.set_result)
    await done
    assert results == list(range(50))


async def test_work_is_done_at_once_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_self: object, _job: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(DaemonThreads, "post", refuse)
    done = asyncio.get_running_loop().create_future()
    thread_offload("a name", "tests")(lambda: 7, done.set_result)
    assert await done == 7


def test_result_is_dropped_when_the_loop_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    go_on, ended = threading.Event(), list[str]()

    async def start() -> threading.Thread:
        loop = asyncio.get_running_loop()
        running: asyncio.Future[threading.Thread] = loop.create_future()

        def work() -> None:
            loop.call_soon_threadsafe(running.set_result, threading.current_thread())
            go_on.wait()

        offload = thread_offload("a name", "tests")
        offload(work, lambda _: pytest.fail("called"))
        offload(lambda: ended.append("next"), lambda _: pytest.fail("called"))
        return await running

    thread = asyncio.run(start())
    go_on.set()
    thread.join(20)
    assert not thread.is_alive()
    assert ended == ["next"]
    assert caplog.messages == []


async def test_exception_of_a_thread_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_in_thread(fail, "test")


async def test_result_is_dropped_when_the_future_is_cancelled() -> None:
    go_on = threading.Event()
    future = run_in_thread(go_on.wait, "test")
    future.cancel()
    go_on.set()
    assert await run_in_thread(lambda: 7, "test") == 7
