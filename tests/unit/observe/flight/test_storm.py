"""Unit tests of proxyless.observe.flight.storm."""

from __future__ import annotations

from proxyless.observe.flight.storm import FAILURES_MIN, WINDOW_S, StormDetector


def fail(detector: StormDetector, gap_s: float, successes_between: int) -> bool:
    results = [
        detector.on_failure(number * gap_s, number * successes_between)
        for number in range(FAILURES_MIN)
    ]
    return any(results)


def test_failures_within_the_window_are_a_storm() -> None:
    assert fail(StormDetector(), 0.01, 0)


def test_fewer_failures_are_none() -> None:
    detector = StormDetector()
    assert not any(detector.on_failure(0.0, 0) for _ in range(FAILURES_MIN - 1))


def test_failures_over_a_longer_time_are_none() -> None:
    assert not fail(StormDetector(), 2 * WINDOW_S / FAILURES_MIN, 0)


def test_failures_among_more_successes_are_none() -> None:
    assert not fail(StormDetector(), 0.01, 2)
    assert fail(StormDetector(), 0.01, 1)
