"""Unit tests of proxyless.sim.rehearsal.faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.sim.rehearsal.mesh import B1, run, two_zones

if TYPE_CHECKING:
    from proxyless.sim.rehearsal.report import Phase


def phases(action: str, *, lasts: str = ", for: 10s", more: str = "") -> tuple[Phase, ...]:
    """The phases before, during and after a fault; RPCs have a timeout of a second."""
    text = f"{{duration: 60s, rate: 5, timeout: 1s, events: [{{at: 10s, {action}{lasts}}}{more}]}}"
    report = run(text, two_zones(), *([two_zones(c=[B1])] if "push" in more else []))
    assert report.phases[0].failed == 0
    assert all(verdict.is_held for verdict in report.verdicts), report.verdicts
    return report.phases


def zones(phase: Phase) -> set[str]:
    return {share.zone for share in phase.shares}


@pytest.mark.parametrize("fault", ["kill", "stop", "lose_power"])
def test_stopped_endpoints_get_no_rpcs_until_they_are_started(fault: str) -> None:
    _, during, after = phases(f"{fault}: {{zone: a}}")
    assert "b" in zones(during)
    assert "a" in zones(after)


@pytest.mark.parametrize("fault", ["hang", "cut"])
def test_rpcs_to_silent_endpoints_wait_until_they_are_healed(fault: str) -> None:
    _, during, after = phases(f"{fault}: {{zone: a}}")
    # RPCs that were sent in the last second arrive after the end.
    assert during.failed >= 40
    assert {each.code for each in during.failures} == {"DEADLINE_EXCEEDED"}
    assert after.failed == 0


def test_one_heal_ends_two_cuts_and_hangs() -> None:
    more = "".join(f", {{at: {at}s, {fault}: all}}" for at, fault in ((11, "cut"), (12, "hang")))
    *_, after = phases(
        "cut: all", lasts="", more=f"{more}, {{at: 13s, hang: all}}, {{at: 20s, heal: all}}"
    )
    assert after.rpcs == 200
    assert after.failed == 0


def test_slow_endpoints_delay_rpcs() -> None:
    _, during, after = phases("slow: {all: true, by: 300ms}")
    assert during.median_s == pytest.approx(0.3, abs=0.05)
    assert after.median_s == pytest.approx(0.0, abs=0.05)


def test_failing_endpoints_return_the_code() -> None:
    _, during, after = phases("fail: {all: true, with: DATA_LOSS}")
    assert [(each.code, each.times) for each in during.failures] == [("DATA_LOSS", 50)]
    assert after.failed == 0


def test_throttled_endpoints_receive_and_send_slowly() -> None:
    before, during, after = phases("throttle: {zone: a, bytes_per_s: 2000}")
    assert before.median_s is not None
    assert during.median_s is not None
    assert during.median_s > 10 * before.median_s
    assert after.failed == 0


def test_goaway_fails_no_rpc() -> None:
    _, after = phases("goaway: all", lasts="")
    assert after.failed == 0
    assert zones(after) == {"a"}


def test_reset_connections_are_connected_again() -> None:
    _, after = phases("reset: all", lasts="")
    assert after.failed <= 1
    assert "a" in zones(after)


@pytest.mark.parametrize(
    ("fault", "lasts"),
    [
        ("stop", ", for: 20s"),
        ("cut", ", for: 20s"),
        ("hang", ", for: 20s"),
        ("{withhold: endpoints}", ", for: 20s"),
        ("{withhold: {endpoints: [cart]}}", ", for: 20s"),
        ("{delay: 15s}", ""),
        ("break_streams", ""),
    ],
)
def test_control_plane_fault_delays_a_push_and_fails_no_rpc(fault: str, lasts: str) -> None:
    push = ", {at: 12s, push: x}"
    found = phases(f"control_plane: {fault}", lasts=lasts, more=push)
    assert sum(phase.failed for phase in found) == 0
    # The push arrives after the fault.
    is_held_back = fault != "break_streams"
    assert ("a" in zones(found[2])) == is_held_back
    assert "c" in zones(found[-1])


def shown(text: str) -> list[tuple[float, set[str], int]]:
    """Start, zones with RPCs, and number of failures of each phase."""
    report = run(f"{{duration: 60s, rate: 20, timeout: 1s, events: [{text}]}}")
    return [(each.start_s, zones(each), each.failed) for each in report.phases]


def test_end_of_one_fault_does_not_end_another() -> None:
    """Both zones are cut until 0:40; other faults end before."""
    *_, late, after = shown(
        "{at: 10s, cut: all, for: 30s}, {at: 12s, slow: {all: true, by: 1ms}, for: 8s}"
    )
    assert late[0] == 20.0
    # RPCs of the last second arrive after the end.
    assert late[2] >= 380
    assert after == (40.0, {"a"}, 0)


def test_overlapping_stops_end_with_the_later_one() -> None:
    *_, late, after = shown(
        "{at: 10s, kill: {zone: a}, for: 10s}, {at: 15s, stop: {zone: a}, for: 30s}"
    )
    assert late == (20.0, {"b"}, 0)
    assert (after[0], "a" in after[1]) == (45.0, True)


def test_permanent_stop_outlasts_a_shorter_one() -> None:
    *_, late = shown("{at: 10s, kill: {zone: a}}, {at: 15s, kill: {zone: a}, for: 5s}")
    assert late == (20.0, {"b"}, 0)


def test_end_of_a_fault_does_not_start_an_endpoint_that_was_killed_again() -> None:
    kill = "kill: {zone: a}"
    *_, late = shown(
        f"{{at: 5s, {kill}, for: 25s}}, {{at: 10s, start: {{zone: a}}}}, {{at: 25s, {kill}}}"
    )
    assert late == (30.0, {"b"}, 0)


def test_end_of_a_delay_does_not_end_a_cut_of_the_control_plane() -> None:
    report = run(
        """
        {duration: 30s, events: [
        {at: 1s, control_plane: cut, for: 20s},
        {at: 2s, control_plane: {delay: 1s}, for: 1s},
        {at: 4s, push: x}],
        expect: [{only_zones: [a], to: 20s}, {only_zones: [c], from: 25s}]}
        """,
        two_zones(),
        two_zones(c=[B1]),
    )
    assert all(verdict.is_held for verdict in report.verdicts), report.verdicts


def test_timeline_has_the_end_of_faults() -> None:
    report = run(
        """
        {events: [
        {at: 1s, slow: {zone: a, by: 1ms}, for: 1s},
        {at: 3s, control_plane: {delay: 1s}, for: 1s}]}
        """
    )
    texts = {each.at_s: each.what for each in report.timeline}
    assert texts[2.0] == "heal zone a of slow (2 of 3 endpoints)"
    assert texts[4.0] == "control plane: heal of delay"
