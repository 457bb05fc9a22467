"""Unit tests of proxyless.runtime.clock; see also contracts/test_clock.py."""

import asyncio
import gc
import time  # noqa: TID251 - what a real loop is compared with
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
import uvloop

from proxyless.runtime.clock import IDLE_TIMER, LoopClock, _LoopTimer, finite_delay_s


async def test_time_is_the_loops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 42.0)
    assert LoopClock(loop).now_s() == 42.0
    assert LoopClock(loop).measured_s() == 42.0


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_measured_time_has_the_resolution_of_the_machine_on_a_real_loop(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with closing(factory()) as loop:
        assert LoopClock(loop).measured_s is time.monotonic


@pytest.mark.parametrize("parent", [asyncio.SelectorEventLoop, uvloop.Loop])
def test_measured_time_is_the_loops_time_on_a_virtual_loop(
    parent: type[asyncio.AbstractEventLoop],
) -> None:
    class MadeUp(parent):  # type: ignore[valid-type,misc]
        def time(self) -> float:
            return 42.0

    with closing(MadeUp()) as loop:
        assert LoopClock(loop).measured_s() == 42.0


async def test_timers_without_delay_keep_their_order_while_time_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 42.0)
    fired: list[int] = []
    for n in range(20):
        LoopClock(loop).call_later(0, partial(fired.append, n))
    done = loop.create_future()
    LoopClock(loop).call_later(0, partial(done.set_result, None))
    await done
    assert fired == list(range(20))


class WatchedTimer(_LoopTimer):
    """A timer with weak references."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector: objects outside of cycles are freed at once."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_a_fired_timer_is_not_part_of_a_cycle() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    timer = WatchedTimer(loop, 0, partial(done.set_result, None))
    await done
    gone = weakref.ref(timer)
    del timer
    assert gone() is None


@pytest.mark.usefixtures("no_collector")
async def test_a_cancelled_timer_is_kept_neither_by_the_loop_nor_by_a_cycle() -> None:
    timer = WatchedTimer(asyncio.get_running_loop(), 60, lambda: None)
    timer.cancel()
    gone = weakref.ref(timer)
    del timer
    assert gone() is None


async def test_exception_of_a_callback_goes_to_the_loop() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.set_exception_handler(lambda loop, context: done.set_result(context["exception"]))
    error = KeyError("x")

    def callback() -> None:
        raise error

    timer = LoopClock(loop).call_later(0, callback)
    assert await done is error
    assert not timer.pending


@pytest.mark.parametrize(("delay_s", "wanted_s"), [(1.5, 1.5), (0.0, 0.0), (-3.0, 0.0)])
def test_a_negative_delay_counts_as_none(delay_s: float, wanted_s: float) -> None:
    assert finite_delay_s(delay_s) == wanted_s


def test_the_idle_timer_can_be_cancelled_and_is_never_pending() -> None:
    IDLE_TIMER.cancel()
    assert not IDLE_TIMER.pending
