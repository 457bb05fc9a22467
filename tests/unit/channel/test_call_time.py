"""Unit tests of proxyless.channel.call_time."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Any, cast

import pytest

from proxyless.channel.call_time import CallTime
from proxyless.runtime import DeadlineQueue, VirtualClock

if TYPE_CHECKING:
    from proxyless.channel import LoopStack


class Loop:
    """Clock and deadlines of an event loop, and an RPC that records when its deadline passed."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.deadlines = DeadlineQueue(self.clock)
        self.deadline_id = 0
        self.passed_s: list[float] = []

    def on_deadline(self) -> None:
        self.passed_s.append(self.clock.now_s())

    def time(self, *timeout: Any) -> CallTime:  # noqa: ANN401 - one test has a string
        return CallTime(self, cast("LoopStack", self), *timeout)


def test_deadline_passes_after_the_timeout() -> None:
    loop = Loop()
    time = loop.time(5.0)
    loop.clock.advance(2.0)
    assert (time.timeout_s, time.remaining_s(), time.is_over) == (5.0, 3.0, False)
    loop.clock.advance(4.0)
    assert (loop.passed_s, time.remaining_s(), time.is_over) == ([5.0], 0.0, True)


@pytest.mark.parametrize("timeout_s", [None, 10.0])
def test_timeout_counts_from_the_start_when_it_is_set_later(timeout_s: float | None) -> None:
    loop = Loop()
    time = loop.time(timeout_s)
    loop.clock.advance(3.0)
    time.shorten(loop, loop.deadlines, 5.0, "why")
    assert (time.timeout_s, time.remaining_s(), time.limit_note) == (5.0, 2.0, "why")
    loop.clock.advance(20.0)
    assert loop.passed_s == [5.0]


@pytest.mark.parametrize("timeout_s", [None, inf])
def test_call_has_no_deadline_without_a_finite_timeout(timeout_s: float | None) -> None:
    loop = Loop()
    time = loop.time(timeout_s)
    assert (time.timeout_s, time.remaining_s(), time.is_over) == (None, None, False)
    assert len(loop.deadlines) == 0


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, nan])
def test_deadline_passes_soon_when_the_timeout_is_not_above_zero(timeout_s: float) -> None:
    loop = Loop()
    assert loop.time(timeout_s).timeout_s == 0.0
    loop.clock.advance(0.0)
    assert loop.passed_s == [0.0]


def test_time_is_not_made_when_the_timeout_is_no_number() -> None:
    loop = Loop()
    with pytest.raises(TypeError):
        loop.time("soon")
    assert len(loop.deadlines) == 0
