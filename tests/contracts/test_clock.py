"""Contract of Clock, checked for the virtual clock and for real event loops.

Tests of real loops wait for a few milliseconds. No result depends on how late a busy machine is:
timers that must not have fired yet are due in a minute.
"""

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from threading import Thread

import pytest
import uvloop

from proxyless.runtime import IDLE_TIMER, Clock, LoopClock, VirtualClock

STEP_S = 0.004
FAR_S = 60.0
# uvloop has a resolution of 1 ms.
RESOLUTION_S = 0.001


@dataclass(frozen=True)
class ClockWorld:
    """A clock, and a function that lets its time pass."""

    clock: Clock
    let_pass: Callable[[float], None]


@pytest.fixture(params=["virtual", "asyncio", "uvloop"])
def world(request: pytest.FixtureRequest) -> Iterator[ClockWorld]:
    if request.param == "virtual":
        virtual = VirtualClock(now_s=1000.0)
        yield ClockWorld(virtual, virtual.advance)
        return
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    with closing(factory()) as loop:
        # A little longer than requested, so that a timer of exactly that delay fires.
        yield ClockWorld(
            LoopClock(loop),
            lambda span_s: loop.run_until_complete(asyncio.sleep(span_s + 2 * RESOLUTION_S)),
        )


def test_now_s_advances_with_time(world: ClockWorld) -> None:
    start_s = world.clock.now_s()
    world.let_pass(STEP_S)
    assert world.clock.now_s() >= start_s + STEP_S - RESOLUTION_S


def test_measured_s_advances_with_time(world: ClockWorld) -> None:
    start_s = world.clock.measured_s()
    world.let_pass(STEP_S)
    assert world.clock.measured_s() >= start_s + STEP_S - RESOLUTION_S


def test_measured_s_is_monotonic_in_any_thread(world: ClockWorld) -> None:
    start_s, read_s = world.clock.measured_s(), list[float]()
    thread = Thread(target=lambda: read_s.append(world.clock.measured_s()))
    thread.start()
    thread.join()
    assert start_s <= read_s[0] <= world.clock.measured_s()


def test_timer_fires_once_and_not_before_its_delay(world: ClockWorld) -> None:
    start_s, fired_s = world.clock.now_s(), list[float]()
    world.clock.call_later(STEP_S, lambda: fired_s.append(world.clock.now_s()))
    world.let_pass(2 * STEP_S)
    world.let_pass(2 * STEP_S)
    assert len(fired_s) == 1
    assert fired_s[0] >= start_s + STEP_S - RESOLUTION_S


def test_timer_is_pending_until_its_delay_has_passed(world: ClockWorld) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(FAR_S, lambda: fired.append("far"))
    world.let_pass(STEP_S)
    assert timer.pending
    timer.cancel()
    assert not fired


@pytest.mark.parametrize("delay_s", [0.0, -1.0])
def test_timer_without_delay_fires_after_the_call_and_not_inside_it(
    world: ClockWorld, delay_s: float
) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(delay_s, lambda: fired.append("now"))
    assert timer.pending
    assert not fired
    world.let_pass(0)
    assert fired == ["now"]


def test_timers_fire_in_order_of_their_due_times(world: ClockWorld) -> None:
    fired_due_s: list[float] = []
    for steps in (3, 1, 4, 2, 5):
        # Read again for each timer: a busy machine may pause here for longer than a step.
        due_s = world.clock.now_s() + steps * STEP_S
        world.clock.call_later(steps * STEP_S, functools.partial(fired_due_s.append, due_s))
    world.let_pass(5 * STEP_S)
    assert len(fired_due_s) == 5
    for earlier_s, later_s in pairwise(fired_due_s):
        assert earlier_s <= later_s + RESOLUTION_S


def test_timers_without_delay_fire_in_order_of_creation(world: ClockWorld) -> None:
    fired: list[int] = []
    for n in range(20):
        world.clock.call_later(0, functools.partial(fired.append, n))
    world.let_pass(0)
    assert fired == list(range(20))


def test_pending_timer_has_its_due_time(world: ClockWorld) -> None:
    before_s = world.clock.now_s()
    timer = world.clock.call_later(FAR_S, lambda: None)
    soon = world.clock.call_later(0, lambda: None)
    after_s = world.clock.now_s()
    assert before_s + FAR_S - RESOLUTION_S <= timer.due_s <= after_s + FAR_S + RESOLUTION_S
    assert soon.due_s <= after_s
    timer.cancel()
    soon.cancel()


def test_pending_ends_when_the_callback_starts(world: ClockWorld) -> None:
    seen: list[bool] = []
    timer = world.clock.call_later(0, lambda: seen.append(timer.pending))
    seen.append(timer.pending)
    world.let_pass(0)
    seen.append(timer.pending)
    assert seen == [True, False, False]


def test_a_cancelled_timer_never_fires(world: ClockWorld) -> None:
    fired: list[str] = []
    timers = [
        world.clock.call_later(delay_s, lambda: fired.append("cancelled"))
        for delay_s in (0, STEP_S)
    ]
    for timer in timers:
        timer.cancel()
        timer.cancel()
    assert not any(timer.pending for timer in timers)
    world.let_pass(2 * STEP_S)
    assert not fired


@pytest.mark.parametrize("delay_s", [0, STEP_S])
def test_due_timer_can_be_cancelled_by_the_one_that_fires_before_it(
    world: ClockWorld, delay_s: float
) -> None:
    fired: list[str] = []

    def first() -> None:
        fired.append("first")
        second.cancel()

    world.clock.call_later(delay_s, first)
    second = world.clock.call_later(delay_s, lambda: fired.append("second"))
    world.let_pass(delay_s + STEP_S)
    assert fired == ["first"]


def test_cancel_after_firing_has_no_effect(world: ClockWorld) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(0, lambda: fired.append("once"))
    world.let_pass(0)
    timer.cancel()
    world.let_pass(0)
    assert fired == ["once"]
    assert not timer.pending


def test_a_timer_may_cancel_itself_while_it_fires(world: ClockWorld) -> None:
    fired: list[str] = []

    def callback() -> None:
        timer.cancel()
        fired.append("done")

    timer = world.clock.call_later(0, callback)
    world.let_pass(STEP_S)
    assert fired == ["done"]


def test_callback_may_start_another_timer(world: ClockWorld) -> None:
    fired_s: list[float] = []

    def tick() -> None:
        fired_s.append(world.clock.now_s())
        if len(fired_s) < 3:
            world.clock.call_later(STEP_S, tick)

    world.clock.call_later(STEP_S, tick)
    world.let_pass(STEP_S)
    while len(fired_s) < 3:
        world.let_pass(STEP_S)
    assert fired_s[2] >= fired_s[0] + 2 * (STEP_S - RESOLUTION_S)


@pytest.mark.parametrize("delay_s", [float("inf"), float("nan")])
def test_a_delay_that_is_not_finite_is_rejected(world: ClockWorld, delay_s: float) -> None:
    with pytest.raises(ValueError, match=f"timer delay {delay_s} s is not valid"):
        world.clock.call_later(delay_s, lambda: None)


def test_idle_timer_is_not_pending() -> None:
    IDLE_TIMER.cancel()
    assert not IDLE_TIMER.pending
