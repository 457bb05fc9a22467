"""When has nobody needed the channel for long enough?"""

from math import inf

from proxyless.channel.idle import Idleness
from proxyless.runtime import VirtualClock


def make(timeout_s: float) -> tuple[VirtualClock, Idleness, list[float]]:
    clock = VirtualClock()
    idled: list[float] = []
    return clock, Idleness(clock, timeout_s, lambda: idled.append(clock.now_s())), idled


def test_the_time_counts_from_the_start_if_nobody_comes() -> None:
    clock, idleness, idled = make(10.0)
    idleness.start()
    clock.advance(100.0)
    assert idled == [10.0]


def test_the_time_counts_from_the_end_of_the_last_activity() -> None:
    clock, idleness, idled = make(10.0)
    idleness.start()
    clock.advance(3.0)
    idleness.on_active()
    clock.advance(50.0)
    idleness.on_inactive()
    clock.advance(100.0)
    assert idled == [63.0]


def test_activity_touches_no_timer() -> None:
    clock, idleness, _ = make(10.0)
    idleness.start()
    for _ in range(1000):
        idleness.on_active()
        idleness.on_inactive()
    assert clock.timers_pending == 1


def test_never_means_never() -> None:
    clock, idleness, idled = make(inf)
    idleness.start()
    assert clock.timers_pending == 0
    clock.advance(1e6)
    assert not idled


def test_stopped_means_no_timer() -> None:
    clock, idleness, idled = make(10.0)
    idleness.start()
    idleness.stop()
    clock.advance(100.0)
    assert not idled
    assert clock.timers_pending == 0


def test_a_rounding_error_does_not_keep_it_busy() -> None:
    """From 4.7 s to 9.7 s it is a little less than 5 s, to a float."""
    assert 9.7 - 4.7 < 5.0
    clock, idleness, idled = make(5.0)
    idleness.start()
    clock.advance(4.7)
    idleness.on_active()
    idleness.on_inactive()
    clock.advance(10.0)
    assert idled == [9.7]


def test_callback_runs_once_when_the_last_rpc_has_ended() -> None:
    _, idleness, _ = make(10.0)
    called: list[str] = []
    idleness.call_when_inactive(lambda: called.append("at once"))
    idleness.on_active()
    idleness.call_when_inactive(lambda: called.append("later"))
    assert called == ["at once"]
    for _ in range(2):
        idleness.on_inactive()
    assert called == ["at once", "later"]
