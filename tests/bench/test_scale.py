"""Scale benchmark: targets, output and meshes."""

import asyncio
import json

import pytest

from bench import scale_rows
from bench.clients import CLIENTS, METHOD
from bench.meshes import MESHES, loopback_address
from bench.pacing import run_paced
from bench.scale import select_rows
from bench.scale_targets import (
    OURS,
    REFERENCE,
    ROWS,
    TARGETS,
    ScaleResults,
    ScaleTarget,
    format_results,
    format_verdicts,
    is_acceptable,
    judge,
    to_json,
)
from bench.targets import Outcome
from proxyless.controlplane import ENDPOINTS, ROUTE_CONFIG, Snapshot

CLIENT = OURS[0]
PORTS = [50_001, 50_002]


def results(row: str, measure: str, values: dict[tuple[int, str], list[float]]) -> ScaleResults:
    made = ScaleResults()
    for (size, client), rounds in values.items():
        for value in rounds:
            made.add(row, size, client, {measure: value})
    return made


# Targets.


@pytest.mark.parametrize(
    ("kind", "got"),
    [("ratio", 0.5), ("value", 100.0), ("no_more", -100.0), ("flat", 5.0), ("linear", 0.5)],
)
def test_each_kind_of_target_compares_medians(kind: str, got: float) -> None:
    run = results(
        "idle",
        "cpu_s",
        {
            (100, CLIENT): [90.0, 100.0, 1000.0],
            (100, REFERENCE): [200.0],
            (10, CLIENT): [20.0],
        },
    )
    target = ScaleTarget("idle", "cpu_s", kind, 1.0, 100, 10)  # type: ignore[arg-type]
    [verdict] = judge(run, [REFERENCE, CLIENT], [target])
    assert verdict.got == pytest.approx(got)


def test_slope_is_the_cost_per_unit_without_the_base_cost() -> None:
    run = results(
        "leave_and_return",
        "rss_kb_0",
        {
            (100, CLIENT): [1900.0],
            (10, CLIENT): [1000.0],
            (100, REFERENCE): [2000.0],
            (10, REFERENCE): [200.0],
        },
    )
    target = ScaleTarget("leave_and_return", "rss_kb_0", "slope", 0.8, 100, 10)
    [verdict] = judge(run, [REFERENCE, CLIENT], [target])
    assert verdict.got == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "outcome"), [(0.3, Outcome.PASS), (0.31, Outcome.MISS), (None, Outcome.NOT_MEASURED)]
)
def test_target_is_met_up_to_its_limit(value: float | None, outcome: Outcome) -> None:
    values = {(1, REFERENCE): [1.0]}
    if value is not None:
        values[1, CLIENT] = [value]
    run = results("cold_start", "first_rpc_s", values)
    [verdict] = judge(run, [CLIENT], [ScaleTarget("cold_start", "first_rpc_s", "ratio", 0.3)])
    assert verdict.outcome is outcome
    assert is_acceptable([verdict]) == (outcome is Outcome.PASS)


def test_target_is_not_measured_when_the_reference_is_zero() -> None:
    run = results("idle", "cpu_percent", {(1, CLIENT): [1.0], (1, REFERENCE): [0.0]})
    [verdict] = judge(run, [CLIENT], [ScaleTarget("idle", "cpu_percent", "ratio", 1.0)])
    assert verdict.outcome is Outcome.NOT_MEASURED


def test_every_target_has_an_existing_row_and_size() -> None:
    sizes = {row.name: row.sizes for row in ROWS}
    for target in TARGETS:
        assert target.size in sizes[target.row], target
        if target.kind in {"slope", "flat", "linear"}:
            assert target.base in sizes[target.row], target


def test_every_row_can_be_run_by_every_client() -> None:
    assert all(callable(getattr(scale_rows, row.name)) for row in ROWS)
    assert {CLIENTS[client].backend for client in (REFERENCE, *OURS)} == {"xds"}


# Selection and output.


def test_rows_are_chosen_by_number_or_name() -> None:
    assert [row.name for row in select_rows(["P8", "idle"])] == [
        "routes_by_path",
        "routes_by_header",
        "idle",
    ]
    assert select_rows(None) == list(ROWS)
    with pytest.raises(ValueError, match="unknown row 'P99', wanted one of P8, P9"):
        select_rows(["P99"])


def test_results_have_the_median_the_extremes_and_the_ratio() -> None:
    run = results("idle", "cpu_percent", {(10, REFERENCE): [2.0], (10, CLIENT): [1.0, 3.0, 1.5]})
    line = format_results(run, [REFERENCE, CLIENT]).splitlines()[1].split()
    assert line == ["idle", "10", "cpu_percent", "2", "(2-2)", "1.5", "(1-3)", "0.750"]


def test_verdicts_have_limit_value_and_outcome() -> None:
    run = results("cold_start", "first_rpc_s", {(1, REFERENCE): [1.0], (1, CLIENT): [2.0]})
    verdicts = judge(run, [CLIENT], [ScaleTarget("cold_start", "first_rpc_s", "ratio", 1.3)])
    line = format_verdicts(verdicts).splitlines()[1].split()
    assert line == ["cold_start:", "first_rpc_s,", "ratio", CLIENT, "≤", "1.3", "2.000", "missed"]


def test_json_has_every_round_and_the_verdicts() -> None:
    run = results("cold_start", "first_rpc_s", {(1, REFERENCE): [1.0, 3.0], (1, CLIENT): [2.0]})
    run.failures["P13 cold_start"] = "no answer"
    verdicts = judge(run, [CLIENT], [ScaleTarget("cold_start", "first_rpc_s", "ratio", 1.3)])
    value = json.loads(json.dumps(to_json(run, verdicts, {"cpus": 2})))
    assert value["results"][0]["rounds"] == [1.0, 3.0]
    assert value["targets"][0]["outcome"] == "pass"
    assert value["failures"] == {"P13 cold_start": "no answer"}


# Meshes.


def test_every_endpoint_has_its_own_address() -> None:
    addresses = {loopback_address(number, PORTS) for number in range(100_000)}
    assert len(addresses) == 100_000
    assert loopback_address(257, PORTS) == "127.1.1.1:50002"


def test_added_endpoint_is_last() -> None:
    snapshot = Snapshot.of(MESHES["many_endpoints"](count=2, ports=PORTS, added=[7]))
    found = snapshot.resources(ENDPOINTS)["c"].message().endpoints[0].lb_endpoints
    hosts = [each.endpoint.address.socket_address.address for each in found]
    assert hosts == ["127.1.0.0", "127.1.0.1", "127.1.0.7"]


@pytest.mark.parametrize("mesh", ["path_routes", "many_clusters"])
def test_only_the_last_route_matches_the_method(mesh: str) -> None:
    where = {"ports": PORTS} if mesh == "many_clusters" else {"addresses": ["127.0.0.1:50001"]}
    snapshot = Snapshot.of(MESHES[mesh](count=5, **where))
    [config] = snapshot.resources(ROUTE_CONFIG).values()
    paths = [each.match.path for each in config.message().virtual_hosts[0].routes]
    assert [path == METHOD for path in paths] == [False, False, False, False, True]


# Pacing.


async def test_paced_run_does_not_wait_for_responses() -> None:
    has_second_call = asyncio.Event()
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            has_second_call.set()
        await has_second_call.wait()

    assert await run_paced(call, rate_per_s=1000.0, duration_s=0.1) == calls
    assert calls > 1
