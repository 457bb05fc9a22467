"""Unit tests of load counters."""

import math

import pytest

from proxyless.xds.client.load_counters import (
    CATEGORIES_MAX,
    NAMED_METRICS_MAX,
    REPORTED_METRICS_MAX,
    ClusterLoad,
    LocalityLoad,
)
from proxyless.xds.client.lrs_codec import ClusterStats, LocalityStats, MetricStats

LOCALITY = ("r", "z", "s")


def new_load() -> ClusterLoad:
    return ClusterLoad("c", "e", 100.0, lambda: None)


def test_counts_are_reset_by_a_report_except_those_in_progress() -> None:
    load = LocalityLoad()
    load.on_start()
    load.on_start()
    load.on_start()
    load.on_end(True)
    load.on_end(False)
    assert load.take(LOCALITY) == LocalityStats("r", "z", "s", 3, 1, 1, 1)
    assert not load.is_idle
    assert load.take(LOCALITY) == LocalityStats("r", "z", "s", 0, 0, 0, 1)
    load.on_end(True)
    assert load.take(LOCALITY) == LocalityStats("r", "z", "s", 0, 1, 0, 0)
    assert load.is_idle


def test_report_covers_the_time_since_the_last_one() -> None:
    load = new_load()
    load.drop("a")
    load.drop(None)
    load.locality(LOCALITY).on_start()
    started = LocalityStats("r", "z", "s", 1, 0, 0, 1)
    assert load.take(107.5) == ClusterStats("c", "e", (started,), 2, (("a", 1),), 7.5)
    load.locality(LOCALITY).on_end(True)
    ended = LocalityStats("r", "z", "s", 0, 1, 0, 0)
    assert load.take(110.0) == ClusterStats("c", "e", (ended,), 0, (), 2.5)
    assert load.take(120.0) is None


def test_drop_categories_are_bounded() -> None:
    load = new_load()
    for number in range(CATEGORIES_MAX + 10):
        load.drop(f"category {number}")
    stats = load.take(101.0)
    assert stats is not None
    assert len(stats.dropped) == CATEGORIES_MAX
    assert stats.dropped_total == CATEGORIES_MAX + 10


def test_load_is_unused_after_as_many_releases_as_uses() -> None:
    unused = []
    load = ClusterLoad("c", "", 0.0, lambda: unused.append(True))
    load.users = 2
    load.release()
    assert not unused
    load.release()
    assert unused
    with pytest.raises(ValueError, match="'c'"):
        load.release()


@pytest.mark.spec("A64-03")
def test_metrics_are_added_up_by_name() -> None:
    load = LocalityLoad()
    for value in (0.25, 0.5):
        load.add_utilization("cpu_utilization", value)
        load.add_named_metric("cpu_utilization", 10 * value)
    load.add_named_metric("other", -1.0)
    stats = load.take(LOCALITY)
    assert stats.utilization == (MetricStats("cpu_utilization", 2, 0.75),)
    assert stats.named_metrics == (
        MetricStats("cpu_utilization", 2, 7.5),
        MetricStats("other", 1, -1.0),
    )


@pytest.mark.spec("A64-05")
def test_metrics_are_taken_once() -> None:
    load = LocalityLoad()
    load.add_utilization("mem_utilization", 1.0)
    load.add_named_metric("key", 1.0)
    first = load.take(LOCALITY)
    assert (len(first.utilization), len(first.named_metrics)) == (1, 1)
    second = load.take(LOCALITY)
    assert (second.utilization, second.named_metrics) == ((), ())


def test_names_of_metrics_are_bounded_until_the_next_report() -> None:
    load = LocalityLoad()
    for number in range(NAMED_METRICS_MAX + 10):
        load.add_named_metric(f"key{number}", 1.0)
    load.add_named_metric("key0", 1.0)
    stats = load.take(LOCALITY).named_metrics
    assert len(stats) == NAMED_METRICS_MAX
    assert stats[0] == MetricStats("key0", 2, 2.0)
    load.add_named_metric("late", 1.0)
    assert load.take(LOCALITY).named_metrics == (MetricStats("late", 1, 1.0),)


def test_metrics_that_are_not_finite_are_added_up() -> None:
    load = LocalityLoad()
    load.add_named_metric("key", math.inf)
    load.add_named_metric("key", -math.inf)
    [stats] = load.take(LOCALITY).named_metrics
    assert stats.requests == 2
    assert math.isnan(stats.total)


def test_metrics_are_in_the_stats_of_the_cluster() -> None:
    load = ClusterLoad("c", "", 0.0, lambda: None)
    locality = load.locality(LOCALITY)
    locality.on_start()
    locality.on_end(True)
    locality.add_named_metric("key", 1.0)
    stats = load.take(1.0)
    assert stats is not None
    assert stats.localities[0].named_metrics == (MetricStats("key", 1, 1.0),)
    assert load.take(2.0) is None


def test_metrics_of_all_localities_are_bounded_in_a_report() -> None:
    load = new_load()
    for zone in range(2 * REPORTED_METRICS_MAX // NAMED_METRICS_MAX):
        locality = load.locality(("r", str(zone), ""))
        locality.on_start()
        for number in range(NAMED_METRICS_MAX):
            locality.add_named_metric(f"key{number}", 1.0)
    stats = load.take(101.0)
    assert stats is not None
    assert sum(len(each.named_metrics) for each in stats.localities) == REPORTED_METRICS_MAX
    assert len(stats.localities) == 2 * REPORTED_METRICS_MAX // NAMED_METRICS_MAX
