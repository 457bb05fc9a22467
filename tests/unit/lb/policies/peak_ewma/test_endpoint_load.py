"""Unit tests of proxyless.lb.policies.peak_ewma.endpoint_load."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.lb.policies.peak_ewma.config import PeakEwmaConfig
from proxyless.lb.policies.peak_ewma.endpoint_load import UNMEASURED_COST_S, EndpointLoad

CONFIG = PeakEwmaConfig(decay_time_s=10.0, failure_penalty_s=1.0)


def measured(latency_s: float, now_s: float = 0.0) -> EndpointLoad:
    load = EndpointLoad()
    load.add_latency(latency_s, now_s, CONFIG)
    return load


@pytest.mark.spec("PE-03")
def test_first_latency_is_the_average() -> None:
    assert not EndpointLoad().is_measured
    load = measured(0.02, 5.0)
    assert load.is_measured
    assert load.latency_s == 0.02


@pytest.mark.spec("PE-03")
def test_higher_latency_replaces_the_average_at_once() -> None:
    load = measured(0.01)
    load.add_latency(0.5, 0.001, CONFIG)
    assert load.latency_s == 0.5


@pytest.mark.spec("PE-03")
@pytest.mark.parametrize("elapsed_s", [0.0, 1.0, 10.0, 1e6])
def test_lower_latency_is_averaged_by_the_time_since_the_last_one(elapsed_s: float) -> None:
    load = measured(0.5)
    load.add_latency(0.1, elapsed_s, CONFIG)
    assert load.latency_s == pytest.approx(0.1 + 0.4 * exp(-elapsed_s / 10.0))


@pytest.mark.spec("PE-03")
def test_latency_counts_with_the_decay_time_at_most() -> None:
    assert measured(3600.0).latency_s == 10.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1))
def test_average_is_between_the_last_sample_and_the_highest(
    samples: list[tuple[float, float]],
) -> None:
    load, now_s = EndpointLoad(), 0.0
    for latency_s, elapsed_s in samples:
        now_s += elapsed_s
        load.add_latency(latency_s, now_s, CONFIG)
    highest_s = min(max(latency_s for latency_s, _ in samples), CONFIG.decay_time_s)
    last_s = min(samples[-1][0], CONFIG.decay_time_s)
    assert last_s <= load.latency_s <= highest_s * (1 + 1e-12)


@pytest.mark.spec("PE-04")
def test_wait_can_only_raise_the_average() -> None:
    load = measured(0.1)
    load.add_wait(0.01, 100.0, CONFIG)
    assert load.latency_s == 0.1
    load.add_wait(2.0, 101.0, CONFIG)
    assert load.latency_s == 2.0


@pytest.mark.spec("PE-05")
def test_failure_rate_is_averaged_over_the_decay_time() -> None:
    load = measured(0.01)
    load.add_result(0.0, CONFIG, is_failure=False)
    load.add_result(1.0, CONFIG, is_failure=True)
    assert load.failure_rate == pytest.approx(1 - exp(-0.1))
    load.add_result(11.0, CONFIG, is_failure=False)
    assert load.failure_rate == pytest.approx((1 - exp(-0.1)) * exp(-1))


@pytest.mark.spec("PE-05")
def test_failure_rate_of_a_steady_share_of_failures_is_that_share() -> None:
    load = measured(0.01)
    for number in range(10_000):
        load.add_result(number / 100, CONFIG, is_failure=number % 4 == 0)
    assert load.failure_rate == pytest.approx(0.25, abs=0.01)


@pytest.mark.spec("PE-02")
def test_cost_is_expected_latency_times_rpcs_in_flight() -> None:
    load = measured(0.2)
    assert load.cost(0.0, CONFIG) == pytest.approx(0.2)
    for _ in range(3):
        load.on_start(0.0)
    assert load.cost(0.0, CONFIG) == pytest.approx(0.8)
    load.on_end()
    assert load.cost(0.0, CONFIG) == pytest.approx(0.6)
    load.add_result(0.0, CONFIG, is_failure=True)
    assert load.cost(0.0, CONFIG) == pytest.approx(3 * (0.2 + 1.0))


@pytest.mark.spec("PE-06")
def test_cost_falls_while_idle_and_is_restored_when_an_rpc_starts() -> None:
    load = measured(0.2)
    assert load.cost(20.0, CONFIG) == pytest.approx(0.2 * exp(-2))
    load.on_start(20.0)
    assert load.cost(20.0, CONFIG) == pytest.approx(0.4)
    load.on_end()
    # The RPC was not answered, so the average is unchanged and falls again.
    assert load.cost(30.0, CONFIG) == pytest.approx(0.2 * exp(-1))


@pytest.mark.spec("PE-07")
def test_unmeasured_endpoint_costs_nothing_until_an_rpc_is_in_flight() -> None:
    load = EndpointLoad()
    assert load.cost(5.0, CONFIG) == 0.0
    load.on_start(5.0)
    assert load.cost(5.0, CONFIG) == UNMEASURED_COST_S
    load.on_start(5.0)
    assert load.cost(5.0, CONFIG) == 2 * UNMEASURED_COST_S
    assert load.cost(15.0, CONFIG) == pytest.approx(2 * UNMEASURED_COST_S * exp(-1))
