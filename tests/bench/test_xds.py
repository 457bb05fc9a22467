"""Benchmark of xDS responses: workloads, targets and JSON output."""

import json

import pytest

from bench.xds import Cost, judge, measure, to_json
from bench.xds_workloads import WORKLOADS


@pytest.mark.parametrize("name", WORKLOADS)
def test_full_and_changed_responses_are_delivered(name: str) -> None:
    # `measure` checks the notifications, and raises if a response is refused.
    cost = measure(WORKLOADS[name], 20, rounds=1)
    assert (cost.workload, cost.size) == (name, 20)


@pytest.mark.parametrize("name", WORKLOADS)
def test_resources_differ_when_an_entry_is_changed(name: str) -> None:
    make = WORKLOADS[name].make_resources
    assert make(20, None) == make(20, None)
    assert make(20, None) != make(20, 10)


def cost(size: int, first_ms: float, changed_ms: float) -> Cost:
    return Cost("endpoints", size, first_ms, changed_ms, 0.0)


def test_targets_are_judged_at_the_largest_size() -> None:
    met = judge([cost(10, 1.0, 1.0), cost(100, 12.0, 3.0)])
    assert [verdict.is_met for verdict in met] == [True, True, True]
    assert [verdict.got for verdict in met] == [12.0, 0.25, pytest.approx(1.2)]
    missed = judge([cost(10, 100.0, 1.0), cost(100, 2000.0, 1000.0)])
    assert [verdict.is_met for verdict in missed] == [False, False, False]


def test_json_has_all_numbers() -> None:
    costs = [cost(10, 1.0, 0.5)]
    document = json.loads(to_json(costs, judge(costs), rounds=3))
    assert document["costs"][0]["us_per_entry"] == 100.0
    assert document["costs"][0]["changed_share"] == 0.5
    assert document["targets"][0] == {
        "target": "endpoints 10: first response, ms",
        "limit": 500.0,
        "got": 1.0,
        "is_met": True,
    }
