"""Unit tests of tools.simulation.shrink."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tools.simulation.options import CALM_S, LONG_CALM_S, Options
from tools.simulation.report import Outcome
from tools.simulation.shrink import FAULTS_MIN_S, RUNS_MAX, cut_log, shrink, smaller_options

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = Options(
    clients=3,
    backends=8,
    clusters=3,
    lb_policy="RING_HASH",
    rpcs_per_s=2.5,
    has_dns=True,
    has_sessions=True,
    is_paced=False,
    steady=3,
    calm_s=LONG_CALM_S,
    workloads=("config churn", "endpoint churn", "backend faults"),
)


def fake_run(fails: Callable[[int, Options], bool]) -> Callable[[int, Options], Outcome]:
    """A run with a planted violation if `fails` returns True, and always another one."""

    def run(seed: int, options: Options) -> Outcome:
        kinds = ("check_planted", "check_other") if fails(seed, options) else ("check_other",)
        kinds = kinds if options == LARGE else kinds[::-1]
        return Outcome(seed, "", tuple(f"of {each}" for each in kinds), Counter(), kinds=kinds)

    return run


def test_shrunk_run_has_only_the_options_that_the_violation_needs() -> None:
    def fails(_: int, options: Options) -> bool:
        return options.has_dns and "backend faults" in options.workloads and options.backends >= 4

    found = shrink(7, LARGE, fake_run(fails))
    assert found.seed == 7
    assert found.violation == "of check_planted"
    assert found.options == replace(
        Options(),
        clients=1,
        backends=4,
        clusters=1,
        rpcs_per_s=0.25,
        has_dns=True,
        steady=1,
        faults_s=FAULTS_MIN_S,
        workloads=("backend faults",),
    )


def test_run_is_not_shrunk_when_only_another_kind_of_violation_remains() -> None:
    found = shrink(7, LARGE, fake_run(lambda _, options: options == LARGE))
    assert found.options == LARGE


def test_smaller_run_may_have_another_seed() -> None:
    found = shrink(7, LARGE, fake_run(lambda seed, options: options == LARGE or seed == 8))
    assert found.seed == 8
    assert found.options.workloads == ()


def test_search_ends_after_the_maximum_of_runs() -> None:
    runs: list[int] = []

    def fails(seed: int, options: Options) -> bool:
        runs.append(seed)
        return options == LARGE

    assert shrink(7, LARGE, fake_run(fails), runs_max=5).runs == len(runs) == 5
    assert RUNS_MAX > 5


def test_shrink_raises_when_the_run_has_no_violation() -> None:
    def run(seed: int, _: Options) -> Outcome:
        return Outcome(seed, "", (), Counter())

    with pytest.raises(ValueError, match="seed 7 fails nothing"):
        shrink(7, LARGE, run)


def test_each_smaller_option_is_valid_and_differs_in_one_thing() -> None:
    steps = dict(smaller_options(LARGE))
    for options in steps.values():
        assert options != LARGE
        assert options.backends >= options.clusters >= options.steady
        assert min(options.clients, options.clusters, options.localities) > 0
    assert steps["calm_s"] == replace(LARGE, calm_s=CALM_S)
    assert steps["one of clusters"] == replace(LARGE, clusters=1, steady=1)
    assert steps["no config churn"].workloads == ("endpoint churn", "backend faults")


LOG = [
    " 1000.000000 web-1        fault.cut                  others=[client-0]",
    " 1050.000000 web-1        fault.heal                 others=[client-0]",
    " 1051.000000 client-0     rpc.start                  rpc=rpc-1 kind=unary",
    " 1052.000000 client-1     priority.choice            priority=0",
    " 1052.500000 client-0     priority.choice            priority=1",
    " 1053.000000 client-0     rpc.start                  rpc=rpc-12 kind=unary",
    " 1053.100000 client-0     rpc.end                    rpc=rpc-1 code=UNAVAILABLE",
    " 1060.000000 client-0     priority.choice            priority=0",
]


def test_cut_log_has_the_rpc_its_host_and_the_faults_before_it() -> None:
    found = cut_log(LOG, "rpc-1 of client-0, started at 1051.000 s: UNAVAILABLE")
    assert found == [LOG[1], LOG[2], LOG[4], LOG[6]]


def test_cut_log_has_lines_with_the_addresses_and_clusters_of_the_violation() -> None:
    lines = [
        " 1000.000000 client-0     subchannel.state           address=10.0.0.1:80 state=READY",
        " 1000.000000 client-1     subchannel.state           address=10.0.0.11:80 state=READY",
        " 1000.000000 client-1     xds.request                names=[web,late-1]",
        " 1000.000000 client-1     xds.request                names=[late-12]",
    ]
    violation = "picked 10.0.0.1:80, which is not in cluster 'late-1'"
    assert cut_log(lines, violation) == [lines[0], lines[2]]


def test_cut_log_has_at_most_the_newest_lines() -> None:
    lines = [f" {1000 + n}.000000 client-0     xds.request    n={n}" for n in range(200)]
    assert cut_log(lines, "client-0: never had a config", lines_max=3) == lines[-3:]
    assert cut_log([], "client-0: never had a config") == []
