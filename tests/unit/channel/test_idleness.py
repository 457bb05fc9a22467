"""Unit tests of proxyless.channel.idleness."""

from collections.abc import Callable
from math import inf

from proxyless.channel.idleness import Idleness
from proxyless.runtime import VirtualClock


class Channel(Idleness):
    """Idleness, with the RPCs whose starts and ends a channel notes."""

    def __init__(self, clock: VirtualClock, timeout_s: float, on_idle: Callable[[], None]) -> None:
        self.calls: list[object] = []
        super().__init__(clock, timeout_s, self.calls, on_idle)

    def on_active(self) -> None:
        self.calls.append("call")

    def on_inactive(self) -> None:
        self.calls.clear()
        super().on_inactive()


def make(timeout_s: float) -> tuple[VirtualClock, Channel, list[float]]:
    clock = VirtualClock()
    idled: list[float] = []
    return clock, Channel(clock, timeout_s, lambda: idled.append(clock.now_s())), idled


def test_timeout_counts_from_the_start_without_rpcs() -> None:
    clock, idleness, idled = make(10.0)
    idleness.start()
    clock.advance(100.0)
    assert idled == [10.0]


def test_timeout_counts_from_the_end_of_the_last_rpc() -> None:
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


def test_infinite_timeout_starts_no_timer() -> None:
    clock, idleness, idled = make(inf)
    idleness.start()
    assert clock.timers_pending == 0
    clock.advance(1e6)
    assert not idled


def test_stop_cancels_the_timer() -> None:
    clock, idleness, idled = make(10.0)
    idleness.start()
    idleness.stop()
    clock.advance(100.0)
    assert not idled
    assert clock.timers_pending == 0


def test_timer_is_not_restarted_for_a_rounding_error() -> None:
    """As floats, 9.7 - 4.7 is a little less than 5."""
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
