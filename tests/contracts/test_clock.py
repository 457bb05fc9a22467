"""What every Clock promises, asked of the virtual one and of real loops.

The real side waits for a few milliseconds. Nothing here depends on how late a busy machine is:
what must not have fired yet is a minute away.
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
# uvloop counts milliseconds.
RESOLUTION_S = 0.001


@dataclass(frozen=True)
class World:
    """A clock, and the way to let its time pass."""

    clock: Clock
    let_pass: Callable[[float], None]


@pytest.fixture(params=["virtual", "asyncio", "uvloop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "virtual":
        virtual = VirtualClock(now_s=1000.0)
        yield World(virtual, virtual.advance)
        return
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    with closing(factory()) as loop:
        # A moment more than asked for, or a timer of exactly that time may be missed.
        yield World(
            LoopClock(loop),
            lambda span_s: loop.run_until_complete(asyncio.sleep(span_s + 2 * RESOLUTION_S)),
        )


def test_time_moves_on_with_what_passes(world: World) -> None:
    start_s = world.clock.now_s()
    world.let_pass(STEP_S)
    assert world.clock.now_s() >= start_s + STEP_S - RESOLUTION_S


def test_what_takes_time_is_measured(world: World) -> None:
    start_s = world.clock.measured_s()
    world.let_pass(STEP_S)
    assert world.clock.measured_s() >= start_s + STEP_S - RESOLUTION_S


def test_time_is_measured_in_any_thread_and_never_goes_back(world: World) -> None:
    start_s, read_s = world.clock.measured_s(), list[float]()
    thread = Thread(target=lambda: read_s.append(world.clock.measured_s()))
    thread.start()
    thread.join()
    assert start_s <= read_s[0] <= world.clock.measured_s()


def test_a_timer_fires_once_and_not_before_its_time(world: World) -> None:
    start_s, fired_s = world.clock.now_s(), list[float]()
    world.clock.call_later(STEP_S, lambda: fired_s.append(world.clock.now_s()))
    world.let_pass(2 * STEP_S)
    world.let_pass(2 * STEP_S)
    assert len(fired_s) == 1
    assert fired_s[0] >= start_s + STEP_S - RESOLUTION_S


def test_a_timer_does_not_fire_while_its_time_has_not_come(world: World) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(FAR_S, lambda: fired.append("far"))
    world.let_pass(STEP_S)
    assert timer.pending
    timer.cancel()
    assert not fired


@pytest.mark.parametrize("delay_s", [0.0, -1.0])
def test_a_timer_without_delay_fires_soon_but_not_inside_the_call(
    world: World, delay_s: float
) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(delay_s, lambda: fired.append("now"))
    assert timer.pending
    assert not fired
    world.let_pass(0)
    assert fired == ["now"]


def test_timers_fire_by_time_whatever_the_order_of_creation(world: World) -> None:
    fired_due_s: list[float] = []
    for steps in (3, 1, 4, 2, 5):
        # Read again for each: a busy machine may stop here for longer than a step.
        due_s = world.clock.now_s() + steps * STEP_S
        world.clock.call_later(steps * STEP_S, functools.partial(fired_due_s.append, due_s))
    world.let_pass(5 * STEP_S)
    assert len(fired_due_s) == 5
    for earlier_s, later_s in pairwise(fired_due_s):
        assert earlier_s <= later_s + RESOLUTION_S


def test_timers_without_delay_fire_in_the_order_of_creation(world: World) -> None:
    fired: list[int] = []
    for n in range(20):
        world.clock.call_later(0, functools.partial(fired.append, n))
    world.let_pass(0)
    assert fired == list(range(20))


def test_a_pending_timer_says_when_it_is_due(world: World) -> None:
    before_s = world.clock.now_s()
    timer = world.clock.call_later(FAR_S, lambda: None)
    soon = world.clock.call_later(0, lambda: None)
    after_s = world.clock.now_s()
    assert before_s + FAR_S - RESOLUTION_S <= timer.due_s <= after_s + FAR_S + RESOLUTION_S
    assert soon.due_s <= after_s
    timer.cancel()
    soon.cancel()


def test_pending_ends_when_the_callback_starts(world: World) -> None:
    seen: list[bool] = []
    timer = world.clock.call_later(0, lambda: seen.append(timer.pending))
    seen.append(timer.pending)
    world.let_pass(0)
    seen.append(timer.pending)
    assert seen == [True, False, False]


def test_a_cancelled_timer_never_fires(world: World) -> None:
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
def test_a_timer_that_is_due_can_still_be_cancelled_by_the_one_before_it(
    world: World, delay_s: float
) -> None:
    fired: list[str] = []

    def first() -> None:
        fired.append("first")
        second.cancel()

    world.clock.call_later(delay_s, first)
    second = world.clock.call_later(delay_s, lambda: fired.append("second"))
    world.let_pass(delay_s + STEP_S)
    assert fired == ["first"]


def test_cancelling_after_firing_does_nothing(world: World) -> None:
    fired: list[str] = []
    timer = world.clock.call_later(0, lambda: fired.append("once"))
    world.let_pass(0)
    timer.cancel()
    world.let_pass(0)
    assert fired == ["once"]
    assert not timer.pending


def test_a_timer_may_cancel_itself_while_it_fires(world: World) -> None:
    fired: list[str] = []

    def callback() -> None:
        timer.cancel()
        fired.append("done")

    timer = world.clock.call_later(0, callback)
    world.let_pass(STEP_S)
    assert fired == ["done"]


def test_a_callback_may_start_the_next_timer(world: World) -> None:
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
def test_a_delay_that_is_not_finite_is_rejected(world: World, delay_s: float) -> None:
    with pytest.raises(ValueError, match=f"timer delay {delay_s} s is not valid"):
        world.clock.call_later(delay_s, lambda: None)


def test_the_idle_timer_is_a_timer_that_is_not_pending() -> None:
    IDLE_TIMER.cancel()
    assert not IDLE_TIMER.pending
