"""A58: weighted_round_robin, with weights from the load reports of backends.

test_as_round_robin.py covers what it shares with round_robin.
"""

from collections import Counter
from collections.abc import Mapping

import pytest

from proxyless.assembly import default_policies
from proxyless.base import EMPTY_ATTRIBUTES, Key, ValidationError
from proxyless.lb import LoadReport
from proxyless.lb.policies.weighted_round_robin import (
    WeightedRoundRobinConfig,
    WeightedRoundRobinFactory,
)
from proxyless.testing import ANY_RPC
from tests.worlds.endpoint_weights import NO_BLACKOUT, End, WeightedWorld, weighing
from tests.worlds.policies import FAILURE, READY, Name, PolicyWorld, endpoint

PICKS = 10_000
OUT_OF_BAND = {"enableOobLoadReport": True, **NO_BLACKOUT}


@pytest.fixture
def world() -> WeightedWorld:
    return WeightedWorld()


# ---------------------------------------------------------------------------------------------
# Config


@pytest.mark.spec("WRR-11")
def test_policy_is_registered_by_default() -> None:
    assert isinstance(default_policies().find("weighted_round_robin"), WeightedRoundRobinFactory)


@pytest.mark.spec("WRR-01")
def test_config_has_the_defaults_of_a58(world: PolicyWorld) -> None:
    config = world.parse({})
    assert isinstance(config, WeightedRoundRobinConfig)
    assert config.enable_oob_load_report is False
    assert config.oob_reporting_period_s == 10
    assert config.blackout_period_s == 10
    assert config.weight_expiration_period_s == 180
    assert config.weight_update_period_s == 1
    assert config.error_utilization_penalty == 1.0
    assert world.parse(dict.fromkeys(["enableOobLoadReport", "blackoutPeriod"])) == config
    assert world.parse({"whatever": 1}) == config


@pytest.mark.spec("WRR-12")
@pytest.mark.parametrize(
    ("configured", "used_s"),
    [("0s", 0.1), ("0.099s", 0.1), ("0.1s", 0.1), ("0.25s", 0.25), ("3s", 3)],
)
def test_weight_update_period_is_at_least_100_ms(
    world: PolicyWorld, configured: str, used_s: float
) -> None:
    config = world.parse({"weightUpdatePeriod": configured})
    assert config == WeightedRoundRobinConfig(weight_update_period_s=used_s)


@pytest.mark.spec("WRR-13")
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("enableOobLoadReport", [1, "true", [], {}]),
        ("oobReportingPeriod", [1, "1", "-1s", "1m", True, {}]),
        ("blackoutPeriod", [10, "ten", "-0.5s"]),
        ("weightExpirationPeriod", [180, "3min", [], "9999999999999s"]),
        ("weightUpdatePeriod", [0.1, "100ms", {}]),
        ("errorUtilizationPenalty", [-0.1, -1, "x", True, [], float("nan"), 1e39]),
        ("metricNamesForComputingUtilization", ["cpu_utilization", [1], {}]),
    ],
)
def test_invalid_value_of_a_field_is_refused(
    world: PolicyWorld, field: str, values: list[object]
) -> None:
    for value in values:
        with pytest.raises(ValidationError, match=f"field:{field} error:is .* wanted a "):
            world.parse({field: value})


@pytest.mark.spec("WRR-03", "WRR-04")
def test_bug_grpc_go_8915_blackout_and_expiration_are_not_confused(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", config={"blackoutPeriod": "2s", "weightExpirationPeriod": "50s"})
    world.weigh(a=1, b=3)
    world.advance(1)
    assert world.shares(4) == {"a": 2, "b": 2}
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.advance(47)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.advance(1)
    assert world.shares(4) == {"a": 2, "b": 2}


# ---------------------------------------------------------------------------------------------
# Weights from reports


@pytest.mark.spec("WRR-02")
@pytest.mark.parametrize(
    ("config", "report", "weight"),
    [
        # Utilization: that of the application, or of the CPU if it is not set.
        ({}, LoadReport(qps=10, application_utilization=0.5), 20),
        ({}, LoadReport(qps=10, cpu_utilization=0.5), 20),
        ({}, LoadReport(qps=10, application_utilization=0.5, cpu_utilization=0.1), 20),
        ({}, LoadReport(qps=10, application_utilization=2.0), 5),
        # Errors are a penalty.
        ({}, LoadReport(qps=10, cpu_utilization=0.5, eps=5), 10),
        ({"errorUtilizationPenalty": 3}, LoadReport(qps=10, cpu_utilization=0.5, eps=5), 5),
        ({"errorUtilizationPenalty": 0}, LoadReport(qps=10, cpu_utilization=0.5, eps=5), 20),
        # A114.
        (
            {"metricNamesForComputingUtilization": ["named_metrics.a.b", "mem_utilization"]},
            LoadReport(qps=10, cpu_utilization=1, mem_utilization=0.1, named_metrics={"a.b": 0.5}),
            20,
        ),
        (
            {"metricNamesForComputingUtilization": ["utilization.gpu", "no_such_metric"]},
            LoadReport(qps=10, application_utilization=0.5, utilization={"cpu": 0.9}),
            20,
        ),
    ],
)
def test_weight_is_qps_divided_by_utilization(
    world: WeightedWorld, config: Mapping[str, object], report: LoadReport, weight: float
) -> None:
    world.start("a", "b", config={**NO_BLACKOUT, **config})
    world.report(a=report, b=weighing(10))
    world.advance(1)
    assert world.shares(600) == {"a": 600 * weight / (weight + 10), "b": 6000 / (weight + 10)}


@pytest.mark.spec("WRR-02")
@pytest.mark.parametrize(
    "report",
    [
        LoadReport(),
        LoadReport(qps=100),
        LoadReport(cpu_utilization=0.5, application_utilization=0.5),
        LoadReport(qps=-100, cpu_utilization=0.5),
        LoadReport(qps=100, cpu_utilization=-0.5),
        LoadReport(qps=100, mem_utilization=0.5),
        LoadReport(qps=float("nan"), cpu_utilization=0.5),
        LoadReport(qps=float("inf"), cpu_utilization=0.5),
        LoadReport(qps=100, cpu_utilization=float("nan")),
    ],
)
def test_report_without_usable_values_is_ignored(world: WeightedWorld, report: LoadReport) -> None:
    config = {**NO_BLACKOUT, "weightExpirationPeriod": "10s"}
    world.start("a", "b", config=config)
    world.weigh(a=1, b=3)
    world.advance(9)
    world.report(a=report, b=report)
    assert world.shares(4) == {"a": 1, "b": 3}
    # The expiration of the last valid report is not extended.
    world.advance(1)
    assert world.shares(4) == {"a": 2, "b": 2}


@pytest.mark.spec("WRR-09")
def test_missing_or_malformed_report_is_ignored(world: WeightedWorld) -> None:
    world.start("a", "b")
    world.weigh(a=1, b=3)
    for tracker in world.trackers("a", "b").values():
        tracker.on_start()
        tracker.on_end(End())
        tracker.on_end(End((("endpoint-load-metrics-bin", b"\xff\xff"), ("other", "x"))))
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}


# ---------------------------------------------------------------------------------------------
# Blackout and expiration


@pytest.mark.spec("WRR-03")
def test_weight_is_not_used_during_the_blackout(world: WeightedWorld) -> None:
    world.start("a", "b", config={})
    for _ in range(10):
        world.weigh(a=1, b=3)
        assert world.shares(4) == {"a": 2, "b": 2}
        world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-03")
def test_first_report_is_used_when_there_is_no_blackout(world: WeightedWorld) -> None:
    world.start("a", "b", config=NO_BLACKOUT)
    world.weigh(a=1, b=3)
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-03")
def test_weight_is_kept_after_a_reconnect_when_there_is_no_blackout(world: WeightedWorld) -> None:
    world.start("a", "b", config=NO_BLACKOUT)
    world.weigh(a=1, b=3)
    world["b"].idle()
    world.settle()
    world["b"].connecting()
    world["b"].ready()
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-03", "WRR-05")
def test_blackout_starts_with_the_first_report_after_a_reconnect(world: WeightedWorld) -> None:
    world.start("a", "b", "c", config={})
    world.weigh(a=1, b=2, c=4)
    world.advance(10)
    assert world.shares(7) == {"a": 1, "b": 2, "c": 4}
    world["c"].idle()
    world.settle()
    world["c"].connecting()
    world["c"].ready()
    # It has the mean of the others, although its old weight has not expired.
    assert world.shares(9) == {"a": 2, "b": 4, "c": 3}
    world.advance(5)
    world.weigh(a=1, b=2, c=4)
    world.advance(9)
    assert world.shares(9) == {"a": 2, "b": 4, "c": 3}
    world.advance(1)
    assert world.shares(7) == {"a": 1, "b": 2, "c": 4}


@pytest.mark.spec("WRR-04")
def test_weight_is_not_used_when_the_last_report_has_expired(world: WeightedWorld) -> None:
    world.start("a", "b")
    world.weigh(a=1, b=3)
    world.advance(179)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.advance(1)
    assert world.shares(4) == {"a": 2, "b": 2}


@pytest.mark.spec("WRR-03", "WRR-04")
def test_blackout_starts_again_after_expiration(world: WeightedWorld) -> None:
    world.start("a", "b", config={"weightExpirationPeriod": "30s"})
    world.weigh(a=1, b=3)
    world.advance(30)
    world.weigh(a=1, b=3)
    world.advance(9)
    assert world.shares(4) == {"a": 2, "b": 2}
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}


# ---------------------------------------------------------------------------------------------
# Turns


@pytest.mark.spec("WRR-05")
def test_endpoint_without_a_weight_has_the_mean_of_the_others(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", "c")
    world.weigh(a=1, b=3)
    world.advance(1)
    assert world.shares(6) == {"a": 1, "b": 3, "c": 2}


@pytest.mark.spec("WRR-05")
def test_picks_are_equal_when_only_one_endpoint_has_a_weight(world: WeightedWorld) -> None:
    world.start("a", "b", "c")
    world.weigh(a=100)
    world.advance(1)
    assert world.shares(9) == {"a": 3, "b": 3, "c": 3}


@pytest.mark.spec("WRR-05")
def test_single_endpoint_gets_all_picks(world: WeightedWorld) -> None:
    world.start("a")
    world.weigh(a=5)
    world.advance(1)
    assert world.shares(5) == {"a": 5}


@pytest.mark.spec("WRR-06")
@pytest.mark.parametrize("seed", range(10))
def test_any_six_consecutive_picks_are_in_proportion_to_the_weights(seed: int) -> None:
    world = WeightedWorld(seed=seed)
    world.start("a", "b", "c")
    world.weigh(a=10, b=20, c=30)
    world.advance(1)
    picks = world.picks(60)
    for start in range(54):
        assert Counter(picks[start : start + 6]) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.spec("WRR-06")
def test_weights_are_limited_to_10_and_a_hundredth_of_the_mean(
    world: WeightedWorld,
) -> None:
    names = [str(number) for number in range(40)]
    world.start(*names)
    weights = dict.fromkeys(names, 1.0) | {names[0]: 961.0, names[1]: 1e-9}
    # The mean is nearly 25.
    world.weigh(**weights)
    world.advance(1)
    parts = Counter(world.picks(5_000 + 38 * 20 + 5))
    assert parts[names[0]] == pytest.approx(5_000, abs=5)
    assert parts[names[1]] == pytest.approx(5, abs=1)
    assert all(parts[name] == pytest.approx(20, abs=1) for name in names[2:])


@pytest.mark.spec("WRR-06")
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_within_two_percent_of_the_weights(seed: int) -> None:
    world = WeightedWorld(seed=seed)
    weights = {"a": 3.0, "b": 7.1, "c": 11.3, "d": 25.9, "e": 30.0}
    world.start(*weights)
    world.weigh(**weights)
    world.advance(1)
    parts = Counter(world.picks(PICKS))
    for name, weight in weights.items():
        expected = PICKS * weight / sum(weights.values())
        assert parts[name] == pytest.approx(expected, rel=0.02)


@pytest.mark.spec("WRR-06")
def test_the_first_pick_goes_to_a_random_endpoint() -> None:
    firsts = set()
    for seed in range(15):
        world = WeightedWorld(seed=seed)
        world.start("a", "b", "c")
        firsts.add(world.pick())
    assert firsts == {"a", "b", "c"}


@pytest.mark.spec("WRR-06")
def test_bug_near_zero_weights_do_not_loop_in_a_pick(world: WeightedWorld) -> None:
    names = [str(number) for number in range(100)]
    world.start(*names)
    world.weigh(**dict.fromkeys(names, 1e-300) | {names[0]: 1e300})
    world.advance(1)
    # Light weights count as a thousandth of the heaviest; otherwise they need 1e600 rounds.
    assert set(world.picks(3_000)) == set(names)


# ---------------------------------------------------------------------------------------------
# The timer


@pytest.mark.spec("WRR-07")
def test_weights_are_updated_every_period_without_a_new_picker(world: WeightedWorld) -> None:
    world.start("a", "b", config={**NO_BLACKOUT, "weightUpdatePeriod": "5s"})
    picker = world.picker
    world.weigh(a=1, b=3)
    world.advance(4.9)
    assert world.shares(4) == {"a": 2, "b": 2}
    world.advance(0.1)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.weigh(a=3, b=1)
    world.advance(4.9)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.advance(0.1)
    assert world.shares(4) == {"a": 3, "b": 1}
    world.expect_reports()
    assert world.picker is picker


@pytest.mark.spec("WRR-07")
def test_timer_stops_when_no_endpoint_is_ready(world: WeightedWorld) -> None:
    world.start("a", "b", "c")
    assert world.clock.timers_pending == 1
    for name in "abc":
        world[name].connecting()
    assert world.clock.timers_pending == 0


@pytest.mark.spec("WRR-07")
def test_timer_stops_when_the_list_is_empty(world: WeightedWorld) -> None:
    world.start("a", "b", "c")
    world.update(config=NO_BLACKOUT)
    world.expect_never(READY)
    assert world.clock.timers_pending == 0


@pytest.mark.spec("WRR-07", "WRR-10")
def test_removed_endpoints_keep_their_weights_until_they_are_released(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", config=NO_BLACKOUT)
    world.weigh(a=1, b=3)
    world.update("c", config={**NO_BLACKOUT, "enableOobLoadReport": True})
    assert len(world["a"].load_watches) == 1  # The new config applies to them, too.
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}
    world["c"].connecting()
    world["c"].fail()
    world.expect_state(FAILURE)
    assert world.clock.timers_pending == 0


@pytest.mark.spec("WRR-07")
def test_each_picker_has_at_most_one_timer(world: WeightedWorld) -> None:
    world.start("a", "b", "c")
    for _ in range(5):
        world["c"].connecting()
        world["c"].ready()
    world.update("a", "b", "c", config={**NO_BLACKOUT, "weightUpdatePeriod": "7s"})
    assert world.clock.timers_pending == 1
    # A single endpoint needs no timer.
    world.update("a")
    assert world.clock.timers_pending == 0


@pytest.mark.spec("WRR-07")
def test_timer_stops_when_the_policy_is_closed(world: WeightedWorld) -> None:
    world.start("a", "b")
    old = world.picker
    world.policy.close()
    world.expect_closed()
    world.advance(10)
    old.pick(ANY_RPC)
    assert world.clock.timers_pending == 0


# ---------------------------------------------------------------------------------------------
# Updates


@pytest.mark.spec("WRR-08")
def test_weights_and_blackouts_are_kept_when_endpoints_stay(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", config={})
    world.weigh(a=1, b=3)
    world.advance(5)
    world.update("b", "a", config={"errorUtilizationPenalty": 2})
    world.expect_reports(READY)
    world.advance(5)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.update("a", "b", "c", config={"errorUtilizationPenalty": 2})
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-08")
def test_weight_is_lost_when_an_endpoint_is_removed_and_returns(world: WeightedWorld) -> None:
    world.start("a", "b")
    world.weigh(a=1, b=3)
    world.update("a", config=NO_BLACKOUT)
    world.start("a", "b")
    assert world.shares(4) == {"a": 2, "b": 2}


@pytest.mark.spec("WRR-08")
def test_bug_grpc_33694_new_ready_subchannel_does_not_restart_the_blackout(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", config={})
    world.weigh(a=1, b=3)
    world.advance(10)
    # New attributes lead to new subchannels, which are READY with the shared connection.
    revision = EMPTY_ATTRIBUTES.with_(Key[int]("revision"), 2)
    before = world["a"]
    for name in "ab":
        world.share(name, READY)
    world.update(endpoint("a", revision), endpoint("b", revision), config={})
    assert world["a"] is not before
    assert world.shares(4) == {"a": 1, "b": 3}
    world.advance(5)
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-14")
def test_changed_config_takes_effect_at_once(world: WeightedWorld) -> None:
    world.start("a", "b", config={"blackoutPeriod": "100s"})
    world.weigh(a=1, b=3)
    world.advance(1)
    world.update("a", "b", config=NO_BLACKOUT)
    world.expect_reports(READY)
    assert world.shares(4) == {"a": 1, "b": 3}
    world.update("a", "b", config={**NO_BLACKOUT, "weightExpirationPeriod": "1s"})
    assert world.shares(4) == {"a": 2, "b": 2}


# ---------------------------------------------------------------------------------------------
# Out-of-band reports


def watches(world: PolicyWorld, *names: Name) -> list[float]:
    """Intervals of all load watches of these endpoints."""
    return [interval_s for name in names for interval_s, _ in world[name].load_watches]


@pytest.mark.spec("WRR-09")
def test_reports_of_rpcs_are_ignored_when_out_of_band_reports_are_enabled(
    world: WeightedWorld,
) -> None:
    world.start("a", "b", config={**OUT_OF_BAND, "oobReportingPeriod": "7s"})
    assert watches(world, "a", "b") == [7, 7]
    world["a"].report_load(weighing(1))
    world["b"].report_load(weighing(3))
    world.weigh(a=3, b=1)
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}


@pytest.mark.spec("WRR-09")
def test_every_address_of_an_endpoint_is_watched_for_the_endpoint(world: WeightedWorld) -> None:
    world.update(("a", "b"), "c", config=OUT_OF_BAND)
    assert watches(world, "a", "b", "c") == [10, 10, 10]
    world["a"].fail()
    world["b"].ready()
    world["c"].ready()
    assert watches(world, "b", "c") == [10, 10]
    world["b"].report_load(weighing(1))
    world["c"].report_load(weighing(3))
    world.advance(1)
    assert world.shares(4) == {"b": 1, "c": 3}


@pytest.mark.spec("WRR-09")
def test_load_is_not_watched_by_default(world: WeightedWorld) -> None:
    world.start("a", "b", config={"oobReportingPeriod": "7s"})
    assert watches(world, "a", "b") == []


@pytest.mark.spec("WRR-09")
def test_the_source_of_reports_can_be_switched_both_ways(world: WeightedWorld) -> None:
    world.start("a", "b")
    world.weigh(a=1, b=3)
    world.advance(1)
    world.update("a", "b", config=OUT_OF_BAND)
    assert watches(world, "a", "b") == [10, 10]
    world.weigh(a=3, b=1)
    world.advance(1)
    assert world.shares(4) == {"a": 1, "b": 3}
    world["a"].report_load(weighing(1))
    world["b"].report_load(weighing(1))
    world.advance(1)
    assert world.shares(4) == {"a": 2, "b": 2}
    world.update("a", "b", config=NO_BLACKOUT)
    assert watches(world, "a", "b") == []
    world.weigh(a=3, b=1)
    world.advance(1)
    assert world.shares(4) == {"a": 3, "b": 1}


@pytest.mark.spec("WRR-09")
def test_changed_period_is_requested_on_the_same_connection(world: WeightedWorld) -> None:
    world.start("a", "b", config=OUT_OF_BAND)
    before = [world["a"], world["b"]]
    world.update("a", "b", config={**OUT_OF_BAND, "oobReportingPeriod": "0.5s"})
    assert watches(world, "a", "b") == [0.5, 0.5]
    assert [world["a"], world["b"]] == before


@pytest.mark.spec("WRR-09")
def test_load_of_a_new_connection_is_watched(world: WeightedWorld) -> None:
    world.start("a", "b", config=OUT_OF_BAND)
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    world["a"].ready()
    assert watches(world, "a", "b") == [10, 10]
    # The old subchannel is not watched any more.
    world.update("a", "b", config={**OUT_OF_BAND, "oobReportingPeriod": "3s"})
    assert watches(world, "a", "b") == [3, 3]
