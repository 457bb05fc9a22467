"""Unit tests of proxyless.sim.rehearsal.strikes: each fault does what its name says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.sim.rehearsal.mesh import B1, run, two_zones

if TYPE_CHECKING:
    from proxyless.sim.rehearsal import Phase


def phases(action: str, *, lasts: str = ", for: 10s", more: str = "") -> tuple[Phase, ...]:
    """Before it, while it lasts, and afterwards; RPCs have a second."""
    text = f"{{duration: 60s, rate: 5, timeout: 1s, events: [{{at: 10s, {action}{lasts}}}{more}]}}"
    report = run(text, two_zones(), *([two_zones(c=[B1])] if "push" in more else []))
    assert report.phases[0].failed == 0
    assert all(verdict.is_held for verdict in report.verdicts), report.verdicts
    return report.phases


def zones(phase: Phase) -> set[str]:
    return {share.zone for share in phase.shares}


@pytest.mark.parametrize("fault", ["kill", "stop", "lose_power"])
def test_endpoints_that_are_gone_are_left_and_found_again(fault: str) -> None:
    _, during, after = phases(f"{fault}: {{zone: a}}")
    assert "b" in zones(during)
    assert "a" in zones(after)


@pytest.mark.parametrize("fault", ["hang", "cut"])
def test_silent_endpoints_let_rpcs_wait_until_they_are_healed(fault: str) -> None:
    _, during, after = phases(f"{fault}: {{zone: a}}")
    # Those that were sent in the last second arrive when it is over.
    assert during.failed >= 40
    assert {each.code for each in during.failures} == {"DEADLINE_EXCEEDED"}
    assert after.failed == 0


def test_what_is_cut_and_hangs_twice_is_healed_once() -> None:
    more = "".join(f", {{at: {at}s, {fault}: all}}" for at, fault in ((11, "cut"), (12, "hang")))
    *_, after = phases(
        "cut: all", lasts="", more=f"{more}, {{at: 13s, hang: all}}, {{at: 20s, heal: all}}"
    )
    assert after.rpcs == 200
    assert after.failed == 0


def test_slow_endpoints_take_that_much_longer() -> None:
    _, during, after = phases("slow: {all: true, by: 300ms}")
    assert during.median_s == pytest.approx(0.3, abs=0.05)
    assert after.median_s == pytest.approx(0.0, abs=0.05)


def test_failing_endpoints_answer_with_the_code() -> None:
    _, during, after = phases("fail: {all: true, with: DATA_LOSS}")
    assert [(each.code, each.times) for each in during.failures] == [("DATA_LOSS", 50)]
    assert after.failed == 0


def test_throttled_endpoints_are_slow_to_hear_and_to_speak() -> None:
    before, during, after = phases("throttle: {zone: a, bytes_per_s: 2000}")
    assert before.median_s is not None
    assert during.median_s is not None
    assert during.median_s > 10 * before.median_s
    assert after.failed == 0


def test_goaway_costs_nothing() -> None:
    _, after = phases("goaway: all", lasts="")
    assert after.failed == 0
    assert zones(after) == {"a"}


def test_connections_that_are_reset_are_made_again() -> None:
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
def test_what_happens_to_the_control_plane_delays_a_push_and_fails_nothing(
    fault: str, lasts: str
) -> None:
    push = ", {at: 12s, push: x}"
    found = phases(f"control_plane: {fault}", lasts=lasts, more=push)
    assert sum(phase.failed for phase in found) == 0
    # Nothing of it passes while the fault lasts, and it passes in the end.
    is_held_back = fault != "break_streams"
    assert ("a" in zones(found[2])) == is_held_back
    assert "c" in zones(found[-1])
