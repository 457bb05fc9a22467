"""Unit tests of proxyless.channel.state_watch."""

from itertools import pairwise

import pytest

from proxyless.base import OK, State, Status
from proxyless.channel.state_watch import (
    DELIVER_UNITS,
    DELIVERED_PER_STEP,
    StateNotifications,
    StateWatch,
)
from proxyless.runtime import VirtualClock, WorkQueue
from proxyless.runtime.work_queue import UNITS_PER_TURN

STATES = (State.CONNECTING, State.READY, State.IDLE)


class RecordingListener:
    """A listener that records states, and may raise."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.error: Exception | None = None

    def __call__(self, state: State, status: Status) -> None:
        self.states.append(state)
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def notifications(clock: VirtualClock) -> StateNotifications:
    return StateNotifications(clock)


def test_changes_are_delivered_in_order_in_the_next_turn(
    clock: VirtualClock, notifications: StateNotifications
) -> None:
    recorder = RecordingListener()
    watch = StateWatch(recorder, notifications, {})
    for _ in range(2):
        for state in STATES:
            watch.notify(state, OK)
        assert recorder.states == []
        clock.advance(0)
        assert tuple(recorder.states) == STATES
        assert clock.timers_pending == 0
        recorder.states.clear()


def test_later_changes_are_delivered_when_the_listener_raises(
    clock: VirtualClock, notifications: StateNotifications
) -> None:
    recorder, other = RecordingListener(), RecordingListener()
    recorder.error = ValueError("broken")
    watch = StateWatch(recorder, notifications, {})
    watch.notify(State.READY, OK)
    watch.notify(State.IDLE, OK)
    StateWatch(other, notifications, {}).notify(State.READY, OK)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            clock.advance(0)
    assert recorder.states == [State.READY, State.IDLE]
    assert other.states == [State.READY]
    clock.advance(0)
    assert clock.timers_pending == 0


def test_change_made_by_the_listener_is_delivered_last(
    clock: VirtualClock, notifications: StateNotifications
) -> None:
    states: list[State] = []

    def listener(state: State, status: Status) -> None:
        states.append(state)
        if state is State.CONNECTING:
            watch.notify(State.SHUTDOWN, OK)

    watch = StateWatch(listener, notifications, {})
    for state in STATES:
        watch.notify(state, OK)
    clock.advance(0)
    assert states == [*STATES, State.SHUTDOWN]


def test_nothing_is_delivered_after_cancel(
    clock: VirtualClock, notifications: StateNotifications
) -> None:
    recorder = RecordingListener()
    siblings: dict[StateWatch, None] = {}
    watch = StateWatch(recorder, notifications, siblings)
    siblings[watch] = None
    watch.notify(State.READY, OK)
    watch.cancel()
    watch.cancel()
    clock.advance(1)
    assert recorder.states == []
    assert not siblings
    assert clock.timers_pending == 0


def test_changes_of_many_watches_are_delivered_in_slices(clock: VirtualClock) -> None:
    notifications = StateNotifications(clock, WorkQueue(clock))
    recorder = RecordingListener()
    per_turn = (UNITS_PER_TURN // DELIVER_UNITS + 1) * DELIVERED_PER_STEP
    count = 3 * per_turn
    for _ in range(count):
        StateWatch(recorder, notifications, {}).notify(State.READY, OK)
    delivered: list[int] = []

    def on_turn() -> None:
        delivered.append(len(recorder.states))
        if delivered[-1] < count:
            clock.call_later(0, on_turn)

    on_turn()
    clock.advance(0)
    assert len(recorder.states) == count
    slices = [after - before for before, after in pairwise(delivered)]
    assert max(slices) <= per_turn
