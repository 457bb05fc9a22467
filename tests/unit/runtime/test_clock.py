"""Unit tests of proxyless.runtime.clock; the promises of a Clock are in contracts/test_clock.py."""

import asyncio
import gc
import weakref

import pytest

from proxyless.runtime.clock import IDLE_TIMER, LoopClock, finite_delay_s


class Owner:
    """Has a callback, so that keeping the callback keeps the owner alive."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done

    def on_timer(self) -> None:
        self.done.set_result(None)


async def test_time_is_the_loops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 42.0)
    assert LoopClock(loop).now_s() == 42.0


async def test_a_fired_timer_keeps_nothing_alive() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    owner = Owner(done)
    timer = LoopClock(loop).call_later(0, owner.on_timer)
    await done
    gone = weakref.ref(owner)
    gc.disable()  # Dropped at once, not when the collector finds a cycle.
    try:
        del owner
        assert gone() is None
    finally:
        gc.enable()
    assert not timer.pending


async def test_a_cancelled_timer_keeps_nothing_alive() -> None:
    loop = asyncio.get_running_loop()
    owner = Owner(loop.create_future())
    timer = LoopClock(loop).call_later(60, owner.on_timer)
    timer.cancel()
    gone = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert gone() is None
    finally:
        gc.enable()


async def test_what_a_callback_raises_goes_to_the_loop() -> None:
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
