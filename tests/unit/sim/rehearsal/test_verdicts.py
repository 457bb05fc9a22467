"""Unit tests of proxyless.sim.rehearsal.verdicts: what is made of what was written down."""

from __future__ import annotations

import pytest
import yaml

from proxyless.base import Locality, ValidationErrors
from proxyless.sim.rehearsal import Inventory, parse_script
from proxyless.sim.rehearsal.inventory import Member
from proxyless.sim.rehearsal.stage import Happening, Performance, Rpc
from proxyless.sim.rehearsal.verdicts import Verdict, judge
from tests.unit.sim.rehearsal.mesh import A1, A2, B1, two_zones

ZONES = {A1: "a", A2: "a", B1: "b", "": ""}


def rpc(
    started_s: float, code: str = "OK", at: str = A1, took_s: float = 0.1, flow: str = "traffic"
) -> Rpc:
    member = Member("cart" if at else "", Locality(zone=ZONES[at]))
    return Rpc(started_s, flow, False, "cart", at, member, started_s + took_s, code)


def performance(*rpcs: Rpc, **others: tuple[object, ...]) -> Performance:
    parts: dict[str, tuple[object, ...]] = dict.fromkeys(
        ("happenings", "refusals", "stray_picks", "left_behind"), ()
    )
    return Performance(rpcs=rpcs, digest="d", **{**parts, **others})  # type: ignore[arg-type]


def verdicts(text: str, happened: Performance) -> list[Verdict]:
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    assert errors.ok, str(errors)
    return judge(script, Inventory.of([two_zones()], {}), happened)


def verdict(expected: str, *rpcs: Rpc, events: str = "[]", traffic: str = "[{}]") -> Verdict:
    text = f"{{duration: 60s, expect: {{{expected}}}, events: {events}, traffic: {traffic}}}"
    return verdicts(text, performance(*rpcs))[0]


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
def test_conditions(expected: str, rpcs: list[Rpc], is_held: bool, what: str, found: str) -> None:
    assert verdict(expected, *rpcs) == Verdict(what, is_held, found)


def test_a_cluster_that_is_not_named() -> None:
    other = rpc(1.0)
    other.cluster, other.member = "top", Member("cart-b", Locality())
    found = verdicts("expect: {only_clusters: cart}", performance(other))[0]
    assert found == Verdict("only clusters cart", False, "1 went to cluster cart-b")


def test_only_those_that_start_in_the_window_count() -> None:
    found = verdict("failed: 0, from: 1s, to: 2s", GOOD, BAD)
    assert found == Verdict("failed at most 0, from 0:01 to 0:02", True, "0 of 1 RPCs failed")
    assert not verdict("failed: 0, from: 2s, to: 3s", GOOD, BAD).is_held


def test_only_those_of_one_kind_count() -> None:
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
        # It was under way.
        ([rpc(9.0, "ABORTED", took_s=2.0)], True, f"0.000 s after its cause: {FIRST}"),
        # The second kill does not excuse what the first one did.
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
    said = "no RPC failed" if found is None else f"the last to fail started {found}"
    assert got == Verdict("failover within 5 s", is_held, said)


def test_a_failure_before_any_event_is_no_failover() -> None:
    got = verdict("failover_within: 5s", rpc(5.0, "ABORTED"), events=KILLS)
    assert (got.is_held, got.found) == (False, "an RPC failed at 0:05: that began before any event")


def test_the_end_of_an_outage_does_not_excuse_it() -> None:
    outage = "[{at: 10s, kill: all, for: 20s}]"
    rpcs = [rpc(second + 0.5, "UNAVAILABLE") for second in range(10, 31)]
    got = verdict("failover_within: 5s", *rpcs, events=outage)
    assert (got.is_held, got.found) == (
        False,
        f"the last to fail started 20.500 s after its cause: {FIRST}",
    )
    # Nor does a window that begins with the end.
    got = verdict("failover_within: 5s, from: 30s", *rpcs, events=outage)
    assert not got.is_held


def test_without_an_event_there_is_no_failover() -> None:
    got = verdict("failover_within: 5s, from: 11s, to: 29s", rpc(12.0), events=KILLS)
    assert (got.is_held, got.found) == (False, "no event is in this time")


def test_refused_configs_are_counted() -> None:
    happened = performance(refusals=(Happening(5.0, "x"), Happening(50.0, "y")))
    first, second, *_ = verdicts(
        "expect: [{refused_configs: 0, to: 20s}, {refused_configs: 2}]", happened
    )
    what = "refused configs at most 0, from 0:00 to 0:20"
    assert first == Verdict(what, False, "1 were refused")
    assert second.is_held


def test_every_run_keeps_to_the_config_and_leaves_nothing() -> None:
    picks, left = verdicts("events: [{at: 1s, kill: all}]", performance())
    assert picks.is_held
    assert left.is_held
    happened = performance(stray_picks=("a",), left_behind=("1", "2", "3", "4", "5"))
    picks, left = verdicts("events: [{at: 1s, kill: all}]", happened)
    assert (picks.is_held, picks.found) == (False, "a")
    assert (left.is_held, left.found) == (False, "1; 2; 3; and 2 more")


def test_of_many_places_the_most_frequent_are_shown() -> None:
    many = [rpc(float(n), at=A1) for n in range(5)]
    for number, each in enumerate(many):
        each.member = Member("cart", Locality(zone=f"z{number}"))
    got = verdict("only_zones: b", *many)
    assert got.found == "1 went to zone z0, 1 went to zone z1, 1 went to zone z2 and 2 more"
