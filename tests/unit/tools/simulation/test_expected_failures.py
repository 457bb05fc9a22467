"""Unit tests of tools.simulation.expected_failures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tools.simulation.expected_failures import (
    EXPECTED_FAILURE_CHECKERS,
    check_circuit_breakers,
    check_drop_share,
    check_drops,
    check_ejections,
    check_injected_faults,
    is_expected_failure,
)
from tools.simulation.options import Options
from tools.simulation.plans import ClusterPlan, MeshPlan
from tools.simulation.records import ClientRecord, ClusterView, ConfigRecord, PickRecord, RpcRecord
from tools.simulation.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USUAL = Options()
WEB = "10.0.0.1:50051"
DROPPED = 'cluster "web": EDS-configured drop: too much'
FULL = 'cluster "web": circuit breaker drop: 2 RPCs are under way'


class Run:
    """A run whose records the test makes: one client, one cluster, one backend."""

    def __init__(self, options: Options) -> None:
        self.scenario = Scenario(1, replace(options, clients=0, backends=1, clusters=1))
        self.scenario.world.backend("web-0")
        share = self.scenario.options.drop_share
        cluster = ClusterPlan(((WEB,),), drop_share=share)
        self.scenario.publish(MeshPlan(1, {"": {"web": 1}}, {"web": cluster}))
        self.client = ClientRecord("client-0")
        self.scenario.recorder.channels.append(self.client)
        view = ClusterView((frozenset({WEB}),), drop_share=share)
        self.client.configs.append(ConfigRecord(0.0, 1, {"web": view}, frozenset({"web"})))

    def rpc(
        self,
        start_s: float = 1000.0,
        end_s: float = 1001.0,
        *,
        answer: str = "Complete",
        details: str = "",
        code: str = "",
    ) -> RpcRecord:
        number = len(self.scenario.recorder.rpcs)
        rpc = RpcRecord(f"rpc-{number}", self.client, "unary", "", False, 5.0, start_s)
        address = WEB if answer == "Complete" else ""
        rpc.picks.append(PickRecord(start_s, "web", address, 0, answer))
        rpc.code = code or ("UNAVAILABLE" if details else "OK")
        rpc.details, rpc.ended_s = details, end_s
        self.scenario.recorder.rpcs[rpc.name] = rpc
        return rpc

    def found(self, check: Callable[[Scenario], Iterator[str]]) -> list[str]:
        return list(check(self.scenario))


@pytest.fixture
def make_run() -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(options: Options = USUAL) -> Run:
        runs.append(Run(options))
        return runs[-1]

    yield make
    for run in runs:
        run.scenario.world.loop.close()


def test_run_without_expected_failures_has_no_violation(make_run: Callable[..., Run]) -> None:
    run = make_run()
    rpc = run.rpc()
    assert not is_expected_failure(rpc)
    assert [text for check in EXPECTED_FAILURE_CHECKERS for text in check(run.scenario)] == []


def test_drop_is_a_violation_when_its_cluster_has_no_drops(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.rpc(answer="Drop", details=DROPPED)
    assert run.found(check_drops) == ["rpc-0: dropped by 'web' at 1000.000 s, which has no drops"]
    run = make_run(Options(drop_share=0.5))
    assert is_expected_failure(run.rpc(answer="Drop", details=DROPPED))
    assert run.found(check_drops) == []


def test_drop_is_a_violation_when_its_cluster_exists(make_run: Callable[..., Run]) -> None:
    run = make_run(Options(drop_share=0.5))
    rpc = run.rpc(answer="Drop", details="cluster 'web' does not exist")
    assert not is_expected_failure(rpc)
    assert "though there is such a cluster" in run.found(check_drops)[0]
    rpc.picks[0] = PickRecord(1000.0, "gone", "", 0, "Drop")
    assert run.found(check_drops) == []


def test_drop_is_a_violation_when_the_rpc_is_picked_for_again(make_run: Callable[..., Run]) -> None:
    run = make_run(Options(drop_share=0.5))
    rpc = run.rpc(answer="Drop", details=DROPPED)
    rpc.picks.append(PickRecord(1000.5, "web", WEB, 0, "Complete"))
    assert "picked for again" in run.found(check_drops)[0]


@pytest.mark.parametrize(("dropped", "is_good"), [(0, False), (50, True), (100, False)])
def test_share_of_drops_is_about_the_configured_one(
    make_run: Callable[..., Run], dropped: int, is_good: bool
) -> None:
    run = make_run(Options(drop_share=0.5))
    for number in range(100):
        if number < dropped:
            run.rpc(answer="Drop", details=DROPPED)
        else:
            run.rpc()
    found = run.found(check_drop_share)
    assert found == ([] if is_good else [f"{dropped} of 100 picks were dropped, wanted about 50"])


def test_rpcs_under_way_are_a_violation_above_the_circuit_breaker(
    make_run: Callable[..., Run],
) -> None:
    run = make_run(Options(max_requests=2))
    run.rpc(1000.0, 1002.0)
    run.rpc(1001.0, 1003.0)
    run.rpc(1002.0, 1004.0)
    assert run.found(check_circuit_breakers) == []
    run.rpc(1002.5, 1004.0)
    assert run.found(check_circuit_breakers) == ["cluster 'web' has 3 RPCs at 1002.500 s, wanted 2"]


def test_circuit_breaker_drop_is_a_violation_below_the_limit(make_run: Callable[..., Run]) -> None:
    run = make_run(Options(max_requests=2))
    run.rpc(1000.0, 1002.0)
    run.rpc(1001.0, 1001.0, answer="Drop", details=FULL)
    assert run.found(check_circuit_breakers) == [
        "rpc-1: circuit breaker drop with 1 under way, wanted 2"
    ]
    run.rpc(1000.5, 1002.0)
    assert run.found(check_circuit_breakers) == []


def test_circuit_breaker_drop_is_a_violation_without_a_limit(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.rpc(answer="Drop", details=FULL)
    assert "though there is no limit" in run.found(check_circuit_breakers)[0]


def eject(run: Run, at_s: float, *, lasts_s: float | None = None) -> None:
    """Record the events of outlier detection for one ejection."""
    now = [at_s]
    recorder = run.scenario.recorder
    recorder.now_s = lambda: now[0]  # type: ignore[misc]
    recorder.on_event("client-0", "outlier_detection.ejected", {"endpoint": WEB})
    if lasts_s is not None:
        now[0] += lasts_s
        recorder.on_event("client-0", "outlier_detection.unejected", {"endpoint": WEB})


def test_ejection_is_a_violation_when_the_endpoint_had_no_failure(
    make_run: Callable[..., Run],
) -> None:
    run = make_run(Options(has_outlier_detection=True))
    run.rpc()
    eject(run, 1005.0)
    assert run.found(check_ejections) == [
        "client-0: 10.0.0.1:50051 ejected at 1005.000 s without a failure"
    ]
    run.rpc(details="boom")
    assert run.found(check_ejections) == []


def test_ejection_is_a_violation_when_outlier_detection_is_not_configured(
    make_run: Callable[..., Run],
) -> None:
    run = make_run()
    run.rpc(details="boom")
    eject(run, 1005.0)
    assert "outlier detection is not configured" in run.found(check_ejections)[0]


def test_ejection_is_a_violation_when_it_lasts_too_long(make_run: Callable[..., Run]) -> None:
    run = make_run(Options(has_outlier_detection=True))
    run.rpc(details="boom")
    eject(run, 1005.0, lasts_s=20.0)
    assert run.found(check_ejections) == []
    eject(run, 1005.0, lasts_s=40.0)
    assert "after longer than it may be ejected" in run.found(check_ejections)[0]


def test_endpoint_counts_as_ejected_until_the_ejection_ends(make_run: Callable[..., Run]) -> None:
    run = make_run(Options(has_outlier_detection=True))
    eject(run, 1005.0, lasts_s=10.0)
    is_ejected = run.scenario.recorder.is_ejected
    assert is_ejected("client-0", WEB, 1014.0, 1016.0)
    assert not is_ejected("client-0", WEB, 1016.0, 1020.0)
    assert not is_ejected("client-1", WEB, 1014.0, 1016.0)
    assert not is_ejected("client-0", "10.0.0.2:50051", 1014.0, 1016.0)


def test_aborts_are_a_violation_when_no_faults_are_injected(make_run: Callable[..., Run]) -> None:
    run = make_run()
    assert is_expected_failure(run.rpc(code="ABORTED"))
    assert run.found(check_injected_faults) == ["1 of 1 RPCs were aborted, wanted about 0"]
    run = make_run(Options(has_injected_faults=True))
    run.rpc(code="ABORTED")
    assert run.found(check_injected_faults) == []
