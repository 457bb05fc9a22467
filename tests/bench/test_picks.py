"""Benchmark of picks: its subjects, results and output, without a check of times."""

import json

import pytest

from bench.pick_subjects import FLAT, find_subjects, make_infos, make_picker
from bench.picks import SIZES, Result, format_results, main, measure, take_turn, to_json
from proxyless.assembly import default_policies
from proxyless.lb import Complete

SUBJECTS = find_subjects()

FLAT_ONE = Result("round_robin", FLAT, {10: [100.0, 900.0, 90.0], 1_000: [1.0], 10_000: [150.0]})
STEEP_ONE = Result("slow", FLAT, {10: [100.0], 1_000: [1.0], 10_000: [151.0]})


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_pick_of_a_subject_completes(name: str) -> None:
    infos = make_infos()
    picker = make_picker(SUBJECTS[name], 10, infos)
    assert all(isinstance(picker.pick(info), Complete) for info in infos)


def test_picks_reach_every_endpoint() -> None:
    infos = make_infos()
    for name in ("round_robin", "ring_hash", "weighted_round_robin", "tree"):
        picker = make_picker(SUBJECTS[name], 20, infos)
        results = map(picker.pick, infos)
        picked = {each.subchannel.address for each in results if isinstance(each, Complete)}
        assert len(picked) == 20, name


def test_every_policy_is_measured() -> None:
    measured = {next(iter(entry)) for each in SUBJECTS.values() for entry in each.config}
    registry = default_policies()
    own = {
        name
        for name in registry.names
        if type(registry.find(name)).__module__.startswith("proxyless.lb.policies.")
    }
    assert own <= measured


def test_tree_counts_outliers_unless_they_are_off() -> None:
    infos = make_infos()
    counted = make_picker(SUBJECTS["tree"], 10, infos).pick(infos[0])
    plain = make_picker(SUBJECTS["tree, no outliers"], 10, infos).pick(infos[0])
    assert isinstance(counted, Complete)
    assert isinstance(plain, Complete)
    # xds_cluster_impl adds a tracker in both cases, outlier_detection only in the first.
    assert type(counted.tracker) is not type(plain.tracker)


def test_ratio_is_that_of_medians() -> None:
    assert FLAT_ONE.ratio == 1.5
    assert FLAT_ONE.is_met
    assert not STEEP_ONE.is_met


def test_table_has_a_line_for_each_result() -> None:
    lines = format_results([FLAT_ONE, STEEP_ONE]).splitlines()
    assert lines[0].split() == [
        *("ns", "per", "pick"),
        *("10", "endpoints", "1,000", "endpoints", "10,000", "endpoints"),
        *("10,000:10", "target"),
    ]
    assert lines[1].split() == ["round_robin", "100", "1", "150", "1.50", "≤", "1.5", "pass"]
    assert lines[2].split() == ["slow", "100", "1", "151", "1.51", "≤", "1.5", "miss"]


def test_json_has_all_numbers() -> None:
    text = json.dumps(to_json([FLAT_ONE]))
    [result] = json.loads(text)["results"]
    assert result["policy"] == "round_robin"
    assert result["ns_rounds"]["10"] == [100.0, 900.0, 90.0]
    assert result["ns_per_pick"]["10"] == 100.0
    assert result["ratio"] == 1.5
    assert result["outcome"] == "pass"


def test_turn_has_at_least_one_pass() -> None:
    infos = make_infos()
    assert take_turn(make_picker(SUBJECTS["pick_first"], 10, infos), infos, 1e-9) > 0


def test_each_size_has_a_turn_per_round() -> None:
    [result] = measure([SUBJECTS["pick_first"]], (10, 20), rounds=3, seconds=1e-6)
    assert {size: len(rounds) for size, rounds in result.ns_rounds.items()} == {10: 3, 20: 3}


def test_policies_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == list(SUBJECTS)


@pytest.mark.parametrize("wrong", [["--only", "unknown"], ["--rounds", "0"], ["--seconds", "-1"]])
def test_wrong_usage_is_an_error(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(wrong)
    assert raised.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_few_and_many_endpoints_are_compared() -> None:
    assert max(SIZES) / min(SIZES) == 1_000
