"""Unit tests of proxyless.front.sync.wakeups, on the loops that may be the background loop."""

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from threading import Thread

import pytest
import uvloop

from proxyless.front.sync.wakeups import make_wake_up

VARIABLE = ContextVar("variable", default="none")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    made: asyncio.AbstractEventLoop = request.param()
    yield made
    made.close()


@pytest.fixture(params=["eventfd", "without"])
def wakes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an eventfd if the system has it, and without."""
    if request.param == "without":
        monkeypatch.delattr(os, "eventfd", raising=False)


def run_in_thread(function: Callable[[], object]) -> None:
    thread = Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.usefixtures("wakes")
def test_wake_up_of_another_thread_calls_on_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    wake_up = make_wake_up(loop, loop.stop)
    for _ in range(3):
        run_in_thread(wake_up)
        loop.run_forever()


@pytest.mark.usefixtures("wakes")
def test_wake_up_during_the_call_calls_again(loop: asyncio.AbstractEventLoop) -> None:
    calls: list[None] = []

    def on_wake() -> None:
        calls.append(None)
        if len(calls) == 1:
            run_in_thread(wake_up)
        else:
            loop.stop()

    wake_up = make_wake_up(loop, on_wake)
    wake_up()
    loop.run_forever()
    assert len(calls) == 2


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has it")
def test_wake_ups_before_the_loop_runs_are_one_call(loop: asyncio.AbstractEventLoop) -> None:
    calls: list[None] = []
    wake_up = make_wake_up(loop, lambda: calls.append(None))
    wake_up()
    wake_up()
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert len(calls) == 1


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has it")
def test_calls_have_no_context_of_the_thread_that_made_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    seen: list[str] = []

    def on_wake() -> None:
        seen.append(VARIABLE.get())
        loop.stop()

    token = VARIABLE.set("maker")
    make_wake_up(loop, on_wake)()
    VARIABLE.reset(token)
    loop.run_forever()
    assert seen == ["none"]


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has it")
def test_wake_up_after_the_loop_is_closed_does_nothing() -> None:
    loop = asyncio.new_event_loop()
    wake_up = make_wake_up(loop, loop.stop)
    loop.close()
    wake_up()


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has it")
def test_descriptor_is_closed_with_the_last_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    create = os.eventfd

    def create_and_note(*arguments: int) -> int:
        made.append(create(*arguments))
        return made[-1]

    monkeypatch.setattr(os, "eventfd", create_and_note)
    loop = asyncio.new_event_loop()
    wake_up = make_wake_up(loop, loop.stop)
    loop.close()
    assert os.fstat(made[0])
    del wake_up
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


def test_wake_up_works_when_there_is_no_descriptor_left(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "eventfd", refuse, raising=False)
    run_in_thread(make_wake_up(loop, loop.stop))
    loop.run_forever()
