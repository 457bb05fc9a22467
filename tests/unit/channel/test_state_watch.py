"""Unit tests of proxyless.channel.state_watch."""

import pytest

from proxyless.base import OK, State, Status
from proxyless.channel.state_watch import StateWatch
from proxyless.runtime import VirtualClock

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


def test_changes_are_delivered_in_order_in_the_next_turn(clock: VirtualClock) -> None:
    recorder = RecordingListener()
    watch = StateWatch(recorder, clock)
    for _ in range(2):
        for state in STATES:
            watch.notify(state, OK)
        assert recorder.states == []
        clock.advance(0)
        assert tuple(recorder.states) == STATES
        assert clock.timers_pending == 0
        recorder.states.clear()


def test_later_changes_are_delivered_when_the_listener_raises(clock: VirtualClock) -> None:
    recorder = RecordingListener()
    recorder.error = ValueError("broken")
    watch = StateWatch(recorder, clock)
    watch.notify(State.READY, OK)
    watch.notify(State.IDLE, OK)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            clock.advance(0)
    assert recorder.states == [State.READY, State.IDLE]
    assert clock.timers_pending == 0


def test_change_made_by_the_listener_is_delivered_last(clock: VirtualClock) -> None:
    states: list[State] = []

    def listener(state: State, status: Status) -> None:
        states.append(state)
        if state is State.CONNECTING:
            watch.notify(State.SHUTDOWN, OK)

    watch = StateWatch(listener, clock)
    for state in STATES:
        watch.notify(state, OK)
    clock.advance(0)
    assert states == [*STATES, State.SHUTDOWN]


def test_nothing_is_delivered_after_cancel(clock: VirtualClock) -> None:
    recorder = RecordingListener()
    watch = StateWatch(recorder, clock)
    watch.notify(State.READY, OK)
    watch.cancel()
    watch.cancel()
    clock.advance(1)
    assert recorder.states == []
    assert clock.timers_pending == 0
