"""Unit tests of proxyless.lb.policies.weighted_round_robin.policy."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import Endpoint, hits
from proxyless.lb import LoadReport, Update
from proxyless.lb.policies.weighted_round_robin import (
    WeightedRoundRobinConfig,
    WeightedRoundRobinFactory,
)
from proxyless.lb.policies.weighted_round_robin.policy import EndpointWeight, compute_weight
from proxyless.testing import ANY_RPC, FakeHelper, address, check_policy
from tests.worlds.policies import CONNECTING, READY, PolicyWorld

CONFIG = WeightedRoundRobinConfig(blackout_period_s=10, weight_expiration_period_s=60)
ANY_FLOAT = st.floats(width=64)


# ---------------------------------------------------------------------------------------------
# Weights


@given(ANY_FLOAT, ANY_FLOAT, ANY_FLOAT, ANY_FLOAT)
def test_weight_is_finite_and_not_negative_for_any_report(
    qps: float, eps: float, cpu: float, application: float
) -> None:
    report = LoadReport(qps=qps, eps=eps, cpu_utilization=cpu, application_utilization=application)
    assert 0 <= compute_weight(report, CONFIG) < inf


@pytest.mark.parametrize("eps", [-5.0, nan])
def test_invalid_error_rate_is_no_penalty(eps: float) -> None:
    assert compute_weight(LoadReport(qps=10, cpu_utilization=0.5, eps=eps), CONFIG) == 20


def test_utilization_is_the_largest_named_metric_without_nan() -> None:
    names = ("named_metrics.a", "named_metrics.b", "cpu_utilization", "named_metrics.c")
    config = WeightedRoundRobinConfig(metric_names_for_computing_utilization=names)
    metrics = {"a": nan, "b": 0.5, "c": -1.0}
    report = LoadReport(
        qps=10, cpu_utilization=0.25, application_utilization=1, named_metrics=metrics
    )
    assert compute_weight(report, config) == 20


def test_weight_is_usable_between_blackout_and_expiration() -> None:
    weight = EndpointWeight()
    assert weight.find_usable(CONFIG, 0) == 0
    weight.on_report(5, now_s=100)
    assert weight.find_usable(CONFIG, 100) == 0
    assert weight.find_usable(CONFIG, 109.9) == 0
    assert weight.find_usable(CONFIG, 110) == 5
    weight.on_report(7, now_s=120)
    weight.on_report(0, now_s=150)
    assert weight.find_usable(CONFIG, 179.9) == 7
    assert weight.find_usable(CONFIG, 180) == 0
    weight.on_report(9, now_s=200)
    assert weight.find_usable(CONFIG, 209.9) == 0
    assert weight.find_usable(CONFIG, 210) == 9
    weight.on_ready(now_s=215)
    assert weight.find_usable(CONFIG, 220) == 0
    weight.on_report(9, now_s=225)
    assert weight.find_usable(CONFIG, 235) == 9


def test_weight_is_usable_after_a_reconnect_without_a_blackout() -> None:
    config = WeightedRoundRobinConfig(blackout_period_s=0)
    weight = EndpointWeight()
    weight.on_report(5, now_s=0)
    weight.on_ready(now_s=0)
    assert weight.find_usable(config, 1) == 5


# ---------------------------------------------------------------------------------------------
# The policy


@pytest.fixture
def world() -> PolicyWorld:
    world = PolicyWorld(WeightedRoundRobinFactory())
    world.update("a", "b")
    world["a"].ready()
    world["b"].ready()
    return world


def test_picker_returns_one_result_per_endpoint(world: PolicyWorld) -> None:
    assert len({world.picker.pick(ANY_RPC) for _ in range(10)}) == 2


def test_picker_has_no_dict(world: PolicyWorld) -> None:
    assert not hasattr(world.picker, "__dict__")


def test_state_changes_are_traced() -> None:
    world = PolicyWorld(WeightedRoundRobinFactory())
    with hits(world.trace, "weighted_round_robin.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {
            "enableOobLoadReport": True,
            "oobReportingPeriod": "5s",
            "blackoutPeriod": "1s",
            "weightExpirationPeriod": "3s",
            "weightUpdatePeriod": "0.5s",
            "errorUtilizationPenalty": 0.5,
            "metricNamesForComputingUtilization": ["named_metrics.x"],
        },
    ],
)
def test_policy_conforms(config: dict[str, object]) -> None:
    check_policy(WeightedRoundRobinFactory(), config=config, seeds=range(25))


def test_load_report_causes_no_policy_report() -> None:
    helper = FakeHelper()
    policy = WeightedRoundRobinFactory().create(helper)
    config = WeightedRoundRobinConfig(enable_oob_load_report=True)
    endpoints = tuple(Endpoint((address(name),)) for name in "ab")
    policy.update(Update(endpoints, config))
    for name in "ab":
        helper.connection(name).become(CONNECTING)
        helper.connection(name).become(READY)
    before = len(helper.reports)
    helper.connection("a").report_load(LoadReport(qps=1, cpu_utilization=1))
    helper.clock.advance(100)
    assert len(helper.reports) == before
    policy.close()


def test_describe_does_not_change_the_weight() -> None:
    config = WeightedRoundRobinConfig(blackout_period_s=10.0, weight_expiration_period_s=180.0)
    weight = EndpointWeight()
    assert weight.describe(config, 0.0) == "no weight reported"
    weight.on_report(2.5, 100.0)
    assert weight.describe(config, 105.0) == "weight 2.5 is too new"
    assert weight.describe(config, 110.0) == "weight 2.5"
    # `find_usable` would start the blackout again.
    assert weight.describe(config, 280.0) == "weight 2.5 is too old"
    weight.on_report(3.0, 281.0)
    assert weight.find_usable(config, 281.0) == 3.0
