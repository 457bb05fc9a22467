"""Unit tests of load counters."""

import pytest

from proxyless.xds.client.codec import ClusterStats, LocalityStats
from proxyless.xds.client.load import CATEGORIES_MAX, METRICS_MAX, ClusterLoad, LocalityLoad

HERE = ("r", "z", "s")


def new_load() -> ClusterLoad:
    return ClusterLoad("c", "e", 100.0, lambda: None)


def test_counts_are_taken_and_those_in_progress_stay() -> None:
    load = LocalityLoad()
    load.on_start()
    load.on_start()
    load.on_start()
    load.on_end(True)
    load.on_end(False)
    assert load.take(HERE) == LocalityStats("r", "z", "s", 3, 1, 1, 1)
    assert not load.is_idle
    assert load.take(HERE) == LocalityStats("r", "z", "s", 0, 0, 0, 1)
    load.on_end(True)
    assert load.take(HERE) == LocalityStats("r", "z", "s", 0, 1, 0, 0)
    assert load.is_idle


def test_a_report_covers_the_time_since_the_last_one() -> None:
    load = new_load()
    load.drop("a")
    load.drop(None)
    load.locality(HERE).on_start()
    here = LocalityStats("r", "z", "s", 1, 0, 0, 1)
    assert load.take(107.5) == ClusterStats("c", "e", (here,), 2, (("a", 1),), 7.5)
    load.locality(HERE).on_end(True)
    ended = LocalityStats("r", "z", "s", 0, 1, 0, 0)
    assert load.take(110.0) == ClusterStats("c", "e", (ended,), 0, (), 2.5)
    assert load.take(120.0) is None


def test_names_from_outside_have_limits() -> None:
    load = new_load()
    for index in range(CATEGORIES_MAX + 10):
        load.drop(f"category {index}")
    locality = load.locality(HERE)
    for index in range(METRICS_MAX + 10):
        locality.add_metric(f"metric {index}", 1.0)
    stats = load.take(101.0)
    assert stats is not None
    assert len(stats.dropped) == CATEGORIES_MAX
    assert stats.dropped_total == CATEGORIES_MAX + 10
    assert len(stats.localities[0].metrics) == METRICS_MAX


def test_it_is_unused_after_as_many_releases_as_uses() -> None:
    unused = []
    load = ClusterLoad("c", "", 0.0, lambda: unused.append(True))
    load.users = 2
    load.release()
    assert not unused
    load.release()
    assert unused
    with pytest.raises(ValueError, match="'c'"):
        load.release()
