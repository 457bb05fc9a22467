"""Unit tests of proxyless.front.sync.background, with real threads."""

import _thread
import asyncio
import os
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Barrier, Event, Thread, current_thread

import pytest
import uvloop

from proxyless.front.sync import background as module
from proxyless.front.sync.background import Background, CallbackThread, shared_background

PATIENCE_S = 20.0


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.stop()
    assert not background.is_usable
    background._thread.join(PATIENCE_S)


def test_actions_run_in_order_in_the_thread_of_the_loop(background: Background) -> None:
    seen: list[object] = []
    for number in range(100):
        background.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    name = background.call(lambda: current_thread().name)
    assert seen == list(range(100))
    assert name == "proxyless"


def test_the_loop_is_woken_once_for_all_actions_posted_while_it_is_busy(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: list[None] = []
    wake = background._wake

    def note_and_wake() -> None:
        wakes.append(None)
        wake()

    monkeypatch.setattr(background, "_wake", note_and_wake)
    is_busy, may_go_on = Event(), Event()

    def work() -> None:
        is_busy.set()
        assert may_go_on.wait(PATIENCE_S)

    background.post(work)
    assert is_busy.wait(PATIENCE_S)
    done = [Event() for _ in range(50)]
    for each in done:
        background.post(each.set)
    may_go_on.set()
    assert all(each.wait(PATIENCE_S) for each in done)
    assert len(wakes) == 2


def test_nothing_is_lost_when_many_threads_post(background: Background) -> None:
    threads_max, posts = 8, 500
    counts: SimpleQueue[int] = SimpleQueue()
    barrier = Barrier(threads_max)

    def work() -> None:
        barrier.wait(PATIENCE_S)
        for number in range(posts):
            background.post(lambda number=number: counts.put(number))  # type: ignore[misc]

    threads = [Thread(target=work) for _ in range(threads_max)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    got = [counts.get(timeout=PATIENCE_S) for _ in range(threads_max * posts)]
    assert sorted(got) == sorted(list(range(posts)) * threads_max)


def test_the_next_action_runs_after_one_that_raises(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("broken action")

    is_done = Event()
    background.post(broken)
    background.post(is_done.set)
    assert is_done.wait(PATIENCE_S)
    assert "broken action" in caplog.text


def test_call_raises_the_exception_of_its_function(background: Background) -> None:
    with pytest.raises(ZeroDivisionError):
        background.call(lambda: 1 // 0)
    assert background.call(lambda: 7) == 7


def test_call_raises_if_the_loop_does_not_run() -> None:
    background = Background()
    background.stop()
    with pytest.raises(RuntimeError, match="does not run in this process any more"):
        background.call(lambda: None)


def test_call_raises_in_the_thread_of_the_loop(background: Background) -> None:
    answers: SimpleQueue[str] = SimpleQueue()

    def call_on_loop() -> None:
        try:
            background.call(lambda: None)
        except RuntimeError as error:
            answers.put(str(error))

    background.post(call_on_loop)
    assert "would never return" in answers.get(timeout=PATIENCE_S)


def test_an_interrupt_during_the_wake_up_does_not_lose_it(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake_up = background._wake_up
    is_interrupted = False

    def wake_up_after_an_interrupt() -> None:
        nonlocal is_interrupted
        if not is_interrupted:
            is_interrupted = True
            raise KeyboardInterrupt
        wake_up()

    is_done = Event()
    with monkeypatch.context() as patch:
        patch.setattr(background, "_wake_up", wake_up_after_an_interrupt)
        with pytest.raises(KeyboardInterrupt):
            background.post(is_done.set)
    assert is_done.wait(PATIENCE_S)


def test_post_does_nothing_after_the_end(background: Background) -> None:
    posted: list[str] = []
    background.stop()
    background.post(lambda: posted.append("ran"))
    background.stop()
    assert posted == []


def test_all_threads_share_one_background() -> None:
    found: SimpleQueue[Background] = SimpleQueue()
    threads = [Thread(target=lambda: found.put(shared_background())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert len({found.get(timeout=PATIENCE_S) for _ in threads}) == 1


def test_a_background_that_is_not_usable_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_current", None)
    first = shared_background()
    first.stop()
    second = shared_background()
    assert second is not first
    second.stop()


# Exit


def test_tasks_have_ended_when_the_loop_is_closed() -> None:
    background, tasks = Background(), list[asyncio.Task[None]]()

    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    def start() -> None:
        tasks.append(asyncio.get_running_loop().create_task(wait_for_ever()))

    background.call(start)
    background.stop()
    background._thread.join(PATIENCE_S)
    assert tasks[0].cancelled()


def test_finalization_wakes_a_loop_that_still_runs(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake, woken = module._FinalWake(), Event()
    monkeypatch.setattr(module, "_final_wake", wake)
    monkeypatch.setattr(module, "_do_nothing", woken.set)
    background.call(background.wake_at_finalization)
    assert not woken.is_set()
    wake.__del__()  # As at finalization.
    assert woken.wait(PATIENCE_S)
    [(reader, writer)] = wake._pipes
    background.call(lambda: background._loop.remove_reader(reader))
    wake._pipes.clear()
    os.close(reader)
    os.close(writer)


def test_a_background_that_is_started_at_exit_is_woken_at_finalization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wake = module._FinalWake()
    monkeypatch.setattr(module, "_current", None)
    monkeypatch.setattr(module, "_final_wake", wake)
    background = shared_background()
    background.call(lambda: None)
    [(reader, writer)] = wake._pipes
    background.call(lambda: background._loop.remove_reader(reader))
    wake._pipes.clear()
    os.close(reader)
    os.close(writer)
    background.stop()


# Callbacks


def test_callbacks_run_in_order_in_a_thread_of_their_own() -> None:
    callbacks, seen = CallbackThread(), SimpleQueue[object]()
    for number in range(100):
        callbacks.post(lambda number=number: seen.put(number))  # type: ignore[misc]
    assert [seen.get(timeout=PATIENCE_S) for _ in range(100)] == list(range(100))
    callbacks.post(lambda: seen.put(current_thread()))
    thread = seen.get(timeout=PATIENCE_S)
    assert isinstance(thread, Thread)
    assert thread is not current_thread()
    assert thread.daemon


def test_a_thread_without_callbacks_ends_and_another_one_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LINGER_S", 0.001)
    callbacks, seen = CallbackThread(), SimpleQueue[Thread]()
    callbacks.post(lambda: seen.put(current_thread()))
    first = seen.get(timeout=PATIENCE_S)
    first.join(PATIENCE_S)
    assert not first.is_alive()
    callbacks.post(lambda: seen.put(current_thread()))
    assert seen.get(timeout=PATIENCE_S) is not first


def test_a_callback_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("broken callback")

    callbacks, is_done = CallbackThread(), Event()
    callbacks.post(broken)
    callbacks.post(is_done.set)
    assert is_done.wait(PATIENCE_S)
    assert "broken callback" in caplog.text


def refuse_to_start(_thread: Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_callbacks_run_after_no_thread_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks, seen = CallbackThread(), SimpleQueue[int]()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse_to_start)
        callbacks.post(lambda: seen.put(1))
    callbacks.post(lambda: seen.put(2))
    assert [seen.get(timeout=20), seen.get(timeout=20)] == [1, 2]


def test_loop_is_closed_when_its_thread_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.new_event_loop()
    monkeypatch.setattr("proxyless.front.sync.background._new_loop", lambda: loop)
    monkeypatch.setattr(Thread, "start", refuse_to_start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Background()
    assert loop.is_closed()


@pytest.mark.parametrize(
    ("start", "is_uvloop"),
    [(_thread.start_new_thread, True), (lambda function, args: None, False)],
    ids=["the system's", "of gevent"],
)
def test_loop_is_a_uvloop_unless_threads_are_patched(
    monkeypatch: pytest.MonkeyPatch, start: object, is_uvloop: bool
) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", start)
    loop = module._new_loop()
    loop.close()
    assert isinstance(loop, uvloop.Loop) is is_uvloop
