"""Unit tests of proxyless.sim.rehearsal.report: phases and the timeline."""

from __future__ import annotations

import json

import yaml

from proxyless.base import Locality, ValidationErrors
from proxyless.sim.rehearsal import parse_script
from proxyless.sim.rehearsal.inventory import Inventory, Member
from proxyless.sim.rehearsal.report import Failures, Report, Share, make_report
from proxyless.sim.rehearsal.run import Rpc, RunRecord, TimelineEntry
from tests.unit.sim.rehearsal.mesh import A1, B1, two_zones

SCRIPT = "{rate: 10, duration: 60s, events: [{at: 20s, kill: {zone: a}}, {at: 20s, push: x}]}"


def rpc(started_s: float, code: str = "OK", zone: str = "a", details: str = "") -> Rpc:
    at = {"a": A1, "b": B1, "": ""}[zone]
    member = Member("cart", Locality(zone=zone))
    return Rpc(started_s, "traffic", False, "cart", at, member, started_s + 0.1, code, details)


def report(*rpcs: Rpc, text: str = SCRIPT, nacks: tuple[TimelineEntry, ...] = ()) -> Report:
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    assert errors.ok, str(errors)
    timeline = tuple(TimelineEntry(event.at_s, str(event.action)) for event in script.events)
    record = RunRecord(rpcs, timeline, nacks, (), (), "d")
    return make_report(script, Inventory.of([two_zones()], {}), record)


def entries(found: Report) -> list[tuple[float, str]]:
    return [(each.at_s, each.what) for each in found.timeline]


def test_phase_lasts_from_event_to_event() -> None:
    before, after = report(rpc(19.9), rpc(20.0)).phases
    assert (before.start_s, before.end_s, before.began_with) == (0.0, 20.0, ())
    assert (after.start_s, after.end_s) == (20.0, 60.0)
    assert after.began_with == ("kill zone a", "push x")
    assert (before.rpcs, after.rpcs) == (1, 1)


def test_failures_are_grouped_by_code_with_the_most_frequent_details() -> None:
    rpcs = [
        rpc(1.0, "ABORTED", details="x"),
        rpc(2.0, "UNAVAILABLE", details="one"),
        rpc(3.0, "UNAVAILABLE", details="two"),
        rpc(4.0, "UNAVAILABLE", details="two"),
        rpc(5.0),
    ]
    phase, empty = report(*rpcs).phases
    assert (phase.rpcs, phase.failed) == (5, 4)
    assert phase.failures == (Failures("UNAVAILABLE", 3, "two"), Failures("ABORTED", 1, "x"))
    assert (empty.median_s, empty.slowest_s, empty.shares) == (None, None, ())


def test_shares_are_by_cluster_zone_and_endpoint() -> None:
    aggregate = rpc(3.0)
    aggregate.cluster = "top"
    phase, _ = report(rpc(1.0), rpc(2.0), aggregate, rpc(4.0, zone="b"), rpc(5.0, "X", "")).phases
    assert phase.shares == (
        Share("cart", "a", A1, 2),
        Share("cart", "b", B1, 1),
        Share("top/cart", "a", A1, 1),
    )


def test_zone_has_all_parts_of_its_locality() -> None:
    far = rpc(1.0)
    far.member = Member("cart", Locality("eu", "a", "x"))
    assert report(far).phases[0].shares == (Share("cart", "eu/a/x", A1, 1),)


def test_timeline_has_events_and_failures() -> None:
    calm = [rpc(n / 2) for n in range(40)]
    stormy = [rpc(20.5, "UNAVAILABLE", ""), rpc(21.0, "ABORTED", ""), rpc(22.0, "UNAVAILABLE", "")]
    after = [rpc(23.0 + n / 2, zone="b") for n in range(60)]
    alone = [rpc(54.0, "INTERNAL", "b")]
    assert entries(report(*calm, *stormy, *after, *alone)) == [
        (0.0, "1 client with 10 RPCs per second to xds:///shop; 3 endpoints"),
        (0.0, "first RPC to zone a"),
        (19.5, "last RPC to zone a"),
        (20.0, "kill zone a"),
        (20.0, "push x"),
        (20.5, "3 RPCs fail until 0:22: mostly UNAVAILABLE"),
        (23.0, "first RPC to zone b"),
        (54.0, "an RPC fails: INTERNAL"),
        (54.0, "last RPC to zone b"),
        (60.0, "the end"),
    ]


def test_timeline_has_a_gap_in_the_rpcs_of_a_zone() -> None:
    rpcs = [rpc(1.0), rpc(2.0, zone="b"), rpc(30.0), rpc(55.0, zone="b"), rpc(56.0)]
    moves = [(at_s, what) for at_s, what in entries(report(*rpcs)) if "RPC" in what][1:]
    assert moves == [
        (1.0, "first RPC to zone a"),
        (1.0, "last RPC to zone a for 29 s"),
        (2.0, "first RPC to zone b"),
        (2.0, "last RPC to zone b for 53 s"),
        (30.0, "RPCs to zone a again"),
        (30.0, "last RPC to zone a for 26 s"),
        (55.0, "RPCs to zone b again"),
        (56.0, "RPCs to zone a again"),
    ]


def test_timeline_has_no_moves_with_one_zone() -> None:
    assert not [what for _, what in entries(report(rpc(1.0), rpc(50.0))) if "zone a" in what][1:]


def test_timeline_has_equal_nacks_once() -> None:
    nacks = (
        TimelineEntry(5.0, "xds node 'client-1': cluster version '2' refused: no"),
        TimelineEntry(5.1, "xds node 'client-2': cluster version '2' refused: no"),
        TimelineEntry(6.0, "xds node 'client-2': cluster version '3' refused: no"),
    )
    found = [each for each in entries(report(nacks=nacks)) if "refused" in each[1]]
    assert [at_s for at_s, _ in found] == [5.0, 6.0]


def test_default_method_is_noted_when_rpcs_fail() -> None:
    note = "where no method is given, clients call /sim.Echo/Unary"
    assert report(rpc(1.0)).notes == ()
    assert report(rpc(1.0, "UNAVAILABLE")).notes == (note,)
    script = "{method: /s/m, duration: 20s}"
    assert report(rpc(1.0, "UNAVAILABLE"), text=script).notes == ()


def test_report_is_good_if_all_verdicts_are_held_and_has_json() -> None:
    good = report(rpc(1.0), text="duration: 20s")
    bad = report(rpc(1.0, "ABORTED"), text="duration: 20s")
    assert (good.is_good, bad.is_good) == (True, False)
    document = json.loads(json.dumps(bad.to_json()))
    assert document["is_good"] is False
    assert document["phases"][0]["failures"] == [{"code": "ABORTED", "times": 1, "details": ""}]
    assert document["verdicts"][0] == {
        "what": "failed at most 0",
        "is_held": False,
        "found": "1 of 1 RPCs failed",
    }
