"""Unit tests of proxyless.xds.client.resource_timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.runtime import VirtualClock
from proxyless.xds.client.resource_timers import ResourceTimers

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.xds.client.cache import ResourceKey

X, Y = ("T", "x"), ("T", "y")


class TimerWorld:
    """Timers of 15 s, their clock and their stream."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.has_answered = True
        self.probes: list[Callable[[], None]] = []
        self.expired: list[ResourceKey] = []
        self.timers = ResourceTimers(self.clock, 15.0, self, self.expired.append)

    def probe(self, on_answer: Callable[[], None]) -> None:
        self.probes.append(on_answer)

    def answer_probes(self) -> None:
        for on_answer in self.probes:
            on_answer()


def test_timer_expires_at_once_on_a_stream_without_a_response() -> None:
    world = TimerWorld()
    world.has_answered = False
    world.timers.start([X, Y])
    world.clock.advance(14.9)
    assert world.expired == []
    world.clock.advance(0.1)
    assert (world.expired, world.probes) == ([X, Y], [])
    assert world.timers.left_s() == {}


def test_server_that_has_answered_before_is_probed_and_the_timer_expires_with_its_answer() -> None:
    world = TimerWorld()
    world.timers.start([X])
    world.clock.advance(15)
    assert (world.expired, len(world.probes)) == ([], 1)
    world.answer_probes()
    assert world.expired == [X]


def test_answer_of_a_probe_has_no_effect_after_the_stream_has_ended() -> None:
    world = TimerWorld()
    world.timers.start([X])
    world.clock.advance(15)
    world.timers.stop_all()
    world.timers.start([X])
    world.answer_probes()
    assert world.expired == []
    assert world.timers.left_s() == {X: 15.0}


def test_resource_that_has_come_does_not_expire() -> None:
    world = TimerWorld()
    world.has_answered = False
    world.timers.start([X, Y])
    world.timers.stop(X)
    world.timers.stop(X)
    world.clock.advance(15)
    assert world.expired == [Y]
    world.timers.start([X])
    world.timers.stop(X)
    assert world.clock.timers_pending == 0


def test_second_start_keeps_the_time_of_the_first() -> None:
    world = TimerWorld()
    world.timers.start([X])
    world.clock.advance(10)
    world.timers.start([X, Y])
    assert world.timers.left_s() == {X: 5.0, Y: 15.0}


def test_timers_have_fired_when_a_resource_has_expired() -> None:
    world = TimerWorld()
    world.has_answered = False
    world.timers.start([X])
    assert not world.timers.has_fired
    world.clock.advance(15)
    assert world.timers.has_fired
