"""Unit tests of proxyless.channel.watch."""

import pytest

from proxyless.base import OK, State, Status
from proxyless.channel.watch import Watch
from proxyless.runtime import VirtualClock

STATES = (State.CONNECTING, State.READY, State.IDLE)


class Heard:
    """A listener that remembers, and may raise."""

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


def test_every_change_is_told_in_order_and_soon(clock: VirtualClock) -> None:
    heard = Heard()
    watch = Watch(heard, clock)
    for _ in range(2):
        for state in STATES:
            watch.post(state, OK)
        assert heard.states == []
        clock.advance(0)
        assert tuple(heard.states) == STATES
        assert clock.timers_pending == 0
        heard.states.clear()


def test_a_listener_that_raises_is_told_the_rest(clock: VirtualClock) -> None:
    heard = Heard()
    heard.error = ValueError("broken")
    watch = Watch(heard, clock)
    watch.post(State.READY, OK)
    watch.post(State.IDLE, OK)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            clock.advance(0)
    assert heard.states == [State.READY, State.IDLE]
    assert clock.timers_pending == 0


def test_what_is_posted_by_the_listener_is_told_after_the_rest(clock: VirtualClock) -> None:
    states: list[State] = []

    def listener(state: State, status: Status) -> None:
        states.append(state)
        if state is State.CONNECTING:
            watch.post(State.SHUTDOWN, OK)

    watch = Watch(listener, clock)
    for state in STATES:
        watch.post(state, OK)
    clock.advance(0)
    assert states == [*STATES, State.SHUTDOWN]


def test_after_cancel_nothing_is_told(clock: VirtualClock) -> None:
    heard = Heard()
    watch = Watch(heard, clock)
    watch.post(State.READY, OK)
    watch.cancel()
    watch.cancel()
    clock.advance(1)
    assert heard.states == []
    assert clock.timers_pending == 0
