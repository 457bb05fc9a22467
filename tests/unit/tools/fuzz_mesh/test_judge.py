"""Unit tests of tools.fuzz_mesh.judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.fuzz_mesh.judge import judge
from tools.fuzz_mesh.records import ClientRecords, Rpc, Stall, StepTime, Timeline
from tools.fuzz_mesh.run import Run

TIMELINE = Timeline(
    (StepTime("change", 10.0), StepTime("kill", 20.0, (20.5,)), StepTime("end", 30.0)), 33.0, 34.0
)
REFUSED = "connections to all backends failing; last error: 127.0.0.1:1: connection refused"


def rpc(start_s: float, took_s: float = 0.01, code: str = "OK", details: str = "") -> Rpc:
    return Rpc("plain", start_s, start_s + took_s, code, details)


def failed(start_s: float, details: str = REFUSED) -> Rpc:
    return rpc(start_s, code="UNAVAILABLE", details=details)


# One RPC every 100 ms that is answered at once.
STEADY = tuple(rpc(10 + number / 10) for number in range(240))


def findings(
    *ours: Rpc, theirs: tuple[Rpc, ...] = (), stalls: tuple[Stall, ...] = ()
) -> list[tuple[str, int]]:
    """Kinds and steps of the findings, beside a steady load of both."""
    run = Run(TIMELINE, ClientRecords((*STEADY, *ours), stalls), ClientRecords((*STEADY, *theirs)))
    return [(finding.kind, finding.step) for finding in judge(run)]


def test_nothing_is_found_when_both_answer_all() -> None:
    assert findings() == []


def test_failure_is_found_when_only_ours_fails() -> None:
    assert findings(failed(15.0)) == [("failed", 0)]
    assert findings(failed(25.0)) == [("failed", 1)]


def test_failure_is_no_finding_when_grpcio_fails_alike_at_that_time() -> None:
    assert findings(failed(15.0), theirs=(failed(16.5),)) == []


@pytest.mark.parametrize("other", [failed(17.5), rpc(15.0, code="DEADLINE_EXCEEDED")])
def test_failure_is_found_when_grpcio_fails_later_or_with_another_code(other: Rpc) -> None:
    assert findings(failed(15.0), theirs=(other,)) == [("failed", 0)]


def test_rpc_lost_with_a_killed_backend_is_no_finding() -> None:
    lost = failed(20.45, "connection lost: closed by peer")
    assert findings(replace(lost, end_s=20.51)) == []
    # A lost RPC of grpcio's does not make another failure of ours acceptable.
    theirs = replace(lost, end_s=20.51, details="recvmsg:Connection reset by peer")
    assert findings(failed(20.6), theirs=(theirs,)) == [("failed", 1)]


def test_connection_refused_after_a_kill_is_found_even_if_it_quotes_the_loss() -> None:
    text = "connections to all backends failing; last error: recvmsg:Connection reset by peer"
    assert findings(failed(20.6, text)) == [("failed", 1)]
    assert findings(failed(20.6), theirs=(failed(20.6, text),)) == []


@pytest.mark.parametrize("start_s", [15.0, 22.0])
def test_lost_connection_is_found_when_no_backend_was_killed_then(start_s: float) -> None:
    [(kind, _)] = findings(failed(start_s, "connection lost: closed by peer"))
    assert kind == "failed"


def test_unavailable_is_no_finding_when_the_plan_has_removed_its_config() -> None:
    step = replace(TIMELINE.steps[0], outage_until_s=15.0)
    timeline = replace(TIMELINE, steps=(step, *TIMELINE.steps[1:]))

    def kinds(rpc: Rpc) -> list[str]:
        run = Run(timeline, ClientRecords((*STEADY, rpc)), ClientRecords(STEADY))
        return [finding.kind for finding in judge(run)]

    assert kinds(failed(14.9)) == []
    assert kinds(failed(15.1)) == ["failed"]
    assert kinds(rpc(14.9, code="DEADLINE_EXCEEDED")) == ["failed"]
    assert kinds(rpc(14.9, 2.1)) == ["starved"]


def test_rpc_is_starved_when_it_waits_for_long_and_none_of_grpcios_does() -> None:
    assert findings(rpc(15.0, 2.1)) == [("starved", 0)]
    assert findings(rpc(15.0, 1.9)) == []
    assert findings(rpc(15.0, 2.1), theirs=(rpc(14.5, 0.6),)) == []


def test_slow_rpc_is_no_finding_when_its_client_did_not_get_the_cpu() -> None:
    assert findings(rpc(15.0, 2.1), stalls=(Stall(15.1, 17.0, cpu_s=0.1),)) == []
    assert findings(rpc(15.0, 2.1), stalls=(Stall(15.1, 17.0, cpu_s=1.8),)) == [("starved", 0)]
    assert findings(rpc(15.0, 2.1), stalls=(Stall(25.1, 27.0, cpu_s=0.1),)) == [("starved", 0)]


@pytest.mark.parametrize("start_s", [12.5, 18.9])
def test_failure_is_no_finding_when_the_control_plane_did_not_get_the_cpu(start_s: float) -> None:
    ours, theirs = ClientRecords((*STEADY, failed(start_s))), ClientRecords(STEADY)
    long = replace(TIMELINE, stalls=(Stall(14.0, 17.0, cpu_s=3.0),))
    assert judge(Run(long, ours, theirs)) == []
    assert judge(Run(TIMELINE, ours, replace(theirs, stalls=long.stalls))) == []
    short = replace(TIMELINE, stalls=(Stall(16.1, 17.0, cpu_s=0.1),))
    assert [each.kind for each in judge(Run(short, ours, theirs))] == ["failed"]


def test_failure_at_the_end_is_found_even_if_grpcio_fails_too() -> None:
    assert findings(failed(33.5), theirs=(failed(33.5),)) == [("unquiet", 2)]


def test_rpc_that_still_waits_at_the_end_is_found() -> None:
    theirs = ClientRecords(STEADY, under_way=(25.0,))
    waiting = Run(TIMELINE, ClientRecords(STEADY, under_way=(25.0, 33.99)), theirs)
    assert [finding.kind for finding in judge(waiting)] == ["queued"]
    assert judge(Run(TIMELINE, ClientRecords(STEADY, under_way=(33.99,)), theirs)) == []


def test_nack_is_found_when_only_ours_sends_one() -> None:
    nacked = ClientRecords(STEADY, nacks=("cluster refused",))
    assert [each.kind for each in judge(Run(TIMELINE, nacked, ClientRecords(STEADY)))] == ["nack"]
    assert judge(Run(TIMELINE, nacked, nacked)) == []


def test_crash_of_ours_is_found_and_nothing_is_compared_after_a_crash_of_grpcio() -> None:
    crashed = ClientRecords(STEADY, crash="process ended with exit code -11", crash_s=18.0)
    [finding] = judge(Run(TIMELINE, crashed, ClientRecords(STEADY)))
    assert (finding.kind, finding.step) == ("crash", 0)
    ours = ClientRecords((*STEADY, failed(17.5)))
    assert judge(Run(TIMELINE, ours, crashed)) == []
    ours = ClientRecords((*STEADY, failed(13.0)))
    assert [each.kind for each in judge(Run(TIMELINE, ours, crashed))] == ["failed"]
