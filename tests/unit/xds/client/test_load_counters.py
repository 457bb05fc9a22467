"""Unit tests of load counters: metrics of backends."""

import math

import pytest

from proxyless.xds.client.codec import MetricStats
from proxyless.xds.client.load_counters import NAMED_METRICS_MAX, ClusterLoad, LocalityLoad

LOCALITY = ("r", "z", "s")


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
