"""Unit tests of proxyless.demo.verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyless.demo.story import STORY, StepLog
from proxyless.demo.traffic import Rpc
from proxyless.demo.verdict import Evidence, Verdict, failover_s, is_excused, judge, to_json

# Each step is seen at once and shown for three seconds.
BEGINS = {step.key: 3.0 * index for index, step in enumerate(STORY)}
# Backend that answers in each step; after the move the session stays on a1.
SERVERS = dict(zip(BEGINS, ("a1", "b1", "c1", "a1", "a2", "a2", "c2", "c2", "a2"), strict=True))
LOGS = tuple(
    StepLog(key, begin_s, begin_s, begin_s, begin_s + 3.0, moved="a1" if key == "move" else "")
    for key, begin_s in BEGINS.items()
)


def rpc_at(started_s: float, backend: str, *, is_session: bool = False) -> Rpc:
    return Rpc(started_s, started_s + 0.005, is_session, backend, f"peer of {backend}")


def good_rpcs() -> list[Rpc]:
    """Twenty RPCs a second, and ten of a session, all successful."""
    rpcs = []
    for key, begin_s in BEGINS.items():
        for number in range(60):
            rpcs.append(rpc_at(begin_s + 0.01 + number / 20, SERVERS[key]))
            home = "a1" if key == "move" else SERVERS[key]
            if number % 2:
                rpcs.append(rpc_at(begin_s + 0.01 + number / 20, home, is_session=True))
    return sorted(rpcs, key=lambda rpc: rpc.ended_s)


def judged(rpcs: list[Rpc], logs: tuple[StepLog, ...] = LOGS) -> Verdict:
    return judge(Evidence(STORY, logs, len(rpcs), rpcs))


def bad_rows(verdict: Verdict) -> dict[str, str]:
    return {row.name: row.value for row in verdict.rows if not row.is_good}


def rows(verdict: Verdict) -> dict[str, str]:
    return {row.name: row.value for row in verdict.rows}


def test_verdict_is_good_when_all_rpcs_succeed() -> None:
    verdict = judged(good_rpcs())
    assert bad_rows(verdict) == {}
    assert verdict.is_good
    assert rows(verdict) == {
        "story": "9 of 9 steps seen",
        "RPCs sent": "810",
        "RPCs failed": "none",
        "latency": "median 5 ms, 99 % 5 ms, longest 5 ms",
        "failover a to b": "0 ms, longest RPC 5 ms",
        "failover b to DNS": "0 ms, longest RPC 5 ms",
        "session": "stayed on a1, one connection, when that changed priority",
        "tear": "none: 90 RPCs on the old cluster, then 90 on the new one, longest 5 ms",
        "control plane": "90 of 90 RPCs answered in the 3.0 s without it",
    }


def test_json_has_the_rows() -> None:
    document = to_json(judged(good_rpcs()))
    assert document["good"] is True
    assert document["rows"][0] == {  # type: ignore[index]
        "name": "story",
        "value": "9 of 9 steps seen",
        "good": True,
    }


def test_missed_step_is_reported_with_its_expectation() -> None:
    missed = StepLog("kill-a", 3.0, 3.0, got="RPCs are answered by no backend")
    verdict = judged(good_rpcs(), (LOGS[0], missed))
    assert not verdict.is_good
    assert bad_rows(verdict) == {
        "story": "1 of 9 steps seen; zone a is killed: got: RPCs are answered by no backend, "
        "wanted: zone b, priority 1, answers every RPC"
    }


def test_verdict_is_bad_when_an_rpc_never_ended() -> None:
    rpcs = good_rpcs()
    assert "RPCs sent" in bad_rows(judge(Evidence(STORY, LOGS, len(rpcs) + 1, rpcs)))
    assert {"RPCs sent", "latency"} <= set(bad_rows(judge(Evidence(STORY, (), 0, []))))


# Failures

LOST = Rpc(2.999, 3.002, is_session=False, code="UNAVAILABLE", details="connection lost: closed")


@pytest.mark.parametrize(
    ("rpc", "is_excusable"),
    [
        (LOST, True),
        (replace(LOST, ended_s=2.9995), False),
        (replace(LOST, ended_s=4.1), False),
        (replace(LOST, code="DEADLINE_EXCEEDED"), False),
        (replace(LOST, details="no backend is reachable"), False),
    ],
)
def test_failure_is_excused_only_on_a_killed_backend(rpc: Rpc, is_excusable: bool) -> None:
    assert is_excused(rpc, [3.0]) is is_excusable
    assert not is_excused(rpc, [])
    verdict = judged([*good_rpcs(), rpc])
    assert verdict.is_good is is_excusable


def test_failures_are_counted_by_reason() -> None:
    lost = judged([*good_rpcs(), LOST, LOST])
    assert rows(lost)["RPCs failed"] == "2 UNAVAILABLE on a killed backend"
    bad = Rpc(1.0, 1.1, is_session=False, code="INTERNAL", details="bad")
    assert rows(judged([*good_rpcs(), LOST, bad, bad]))["RPCs failed"] == (
        "2 INTERNAL: bad, 1 UNAVAILABLE on a killed backend"
    )
    many = [replace(bad, details=str(number)) for number in range(9)]
    assert rows(judged([*good_rpcs(), *many]))["RPCs failed"].endswith("and 6 other reasons")


# Failover


def test_failover_ends_with_the_last_failure_before_a_second_without_failures() -> None:
    rpcs = [rpc_at(number / 10, "b1") for number in range(31)]
    assert failover_s(rpcs, 1.0, {"a1"}) == 0.0
    rpcs[14] = Rpc(1.4, 1.45, is_session=False, code="UNAVAILABLE")
    assert failover_s(rpcs, 1.0, {"a1"}) == pytest.approx(0.45)
    rpcs[16] = Rpc(1.6, 1.65, is_session=False, backend="a1")
    assert failover_s(rpcs, 1.0, {"a1"}) == pytest.approx(0.65)
    rpcs[25] = Rpc(2.5, 2.55, is_session=False, code="UNAVAILABLE")
    assert failover_s(rpcs, 1.0, {"a1"}) is None, "no second without failures"


def test_slow_failover_is_bad() -> None:
    waited = Rpc(3.1, 5.9, is_session=False, backend="b1")
    assert bad_rows(judged([*good_rpcs(), waited])) == {
        "failover a to b": "0 ms, longest RPC 2800 ms"
    }


# The session


@pytest.mark.parametrize("to", [("b1", "peer of b1"), ("a1", "another peer")])
def test_session_that_leaves_its_connection_is_bad(to: tuple[str, str]) -> None:
    rpcs = good_rpcs()
    backend, peer = to
    for index, rpc in enumerate(rpcs):
        if rpc.is_session and 13.5 < rpc.started_s < 15.0:
            rpcs[index] = replace(rpc, backend=backend, peer=peer)
    assert set(bad_rows(judged(rpcs))) == {"session"}


def test_session_that_was_never_on_the_moved_endpoint_is_bad() -> None:
    logs = tuple(replace(log, moved="b2") if log.key == "move" else log for log in LOGS)
    assert bad_rows(judged(good_rpcs(), logs)) == {"session": "answered by a1, 1 connections"}


# The tear

ROUTE_S, LATE_S = BEGINS["route"], BEGINS["late"]


@pytest.mark.parametrize(
    ("rpc", "text"),
    [
        (
            Rpc(ROUTE_S + 1, ROUTE_S + 1.1, is_session=False, code="UNAVAILABLE", details="x"),
            "1 RPCs failed",
        ),
        (rpc_at(LATE_S - 1, "c2"), "the new cluster answered before it was there"),
        (
            rpc_at(LATE_S + 2, "a2"),
            "1 RPCs went to the old cluster after the new one was in use",
        ),
        (
            Rpc(ROUTE_S + 0.1, LATE_S + 0.1, is_session=False, backend="c2"),
            "an RPC waited 3000 ms",
        ),
    ],
)
def test_each_kind_of_tear_is_reported(rpc: Rpc, text: str) -> None:
    rpcs = sorted([*good_rpcs(), rpc], key=lambda each: each.ended_s)
    assert text in bad_rows(judged(rpcs))["tear"].split("; ")


def test_new_cluster_that_never_answers_is_a_tear() -> None:
    rpcs = [replace(rpc, backend="a2") if rpc.backend == "c2" else rpc for rpc in good_rpcs()]
    assert bad_rows(judged(rpcs))["tear"] == "the new cluster answered nothing"


# The control plane


def test_failure_while_the_control_plane_is_stopped_is_bad() -> None:
    stop_s = BEGINS["stop"]
    rpc = Rpc(stop_s + 1, stop_s + 1.1, is_session=False, code="UNAVAILABLE", details="x")
    text = bad_rows(judged([*good_rpcs(), rpc]))["control plane"]
    assert text == "90 of 91 RPCs answered in the 3.0 s without it"
