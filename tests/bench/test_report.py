"""Statistics, targets, plan and output of the benchmark, without starting processes."""

import json

import pytest

from bench.clients import CLIENTS
from bench.interleave import can_run, rotated
from bench.report import Results, format_columns, format_results, format_verdicts, to_json
from bench.samples import Sample, percentile, summarise
from bench.selection import select_names
from bench.targets import (
    TARGETS,
    Outcome,
    Target,
    cpu_ratio,
    cpu_ratio_range,
    gain,
    is_acceptable,
    judge,
)
from bench.workloads import WORKLOADS

UNARY = "unary-16B-100"
STREAM = "stream-16B-1"
OURS = "transport_uvloop"


def sample(cpu_us: float, operations: int = 1000, wall_s: float = 1.0) -> Sample:
    return Sample(operations, cpu_us * operations / 1e6, wall_s)


def results(cpu_us_rounds: dict[str, list[float]], workload: str = UNARY) -> Results:
    made = Results()
    for client, rounds in cpu_us_rounds.items():
        for cpu_us in rounds:
            made.add(workload, client, sample(cpu_us))
    return made


# Statistics.


def test_summary_is_the_median_of_the_rounds_not_the_mean() -> None:
    summary = summarise([sample(10), sample(1000), sample(11), sample(9), sample(12)])
    assert summary.cpu_us == pytest.approx(11)
    assert summary.per_cpu_s == pytest.approx(1e6 / 11)


def test_spread_is_the_distance_of_the_extremes_over_the_median() -> None:
    summary = summarise([sample(8), sample(10), sample(14)])
    assert summary.spread == pytest.approx(0.6)


def test_rate_is_operations_over_wall_time() -> None:
    summary = summarise([sample(10, operations=500, wall_s=2.0)])
    assert summary.rate_per_s == pytest.approx(250)


def test_rate_is_a_megabyte_per_second_for_a_byte_per_microsecond() -> None:
    assert summarise([sample(64)]).megabytes_per_cpu_s(65_536) == pytest.approx(1024)


def test_column_is_not_summarised_when_one_round_lacks_it() -> None:
    complete = Sample(10, 0.1, 1.0, p50_us=3.0, p99_us=9.0, backend_busy=0.5)
    assert summarise([complete, complete]).p50_us == pytest.approx(3.0)
    mixed = summarise([complete, sample(10)])
    assert (mixed.p50_us, mixed.p99_us, mixed.backend_busy) == (None, None, None)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.99) == 7.0


# Ratios and targets.


def test_gain_is_the_inverse_of_the_cpu_ratio() -> None:
    ours, reference = summarise([sample(10)]), summarise([sample(80)])
    assert cpu_ratio(ours, reference) == pytest.approx(0.125)
    assert gain(ours, reference) == pytest.approx(8.0)


def test_ratio_range_compares_each_round_with_the_same_round() -> None:
    ours, reference = summarise([sample(10), sample(30)]), summarise([sample(100), sample(200)])
    assert cpu_ratio_range(ours, reference) == pytest.approx((0.10, 0.15))


def test_ratio_range_has_only_rounds_of_both_clients() -> None:
    ours, reference = summarise([sample(10)]), summarise([sample(100), sample(1)])
    assert cpu_ratio_range(ours, reference) == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize(
    ("measure", "ours_us", "outcome"),
    [
        ("cpu", 24.0, Outcome.PASS),
        ("cpu", 25.0, Outcome.PASS),
        ("cpu", 26.0, Outcome.MISS),
        ("gain", 26.0, Outcome.MISS),
        ("gain", 25.0, Outcome.PASS),
        ("gain", 24.0, Outcome.PASS),
    ],
)
def test_target_is_met_up_to_its_limit(measure: str, ours_us: float, outcome: Outcome) -> None:
    target = (
        Target(OURS, UNARY, "cpu", 0.25) if measure == "cpu" else Target(OURS, UNARY, "gain", 4)
    )
    summaries = results({"grpc_aio": [100.0], OURS: [ours_us]}).summaries()
    [verdict] = judge(summaries, [target])
    assert verdict.outcome is outcome


@pytest.mark.parametrize("client", ["grpc_aio", OURS])
def test_target_is_not_measured_without_both_clients(client: str) -> None:
    summaries = results({client: [1.0]}).summaries()
    [verdict] = judge(summaries, [Target(OURS, UNARY, "cpu", 0.25)])
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert verdict.got is None


def test_rate_and_latency_are_compared_with_the_client_s_own_reference() -> None:
    run = Results()
    for client, wall_s, p50_us in (("grpc_sync", 2.0, 300.0), ("channel_sync", 0.5, 150.0)):
        run.add("blocking-16B-8", client, Sample(1000, 0.1, wall_s, p50_us, p50_us))
    run.add("blocking-16B-8", "grpc_aio", Sample(1000, 0.1, 0.001, 1.0, 1.0))
    targets = [
        Target("channel_sync", "blocking-16B-8", "rate", 4.0),
        Target("channel_sync", "blocking-16B-8", "p50", 0.4),
    ]
    rate, latency = judge(run.summaries(), targets)
    assert (rate.outcome, latency.outcome) == (Outcome.PASS, Outcome.MISS)
    assert rate.got == pytest.approx(4.0)
    assert latency.got == pytest.approx(0.5)


def test_run_is_acceptable_only_when_a_target_passed_and_none_missed() -> None:
    target, strict = Target(OURS, UNARY, "cpu", 0.25), Target(OURS, UNARY, "cpu", 0.01)
    absent = Target(OURS, STREAM, "gain", 4.0)
    summaries = results({"grpc_aio": [100.0], OURS: [20.0]}).summaries()
    assert is_acceptable(judge(summaries, [target, absent]))
    assert not is_acceptable(judge(summaries, [target, strict]))
    assert not is_acceptable(judge(summaries, [absent]))


def test_every_target_has_an_existing_workload() -> None:
    assert {target.workload for target in TARGETS} <= set(WORKLOADS)


# Plan.


def test_exact_name_is_preferred_to_a_prefix() -> None:
    assert select_names(WORKLOADS, ["unary-16B-1"]) == ["unary-16B-1"]
    assert select_names(["lean_a", "grpc", "lean_b"], ["lean"]) == ["lean_a", "lean_b"]


def test_selected_names_keep_their_order_without_duplicates() -> None:
    assert select_names(["a", "b", "c"], ["c", "a", "c"]) == ["a", "c"]


def test_unknown_name_is_refused_with_the_valid_names() -> None:
    with pytest.raises(ValueError, match="unknown name 'x', wanted one of a, b"):
        select_names(["a", "b"], ["x"])


def test_order_of_clients_rotates_with_each_round() -> None:
    firsts = [rotated(["a", "b", "c"], turn)[0] for turn in range(3)]
    assert firsts == ["a", "b", "c"]
    assert rotated(["a", "b", "c"], 4) == ["b", "c", "a"]
    assert rotated([], 4) == []


def test_plain_tcp_does_not_run_streams() -> None:
    assert can_run("raw_uvloop", UNARY)
    assert not can_run("raw_uvloop", STREAM)
    assert can_run("grpc_aio", STREAM)


def test_blocking_and_asyncio_clients_have_separate_workloads() -> None:
    assert can_run("channel_sync", "blocking-16B-8")
    assert not can_run("channel_sync", UNARY)
    assert not can_run("channel_uvloop", "blocking-16B-8")
    assert can_run("channel_uvloop", STREAM)


def test_every_reference_is_blocking_like_its_client() -> None:
    for name, kind in CLIENTS.items():
        assert CLIENTS[kind.reference].is_blocking == kind.is_blocking, name


def test_stream_request_has_the_count_and_size_of_messages() -> None:
    assert WORKLOADS[STREAM].request() == b"\xffSTR" + b"\0\0\x03\xe8" + b"\0\0\0\x10"
    assert WORKLOADS[UNARY].request() == b"x" * 16


# Output.


def test_columns_are_aligned() -> None:
    assert format_columns([("name", "n"), ("a", "100")]) == "name    n\na     100"


def test_unary_block_has_cost_and_share_of_the_reference() -> None:
    head, _, ours = format_results(
        results({"grpc_aio": [100.0, 100.0], OURS: [10.0, 12.0]}).summaries()
    ).splitlines()
    assert head.split()[0] == UNARY
    assert ours.split() == [OURS, "11.0", "18%", "1,000", "-", "-", "-", "0.110", "0.100-0.120"]


def test_stream_block_has_messages_per_cpu_second_and_gain() -> None:
    summaries = results({"grpc_aio": [80.0], OURS: [4.0]}, STREAM).summaries()
    ours = format_results(summaries).splitlines()[-1].split()
    assert ours == [OURS, "4.0", "0%", "1,000", "250,000", "4.0", "-", "20.00", "20.00-20.00"]


def test_there_is_no_ratio_without_the_reference() -> None:
    line = format_results(results({OURS: [10.0]}).summaries()).splitlines()[-1]
    assert line.split()[-2:] == ["-", "-"]


def test_verdicts_have_limit_value_and_outcome() -> None:
    summaries = results({"grpc_aio": [100.0], OURS: [30.0]}).summaries()
    verdicts = judge(
        summaries, [Target(OURS, UNARY, "cpu", 0.25), Target(OURS, STREAM, "gain", 4.0)]
    )
    _, missed, absent = format_verdicts(verdicts).splitlines()
    assert missed.split() == [UNARY, OURS, "cpu", "≤", "0.25", "0.300", "miss"]
    assert absent.split() == [STREAM, OURS, "gain", "≥", "4.00×", "-", "not", "measured"]


def test_json_has_every_round_the_median_the_ratio_and_the_verdicts() -> None:
    run = results({"grpc_aio": [100.0, 120.0, 80.0], OURS: [10.0, 20.0, 30.0]})
    run.unavailable["lean_uvloop"] = "no uvloop"
    verdicts = judge(run.summaries(), [Target(OURS, UNARY, "cpu", 0.25)])
    value = json.loads(json.dumps(to_json(run, verdicts, {"python": "3.11"})))
    ours = value["results"][1]
    assert (ours["client"], ours["workload"], len(ours["rounds"])) == (OURS, UNARY, 3)
    assert ours["median"]["cpu_us"] == pytest.approx(20.0)
    assert ours["cpu_ratio"] == pytest.approx(0.2)
    assert value["targets"][0]["outcome"] == "pass"
    assert value["unavailable"] == {"lean_uvloop": "no uvloop"}
    assert value["environment"] == {"python": "3.11"}
