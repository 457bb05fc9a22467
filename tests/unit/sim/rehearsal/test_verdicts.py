"""Unit tests of proxyless.sim.rehearsal.verdicts."""

from __future__ import annotations

import pytest
import yaml

from proxyless.base import Locality, ValidationErrors
from proxyless.sim.rehearsal import parse_script
from proxyless.sim.rehearsal.inventory import Inventory, Member
from proxyless.sim.rehearsal.run import Rpc, RunRecord, TimelineEntry
from proxyless.sim.rehearsal.verdicts import Verdict, judge
from tests.unit.sim.rehearsal.mesh import A1, A2, B1, two_zones

ZONES = {A1: "a", A2: "a", B1: "b", "": ""}


def rpc(
    started_s: float, code: str = "OK", at: str = A1, took_s: float = 0.1, flow: str = "traffic"
) -> Rpc:
    member = Member("cart" if at else "", Locality(zone=ZONES[at]))
    return Rpc(started_s, flow, False, "cart", at, member, started_s + took_s, code)


def record(*rpcs: Rpc, **others: tuple[object, ...]) -> RunRecord:
    parts: dict[str, tuple[object, ...]] = dict.fromkeys(
        ("timeline", "nacks", "stray_picks", "left_behind"), ()
    )
    return RunRecord(rpcs=rpcs, digest="d", **{**parts, **others})  # type: ignore[arg-type]


def verdicts(text: str, happened: RunRecord) -> list[Verdict]:
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    assert errors.ok, str(errors)
    return judge(script, Inventory.of([two_zones()], {}), happened)


def verdict(expected: str, *rpcs: Rpc, events: str = "[]", traffic: str = "[{}]") -> Verdict:
    text = f"{{duration: 60s, expect: {{{expected}}}, events: {events}, traffic: {traffic}}}"
    return verdicts(text, record(*rpcs))[0]


GOOD, BAD = rpc(1.0), rpc(2.0, "UNAVAILABLE", at="")
FAR = rpc(3.0, at=B1)


@pytest.mark.parametrize(
    ("expected", "rpcs", "is_held", "what", "found"),
    [
        ("failed: 0", [GOOD], True, "failed at most 0", "0 of 1 RPCs failed"),
        ("failed: 0", [GOOD, BAD], False, "failed at most 0", "1 of 2 RPCs failed"),
        ("failed: 1", [GOOD, BAD], True, "failed at most 1", "1 of 2 RPCs failed"),
        (
            "error_rate_below: 60%",
            [GOOD, BAD],
            True,
            "error rate below 0.6",
            "50.00 % of 2 RPCs failed",
        ),
        (
            "error_rate_below: 0.5",
            [GOOD, BAD],
            False,
            "error rate below 0.5",
            "50.00 % of 2 RPCs failed",
        ),
        ("only_zones: a", [GOOD, BAD], True, "only zones a", "none went to others"),
        ("only_zones: a", [GOOD, FAR], False, "only zones a", "1 went to zone b"),
        ("only_zones: a", [BAD], False, "only zones a", "none of 1 RPCs arrived anywhere"),
        ("only_clusters: cart", [GOOD], True, "only clusters cart", "none went to others"),
        (f'only_endpoints: "{A1}"', [GOOD], True, f"only endpoints {A1}", "none went to others"),
        (f'only_endpoints: "{A1}"', [FAR], False, f"only endpoints {A1}", f"1 went to {B1}"),
        ("only_codes: ABORTED", [GOOD], True, "only codes ABORTED", "none ended with others"),
        (
            "only_codes: ABORTED",
            [GOOD, BAD],
            False,
            "only codes ABORTED",
            "1 ended with UNAVAILABLE",
        ),
        (
            "slowest_below: 200ms",
            [GOOD],
            True,
            "slowest below 0.2 s",
            "the slowest took 0.100 s",
        ),
        (
            "slowest_below: 50ms",
            [GOOD, BAD],
            False,
            "slowest below 0.05 s",
            "the slowest took 0.100 s",
        ),
        ("slowest_below: 50ms", [BAD], False, "slowest below 0.05 s", "no RPC succeeded"),
        ("failed: 0", [], False, "failed at most 0", "no RPC was started"),
    ],
)
def test_condition_is_judged(
    expected: str, rpcs: list[Rpc], is_held: bool, what: str, found: str
) -> None:
    assert verdict(expected, *rpcs) == Verdict(what, is_held, found)


def test_rpc_to_another_cluster_is_counted() -> None:
    other = rpc(1.0)
    other.cluster, other.member = "top", Member("cart-b", Locality())
    found = verdicts("expect: {only_clusters: cart}", record(other))[0]
    assert found == Verdict("only clusters cart", False, "1 went to cluster cart-b")


def test_rpcs_outside_the_window_are_ignored() -> None:
    found = verdict("failed: 0, from: 1s, to: 2s", GOOD, BAD)
    assert found == Verdict("failed at most 0, from 0:01 to 0:02", True, "0 of 1 RPCs failed")
    assert not verdict("failed: 0, from: 2s, to: 3s", GOOD, BAD).is_held


def test_rpcs_of_other_flows_are_ignored() -> None:
    rpcs = [rpc(1.0, flow="x"), rpc(2.0, "ABORTED", flow="y")]
    traffic = "[{name: x}, {name: y}]"
    found = verdict("failed: 0, traffic: x", *rpcs, traffic=traffic)
    assert found == Verdict("failed at most 0 of x", True, "0 of 1 RPCs failed")
    assert not verdict("failed: 0, traffic: y", *rpcs, traffic=traffic).is_held


KILLS = "[{at: 10s, kill: all}, {at: 30s, kill: all}]"


FIRST, SECOND = "kill all endpoints at 0:10", "kill all endpoints at 0:30"


@pytest.mark.parametrize(
    ("rpcs", "is_held", "found"),
    [
        ([rpc(12.0)], True, None),
        ([rpc(12.0, "ABORTED")], True, f"2.000 s after its cause: {FIRST}"),
        ([rpc(16.0, "ABORTED")], False, f"6.000 s after its cause: {FIRST}"),
        ([rpc(33.0, "ABORTED")], True, f"3.000 s after its cause: {SECOND}"),
        # The RPC was under way at the fault.
        ([rpc(9.0, "ABORTED", took_s=2.0)], True, f"0.000 s after its cause: {FIRST}"),
        # The second kill is in the same outage.
        (
            [rpc(12.0, "ABORTED"), rpc(31.0, "ABORTED")],
            False,
            f"21.000 s after its cause: {FIRST}",
        ),
    ],
)
def test_failover_is_measured_from_its_cause(
    rpcs: list[Rpc], is_held: bool, found: str | None
) -> None:
    got = verdict("failover_within: 5s", *rpcs, events=KILLS)
    text = "no RPC failed" if found is None else f"the last to fail started {found}"
    assert got == Verdict("failover within 5 s", is_held, text)


def test_failure_before_any_event_misses_failover() -> None:
    got = verdict("failover_within: 5s", rpc(5.0, "ABORTED"), events=KILLS)
    assert (got.is_held, got.found) == (False, "an RPC failed at 0:05: that began before any event")


def test_end_of_an_outage_is_not_its_cause() -> None:
    outage = "[{at: 10s, kill: all, for: 20s}]"
    rpcs = [rpc(second + 0.5, "UNAVAILABLE") for second in range(10, 31)]
    got = verdict("failover_within: 5s", *rpcs, events=outage)
    assert (got.is_held, got.found) == (
        False,
        f"the last to fail started 20.500 s after its cause: {FIRST}",
    )
    # The window begins with the end of the outage.
    got = verdict("failover_within: 5s, from: 30s", *rpcs, events=outage)
    assert not got.is_held


def test_failover_without_an_event_is_missed() -> None:
    got = verdict("failover_within: 5s, from: 11s, to: 29s", rpc(12.0), events=KILLS)
    assert (got.is_held, got.found) == (False, "no event is in this time")


def test_refused_configs_are_counted() -> None:
    happened = record(nacks=(TimelineEntry(5.0, "x"), TimelineEntry(50.0, "y")))
    first, second, *_ = verdicts(
        "expect: [{refused_configs: 0, to: 20s}, {refused_configs: 2}]", happened
    )
    what = "refused configs at most 0, from 0:00 to 0:20"
    assert first == Verdict(what, False, "1 were refused")
    assert second.is_held


def test_invariants_are_judged_in_every_run() -> None:
    picks, left = verdicts("events: [{at: 1s, kill: all}]", record())
    assert picks.is_held
    assert left.is_held
    happened = record(stray_picks=("a",), left_behind=("1", "2", "3", "4", "5"))
    picks, left = verdicts("events: [{at: 1s, kill: all}]", happened)
    assert (picks.is_held, picks.found) == (False, "a")
    assert (left.is_held, left.found) == (False, "1; 2; 3; and 2 more")


def test_most_frequent_names_are_shown() -> None:
    many = [rpc(float(n), at=A1) for n in range(5)]
    for number, each in enumerate(many):
        each.member = Member("cart", Locality(zone=f"z{number}"))
    got = verdict("only_zones: b", *many)
    assert got.found == "1 went to zone z0, 1 went to zone z1, 1 went to zone z2 and 2 more"
