"""Conversion of the programs' JSON: the JSON of each program, made by the program itself."""

from __future__ import annotations

import json
from statistics import median

from bench.churn import ChurnLoad, Count
from bench.churn import to_json as churn_to_json
from bench.conversion import (
    from_churn,
    from_delta,
    from_observed,
    from_picks,
    from_rpc,
    from_scale,
    from_soak,
)
from bench.report import Results
from bench.report import to_json as rpc_to_json
from bench.results import MET, MISSED
from bench.samples import Sample
from bench.scale_targets import ScaleResults, ScaleTarget
from bench.scale_targets import judge as judge_scale
from bench.scale_targets import to_json as scale_to_json
from bench.soak import Load, Outcome
from bench.soak import to_json as soak_to_json
from bench.targets import Target, judge


def test_rpcs_have_figures_per_round_and_only_the_targets_of_their_row() -> None:
    results = Results()
    for cpu_s in (0.02, 0.04, 0.03):
        results.add("unary-16B-1", "xds_asyncio", Sample(1000, cpu_s, 1.0, 50.0, 90.0))
        results.add("unary-16B-1", "grpc_aio_xds", Sample(1000, 0.1, 1.0, 200.0, 900.0))
    targets = [
        Target("xds_asyncio", "unary-16B-1", "cpu", 0.2, "P3"),
        Target("xds_asyncio", "unary-16B-1", "p50", 0.4, "P3"),
        Target("xds_asyncio", "unary-16B-1", "cpu", 0.9, "P4"),
        Target("xds_asyncio", "unary-16B-16", "cpu", 0.9, "P3"),
    ]
    run = rpc_to_json(results, judge(results.summaries(), targets), {})
    made = from_rpc("P3", json.loads(json.dumps(run)))
    cpu, p50 = made.judgements
    assert (cpu.outcome, p50.outcome) == (MISSED, MET)
    assert cpu.got == median(cpu.rounds)
    assert [round(each, 3) for each in cpu.rounds] == [0.2, 0.4, 0.3]
    ours = [each for each in made.figures if each.client == "xds_asyncio"]
    assert [each.measure for each in ours] == ["cpu_us", "rate_per_s", "p50_us", "p99_us"]
    assert len(ours[0].rounds) == 3


def test_meshes_have_the_ratio_of_each_round() -> None:
    results = ScaleResults()
    for ours, theirs in ((1.0, 2.0), (3.0, 2.0), (2.0, 2.0)):
        results.add("idle", 1000, "xds_asyncio", {"cpu_percent": ours})
        results.add("idle", 1000, "grpc_aio_xds", {"cpu_percent": theirs})
    targets = [ScaleTarget("idle", "cpu_percent", "ratio", 1.0, 1000)]
    verdicts = judge_scale(results, ["grpc_aio_xds", "xds_asyncio"], targets)
    made = from_scale("P16", json.loads(json.dumps(scale_to_json(results, verdicts, {}))))
    (found,) = made.judgements
    assert (found.text, found.got) == ("idle 1,000: cpu_percent, of grpcio's", 1.0)
    assert found.rounds == (0.5, 1.5, 1.0)
    assert {each.size for each in made.figures} == {1000}


def test_soak_is_missed_if_one_of_our_rpcs_failed() -> None:
    outcomes = [
        Outcome(client, 100, failed, {}, {}, 1.0, 2.0, 3.0, 0.1)
        for client, failed in (("proxyless", 1), ("grpcio", 5))
    ]
    made = from_soak("P17", json.loads(json.dumps(soak_to_json(Load(), outcomes))))
    assert [each.outcome for each in made.judgements] == [MISSED]
    assert {each.client for each in made.figures} == {"proxyless", "grpcio"}


def test_observation_is_compared_with_the_same_round_without() -> None:
    made = from_observed("P19", {"cpu_us": {"off": [10.0, 20.0], "metrics": [11.0, 23.0]}})
    (found,) = made.judgements
    assert [round(each, 2) for each in found.rounds] == [1.1, 1.15]
    assert found.outcome == MISSED


def test_incremental_xds_is_compared_with_grpcio() -> None:
    steps = {"one cluster changed": (100.0, 5.0), "new ADS stream": (200.0, 5.0)}
    part = {"one cluster changed": (1.0, 5.0), "new ADS stream": (8.0, 5.0)}
    run = {"clusters": 1000, "kilobytes_and_cpu_ms": {"grpcio": steps, "proxyless, delta": part}}
    made = from_delta("P12", run)
    assert [each.outcome for each in made.judgements] == [MET, MISSED]


def test_picks_keep_their_sizes() -> None:
    sizes = {"10": [1.0], "1000": [2.0]}
    result = {"policy": "random", "ns_rounds": sizes, "ratio": 2.0, "ratio_max": 1.5}
    made = from_picks("picks", {"results": [result]})
    assert {each.size for each in made.figures} == {10, 1000}
    assert made.judgements[0].outcome == MISSED


def test_churn_has_the_counts_at_its_marks_and_its_faults() -> None:
    counts = [
        Count(5.0, 100, 10, 3, 500, 1.0, 10, 0),
        Count(30.0, 300, 10, 3, 500, 2.0, 20, 0),
    ]
    run = churn_to_json(ChurnLoad(marks=(5.0, 30.0)), {"proxyless": counts})
    made = from_churn("churn", json.loads(json.dumps(run)))
    memory = {each.size: each.median for each in made.figures if each.measure == "rss_kb"}
    assert memory == {5: 100.0, 30: 300.0}
    assert made.judgements[0].outcome == MISSED
    assert "rss_kb grew" in next(iter(made.failures.values()))
