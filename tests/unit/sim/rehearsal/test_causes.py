"""Unit tests of proxyless.sim.rehearsal.causes."""

from __future__ import annotations

import pytest
import yaml

from proxyless.base import ValidationErrors
from proxyless.sim.rehearsal import parse_script
from proxyless.sim.rehearsal.causes import SUCCESSES_TO_RECOVER, find_causes
from proxyless.sim.rehearsal.run import Rpc


def rpc(started_s: float, code: str = "FAILED", *, took_s: float = 0.1, flow: str = "x") -> Rpc:
    return Rpc(started_s, flow, ended_s=started_s + took_s, code=code)


def blamed(events: str, *rpcs: Rpc) -> list[str]:
    """Time and action of the cause of each failure."""
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(f"{{duration: 200s, events: {events}}}"), errors)
    assert errors.ok, str(errors)
    return [
        "nothing" if cause is None else f"{cause.at_s:g} {str(cause.action).partition(' ')[0]}"
        for _, cause in find_causes(rpcs, script.events)
    ]


KILL = "{at: 10s, kill: {zone: a}, for: 20s}"
SLOW = "{at: 20s, slow: {zone: b, by: 1s}}"


def test_failure_without_an_event_has_no_cause() -> None:
    assert blamed("[]", rpc(5.0)) == ["nothing"]
    assert blamed(f"[{KILL}]", rpc(5.0), rpc(12.0)) == ["nothing", "nothing"]


def test_outage_has_one_cause() -> None:
    failing = [rpc(float(second)) for second in range(11, 40, 3)]
    assert set(blamed(f"[{KILL}, {SLOW}]", *failing)) == {"10 kill"}


@pytest.mark.parametrize("successes", [SUCCESSES_TO_RECOVER - 1, SUCCESSES_TO_RECOVER])
def test_failure_after_enough_successes_has_its_own_cause(successes: int) -> None:
    fine = [rpc(12.0 + number / 10, "OK") for number in range(successes)]
    found = blamed(f"[{KILL}, {SLOW}]", rpc(11.0), *fine, rpc(22.0))
    is_over = successes >= SUCCESSES_TO_RECOVER
    assert found == ["10 kill", "20 slow" if is_over else "10 kill"]


def test_successes_of_other_flows_do_not_end_an_outage() -> None:
    other = [rpc(12.0 + number / 10, "OK", flow="y") for number in range(50)]
    assert blamed(f"[{KILL}, {SLOW}]", rpc(11.0), *other, rpc(22.0)) == ["10 kill", "10 kill"]


def test_fault_during_the_rpc_is_the_cause() -> None:
    assert blamed(f"[{KILL}, {SLOW}]", rpc(15.0, took_s=10.0)) == ["20 slow"]
    pushed = "[{at: 1s, kill: all}, {at: 20s, push: next}]"
    assert blamed(pushed, rpc(15.0, took_s=10.0)) == ["20 push"]


@pytest.mark.parametrize(
    "events",
    [
        f"[{KILL}]",
        "[{at: 10s, kill: all}, {at: 30s, start: all}]",
        "[{at: 10s, kill: all}, {at: 30s, heal: all}]",
        "[{at: 10s, kill: all}, {at: 30s, control_plane: start}]",
    ],
)
def test_recovery_during_the_rpc_is_not_the_cause(events: str) -> None:
    assert blamed(events, rpc(25.0, took_s=10.0)) == ["10 kill"]


def test_recovery_before_the_rpc_may_be_the_cause() -> None:
    assert blamed("[{at: 10s, kill: all}, {at: 30s, start: all}]", rpc(31.0)) == ["30 start"]
