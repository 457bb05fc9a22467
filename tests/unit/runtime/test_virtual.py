"""Unit tests of proxyless.runtime.virtual; see also contracts/test_clock.py."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.runtime.virtual import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def fired() -> list[str]:
    return []


def note(clock: VirtualClock, fired: list[str], name: str) -> Callable[[], None]:
    return lambda: fired.append(f"{name}@{clock.now_s()}")


def test_callback_runs_at_its_time(clock: VirtualClock, fired: list[str]) -> None:
    clock.call_later(1, note(clock, fired, "a"))
    clock.advance(5)
    assert fired == ["a@1.0"]
    assert clock.now_s() == 5


def test_equal_times_fire_in_the_order_of_creation(clock: VirtualClock, fired: list[str]) -> None:
    clock.call_later(2, note(clock, fired, "a"))
    clock.advance(1)
    clock.call_later(1, note(clock, fired, "b"))
    clock.call_later(1, note(clock, fired, "c"))
    clock.advance(1)
    assert fired == ["a@2.0", "b@2.0", "c@2.0"]


def test_timers_started_within_the_span_fire_in_it(clock: VirtualClock, fired: list[str]) -> None:
    def first() -> None:
        note(clock, fired, "first")()
        clock.call_later(1, note(clock, fired, "inside"))
        clock.call_later(3, note(clock, fired, "outside"))

    clock.call_later(1, first)
    clock.call_later(2.5, note(clock, fired, "last"))
    clock.advance(3)
    assert fired == ["first@1.0", "inside@2.0", "last@2.5"]
    assert clock.timers_pending == 1


def test_steps_add_up_exactly(clock: VirtualClock, fired: list[str]) -> None:
    clock.call_later(1, note(clock, fired, "a"))
    for _ in range(9):
        clock.advance(0.1)
    assert not fired
    clock.advance(0.1)
    assert fired == ["a@1.0"]


def test_pending_timers_are_counted(clock: VirtualClock) -> None:
    timers = [clock.call_later(n, lambda: None) for n in (1, 2, 3)]
    counts = [clock.timers_pending]
    clock.advance(1)
    counts.append(clock.timers_pending)
    for timer in timers:  # One of them has fired.
        timer.cancel()
        timer.cancel()
        counts.append(clock.timers_pending)
    assert counts == [3, 2, 2, 1, 0]


def test_advance_to_next_fires_all_of_the_next_time_only(
    clock: VirtualClock, fired: list[str]
) -> None:
    clock.call_later(1, note(clock, fired, "cancelled")).cancel()
    clock.call_later(2, note(clock, fired, "a"))
    clock.call_later(2, note(clock, fired, "b"))
    clock.call_later(3, note(clock, fired, "c"))
    assert clock.advance_to_next()
    assert fired == ["a@2.0", "b@2.0"]
    assert clock.advance_to_next()
    assert not clock.advance_to_next()
    assert clock.now_s() == 3


def test_a_callback_that_raises_stops_the_clock_at_its_time(
    clock: VirtualClock, fired: list[str]
) -> None:
    def broken() -> None:
        raise KeyError("broken")

    clock.call_later(1, broken)
    clock.call_later(1, note(clock, fired, "same"))
    clock.call_later(2, note(clock, fired, "later"))
    with pytest.raises(KeyError, match="broken"):
        clock.advance(5)
    assert (clock.now_s(), clock.timers_pending, fired) == (1, 2, [])
    clock.advance(1)
    assert fired == ["same@1.0", "later@2.0"]
    assert clock.timers_pending == 0


def test_the_clock_does_not_go_back(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="cannot advance by -1 s: wanted 0 s or more"):
        clock.advance(-1)


def test_a_callback_cannot_advance_the_clock(clock: VirtualClock) -> None:
    clock.call_later(1, lambda: clock.advance(1))
    with pytest.raises(RuntimeError, match="cannot be advanced by a callback"):
        clock.advance(1)
    clock.advance(1)
    assert clock.now_s() == 2


@pytest.fixture
def ten_per_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyless.runtime.virtual.FIRED_PER_INSTANT_MAX", 10)


@pytest.mark.usefixtures("ten_per_instant")
def test_timer_that_restarts_itself_without_delay_raises(clock: VirtualClock) -> None:
    def again() -> None:
        clock.call_later(0, again)

    clock.call_later(1, again)
    with pytest.raises(RuntimeError, match=r"10 timers fired at 1\.0 s: does one restart itself"):
        clock.advance(1)


@pytest.mark.usefixtures("ten_per_instant")
def test_many_timers_at_different_times_do_not_raise(clock: VirtualClock) -> None:
    for n in range(100):
        clock.call_later(n / 100, lambda: None)
    clock.advance(1)
    assert clock.timers_pending == 0


@given(st.lists(st.integers(min_value=0, max_value=5), max_size=20))
def test_firing_order_is_a_stable_sort_by_time(delays_s: list[int]) -> None:
    clock, fired = VirtualClock(), list[int]()
    for n, delay_s in enumerate(delays_s):
        clock.call_later(delay_s, partial(fired.append, n))
    clock.advance(5)
    assert fired == sorted(range(len(delays_s)), key=delays_s.__getitem__)
