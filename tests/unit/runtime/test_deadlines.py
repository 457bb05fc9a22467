"""Unit tests of proxyless.runtime.deadlines."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.runtime.clock import Timer
from proxyless.runtime.deadlines import _CANCELS_PER_CHECK, DeadlineQueue
from proxyless.runtime.virtual import VirtualClock


class CountingClock(VirtualClock):
    """Counts the timers started on it."""

    __slots__ = ("started",)

    def __init__(self) -> None:
        super().__init__(now_s=100.0)
        self.started = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.started += 1
        return super().call_later(delay_s, callback)


class Deadline:
    """Owner of one deadline."""

    def __init__(self, queue: DeadlineQueue, callback: Callable[[], None]) -> None:
        self.on_deadline = callback
        self.deadline_id = 0
        self._queue = queue

    @property
    def pending(self) -> bool:
        return bool(self.deadline_id)

    def cancel(self) -> None:
        self._queue.cancel(self)


class Deadlines:
    """A queue on a clock, and the names and times of the deadlines that have fired."""

    def __init__(self) -> None:
        self.clock = CountingClock()
        self.queue = DeadlineQueue(self.clock)
        self.fired: list[tuple[str, float]] = []

    def add(self, name: str, in_s: float) -> Deadline:
        return self.call_at(self.clock.now_s() + in_s, lambda: self.note(name))

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Deadline:
        deadline = Deadline(self.queue, callback)
        self.queue.expire(deadline, when_s)
        return deadline

    def note(self, name: str) -> None:
        self.fired.append((name, self.clock.now_s()))


@pytest.fixture
def deadlines() -> Deadlines:
    return Deadlines()


def test_deadlines_fire_at_their_time_in_order(deadlines: Deadlines) -> None:
    for name, in_s in [("b", 2.0), ("a", 1.0), ("b2", 2.0), ("c", 3.5)]:
        deadlines.add(name, in_s)
    deadlines.clock.advance(5)
    assert deadlines.fired == [("a", 101.0), ("b", 102.0), ("b2", 102.0), ("c", 103.5)]


def test_a_deadline_that_has_passed_fires_soon_but_not_inside_the_call(
    deadlines: Deadlines,
) -> None:
    deadlines.add("late", -5)
    assert not deadlines.fired
    deadlines.clock.advance(0)
    assert deadlines.fired == [("late", 100.0)]


def test_a_cancelled_deadline_does_not_fire(deadlines: Deadlines) -> None:
    deadline = deadlines.add("a", 1)
    pending = [deadline.pending]
    for _ in range(2):
        deadline.cancel()
        pending.append(deadline.pending)
    deadlines.clock.advance(2)
    assert not deadlines.fired
    assert pending == [True, False, False]


def test_cancelling_after_firing_does_nothing(deadlines: Deadlines) -> None:
    deadline = deadlines.add("a", 1)
    deadlines.add("b", 2)
    deadlines.clock.advance(1)
    assert not deadline.pending
    deadline.cancel()
    assert len(deadlines.queue) == 1


def test_a_due_deadline_can_be_cancelled_by_the_one_before_it(deadlines: Deadlines) -> None:
    def first() -> None:
        deadlines.note("first")
        second.cancel()

    deadlines.call_at(101, first)
    second = deadlines.add("second", 1)
    deadlines.clock.advance(1)
    assert deadlines.fired == [("first", 101.0)]


def test_one_timer_serves_all_and_is_not_moved_for_later_deadlines(deadlines: Deadlines) -> None:
    for n in range(1000):
        deadlines.add("x", 1 + n)
    assert (deadlines.clock.started, deadlines.clock.timers_pending) == (1, 1)


def test_an_earlier_deadline_moves_the_timer_forward(deadlines: Deadlines) -> None:
    deadlines.add("late", 10)
    deadlines.add("early", 1)
    assert deadlines.clock.timers_pending == 1
    deadlines.clock.advance(1)
    assert deadlines.fired == [("early", 101.0)]


def test_a_cancelled_head_leaves_the_timer_and_the_next_still_fires_in_time(
    deadlines: Deadlines,
) -> None:
    head = deadlines.add("head", 1)
    deadlines.add("next", 3)
    head.cancel()
    assert deadlines.clock.started == 1
    deadlines.clock.advance(5)
    assert deadlines.fired == [("next", 103.0)]


def test_an_empty_queue_lets_its_timer_fire_once_and_starts_no_other(deadlines: Deadlines) -> None:
    deadlines.add("a", 1).cancel()
    deadlines.clock.advance(1)
    assert (deadlines.clock.timers_pending, deadlines.clock.started) == (0, 1)


def test_a_queue_works_again_after_it_was_empty(deadlines: Deadlines) -> None:
    deadlines.add("a", 1).cancel()
    deadlines.clock.advance(1)
    deadlines.add("b", 1)
    deadlines.clock.advance(1)
    assert deadlines.fired == [("b", 102.0)]


def test_cancelled_deadlines_take_no_lasting_memory(deadlines: Deadlines) -> None:
    for _ in range(10_000):
        deadlines.add("x", 60).cancel()
        assert len(deadlines.queue._heap) <= 128
    assert len(deadlines.queue) == 0
    assert deadlines.clock.timers_pending <= 1


def test_replaced_deadlines_take_no_lasting_memory(deadlines: Deadlines) -> None:
    # After this single one, every second cancel is a replacement.
    deadlines.add("x", 60).cancel()
    for _ in range(10_000):
        deadline = deadlines.add("x", 60)
        deadlines.queue.expire(deadline, deadlines.clock.now_s() + 30)
        deadline.cancel()
        assert len(deadlines.queue._heap) <= 192
    assert len(deadlines.queue) == 0


def test_cancelling_many_at_once_shrinks_the_heap(deadlines: Deadlines) -> None:
    for deadline in [deadlines.add("x", 60) for _ in range(10_000)]:
        deadline.cancel()
    assert len(deadlines.queue._heap) <= 128
    deadlines.clock.advance(60)
    assert (len(deadlines.queue._heap), deadlines.clock.timers_pending) == (0, 0)


def test_a_rebuild_that_leaves_nothing_stops_the_timer(deadlines: Deadlines) -> None:
    for deadline in [deadlines.add("x", 60) for _ in range(_CANCELS_PER_CHECK)]:
        deadline.cancel()
    assert (len(deadlines.queue._heap), deadlines.clock.timers_pending) == (0, 0)
    deadlines.add("next", 70)
    deadlines.clock.advance(70)
    assert deadlines.fired == [("next", 170.0)]


def test_live_deadlines_survive_the_rebuild(deadlines: Deadlines) -> None:
    kept = [deadlines.add(f"kept {n}", 50 - n) for n in range(5)]
    for _ in range(1000):
        deadlines.add("x", 10).cancel()
    assert len(deadlines.queue) == len(kept)
    deadlines.clock.advance(50)
    assert [name for name, _ in deadlines.fired] == [f"kept {n}" for n in (4, 3, 2, 1, 0)]


def test_a_rebuild_while_firing_loses_and_repeats_nothing(deadlines: Deadlines) -> None:
    def cancel_others() -> None:
        for other in others:
            other.cancel()

    deadlines.call_at(101, cancel_others)
    deadlines.add("kept", 1)
    others = [deadlines.add("x", 1) for _ in range(1000)]
    deadlines.add("later", 2)
    deadlines.clock.advance(1)
    assert len(deadlines.queue) == 1
    deadlines.clock.advance(1)
    assert deadlines.fired == [("kept", 101.0), ("later", 102.0)]
    assert (len(deadlines.queue), deadlines.queue.cancelled) == (0, 0)


def test_the_timer_is_not_started_again_for_a_cancelled_deadline(deadlines: Deadlines) -> None:
    deadlines.add("a", 1)
    deadlines.add("cancelled", 2).cancel()
    deadlines.add("b", 9)
    deadlines.clock.advance(9)
    assert deadlines.fired == [("a", 101.0), ("b", 109.0)]
    assert deadlines.clock.started == 2


def test_a_callback_may_add_deadlines(deadlines: Deadlines) -> None:
    def first() -> None:
        deadlines.add("soon", 1)
        deadlines.add("at once", 0)

    deadlines.call_at(101, first)
    deadlines.clock.advance(5)
    assert deadlines.fired == [("at once", 101.0), ("soon", 102.0)]
    # One for each time that something fired.
    assert (deadlines.clock.timers_pending, deadlines.clock.started) == (0, 3)


def test_callback_that_always_adds_a_due_deadline_does_not_block_other_timers(
    deadlines: Deadlines,
) -> None:
    turns: list[str] = []

    def again() -> None:
        deadlines.call_at(100, again)

    def stop() -> None:
        turns.append("other timer")
        deadlines.queue.cancel_all()

    deadlines.call_at(100, again)
    deadlines.clock.call_later(0, stop)
    deadlines.clock.advance(1)
    assert turns == ["other timer"]


def test_a_callback_that_raises_does_not_lose_the_others(deadlines: Deadlines) -> None:
    def broken() -> None:
        raise KeyError("broken")

    deadlines.call_at(101, broken)
    deadlines.add("same", 1)
    deadlines.add("later", 2)
    with pytest.raises(KeyError, match="broken"):
        deadlines.clock.advance(2)
    deadlines.clock.advance(2)
    assert deadlines.fired == [("same", 101.0), ("later", 102.0)]


def test_cancel_all_leaves_no_deadline_and_no_timer(deadlines: Deadlines) -> None:
    left = [deadlines.add("x", n) for n in range(1, 4)]
    left[1].cancel()
    deadlines.queue.cancel_all()
    assert not any(deadline.pending for deadline in left)
    assert (len(deadlines.queue), deadlines.clock.timers_pending) == (0, 0)
    left[0].cancel()
    assert len(deadlines.queue) == 0
    deadlines.add("new", 1)
    deadlines.clock.advance(1)
    assert deadlines.fired == [("new", 101.0)]


def test_cancel_all_by_a_callback_stops_the_ones_that_are_due(deadlines: Deadlines) -> None:
    deadlines.call_at(101, deadlines.queue.cancel_all)
    deadlines.add("x", 1)
    deadlines.clock.advance(2)
    assert not deadlines.fired
    assert deadlines.clock.timers_pending == 0


ADD = st.tuples(st.just("add"), st.integers(min_value=-1, max_value=9))
CANCEL = st.tuples(st.just("cancel"), st.integers(min_value=0, max_value=400))
ADVANCE = st.tuples(st.just("advance"), st.integers(min_value=0, max_value=3))


@given(st.lists(ADD | ADD | CANCEL | ADVANCE, max_size=400))
def test_any_history_fires_the_same_as_a_sorted_list(history: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    handles: list[Deadline] = []
    live: dict[int, float] = {}  # The model: number and time of pending deadlines.
    expected: list[int] = []
    for verb, number in history:
        if verb == "add":
            live[len(handles)] = deadlines.clock.now_s() + number
            handles.append(deadlines.add(str(len(handles)), number))
        elif verb == "cancel" and handles:
            live.pop(number % len(handles), None)
            handles[number % len(handles)].cancel()
        elif verb == "advance":
            deadlines.clock.advance(number)
            due = [n for n, when_s in live.items() if when_s <= deadlines.clock.now_s()]
            expected += sorted(due, key=live.__getitem__)
            live = {n: when_s for n, when_s in live.items() if n not in due}
        assert [int(name) for name, _ in deadlines.fired] == expected
        assert len(deadlines.queue) == len(live)
        assert [n for n, handle in enumerate(handles) if handle.pending] == sorted(live)
        assert (1 if live else 0) <= deadlines.clock.timers_pending <= 1
