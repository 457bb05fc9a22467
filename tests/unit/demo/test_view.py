"""Unit tests of proxyless.demo.view."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxyless.base import OK
from proxyless.controlplane import CLUSTER, ENDPOINTS
from proxyless.demo.mesh import PLACES, Plan
from proxyless.demo.story import STORY, StepLog
from proxyless.demo.traffic import Record, Rpc
from proxyless.demo.verdict import Row
from proxyless.demo.view import (
    COLUMNS,
    MISSED,
    RUNNING,
    SEEN,
    WAITING,
    HeldType,
    TreeRow,
    view_backends,
    view_held,
    view_session,
    view_steps,
    view_tree,
)
from proxyless.lb import LbNode
from proxyless.lb.retained_child import NOT_LISTED
from proxyless.xds.client.api import ResourceDump, ResourceStatus
from tests.unit.demo.views import VIEW

PLAN = Plan({place.name: 5000 + index for index, place in enumerate(PLACES)})
NAMES = {"127.0.0.1:5000": "a1", "127.0.0.1:5001": "a2"}

# The tree

REFUSED = "failed to connect; last error: 127.0.0.1:5000: connection refused"


def endpoint(port: int, state: str, problem: str = "") -> LbNode:
    address = f"127.0.0.1:{port}"
    subchannel = LbNode(address, "", state)
    return LbNode(address, "pick_first", state, children=(subchannel,), problem=problem)


def priority(number: int, state: str, *children: LbNode, **fields: object) -> LbNode:
    name = f"{{cluster=eds, child_number={number}}}"
    inner = LbNode("", "weighted_target_experimental", state, children=children)
    node = LbNode(name, "xds_wrr_locality_experimental", state, children=(inner,))
    return replace(node, **fields)  # type: ignore[arg-type]


def cluster_tree(*priorities: LbNode) -> LbNode:
    chooser = LbNode("", "priority_experimental", "READY", children=priorities)
    cds = LbNode("cluster:eds", "cds_experimental", "READY", children=(chooser,))
    return LbNode("xds:///greeter", "xds_cluster_manager_experimental", "READY", children=(cds,))


def test_policies_with_one_unnamed_child_share_a_line() -> None:
    zone = LbNode("{region=, zone=a, sub_zone=}", "round_robin", "READY", "2 are READY; weight 1")
    tree = cluster_tree(priority(0, "READY", replace(zone, children=(endpoint(5001, "READY"),))))
    assert view_tree(tree, NAMES) == (
        TreeRow(0, "xds:///greeter", ("cluster_manager",), "READY", "", is_active=True),
        TreeRow(1, "eds", ("cds", "priority"), "READY", "", is_active=True),
        TreeRow(2, "priority 0", ("wrr_locality", "weighted_target"), "READY", "", is_active=True),
        TreeRow(3, "zone a", ("round_robin",), "READY", "2 are READY", is_active=True),
        TreeRow(4, "a2 127.0.0.1:5001", ("pick_first",), "READY", "", is_active=True),
    )


def test_policy_not_in_use_is_inactive_with_all_below_it() -> None:
    tree = cluster_tree(
        priority(0, "TRANSIENT_FAILURE", endpoint(5000, "TRANSIENT_FAILURE"), in_use=False),
        priority(1, "READY", endpoint(5001, "READY")),
    )
    active = {row.label: row.is_active for row in view_tree(tree, NAMES)}
    assert active == {
        "xds:///greeter": True,
        "eds": True,
        "priority 0": False,
        "a1 127.0.0.1:5000": False,
        "priority 1": True,
        "a2 127.0.0.1:5001": True,
    }


def test_failure_is_shown_with_its_innermost_cause() -> None:
    failing = endpoint(5000, "TRANSIENT_FAILURE", problem=f'all failing: {REFUSED} (node id "me")')
    rows = view_tree(cluster_tree(priority(0, "TRANSIENT_FAILURE", failing)), NAMES)
    assert rows[-1].note == "connection refused"


def test_priority_that_left_the_config_is_one_line_without_a_number() -> None:
    old = priority(0, "READY", endpoint(5000, "READY"), detail=f"{NOT_LISTED}; retained 9 s")
    rows = view_tree(cluster_tree(priority(1, "READY", endpoint(5001, "READY")), old), NAMES)
    assert [row.label for row in rows[2:]] == ["priority 0", "a2 127.0.0.1:5001", "an old priority"]
    assert rows[-1].note == f"{NOT_LISTED}; retained 9 s"


def test_policy_without_a_name_has_its_kind_as_label() -> None:
    held = LbNode("127.0.0.1:5000", "", "READY", "held for sessions")
    chooser = LbNode("", "priority_experimental", "READY")
    tree = LbNode("eds", "xds_override_host_experimental", "READY", children=(chooser, held))
    rows = [(row.label, row.policies, row.note) for row in view_tree(tree, NAMES)]
    assert rows == [
        ("eds", ("override_host",), ""),
        ("priority", (), ""),
        ("a1 127.0.0.1:5000", (), "held for sessions"),
    ]


def test_session_is_noted_at_its_endpoint() -> None:
    tree = cluster_tree(priority(0, "READY", endpoint(5000, "READY"), endpoint(5001, "READY")))
    rows = view_tree(tree, NAMES, "a2 127.0.0.1:5001")
    assert [row.label for row in rows if row.note == "the session is here"] == ["a2 127.0.0.1:5001"]


def test_tree_is_empty_before_the_channel_has_a_policy() -> None:
    assert view_tree(None, {}) == ()


# The other parts


def test_backends_have_their_rates_and_priorities() -> None:
    record = Record()
    for number in range(100):
        record.on_end(Rpc(0.0, number / 100, is_session=False, backend="b1"))
    views = {view.name: view for view in view_backends(record, PLAN.with_moved("b1"), ["b1"], 1.1)}
    assert views["b1"].rate == pytest.approx(100.0)
    assert len(views["b1"].history) == COLUMNS
    assert [name for name, view in views.items() if view.is_running] == ["b1"]
    numbers = {name: view.priority for name, view in views.items()}
    assert numbers == {"a1": 0, "a2": 0, "b1": 0, "b2": 1, "c1": None, "c2": None}


def test_session_move_is_counted_when_another_backend_answers() -> None:
    record = Record()
    for ended_s, backend in ((1.0, "a1"), (2.0, "a1"), (3.0, "b1"), (4.0, "b1")):
        record.on_end(Rpc(0.0, ended_s, is_session=True, backend=backend))
    session = view_session(record, PLAN, "greeter", 4.5)
    assert (session.backend, session.moves, session.there_s, session.rpcs) == ("b1", 1, 1.5, 4)
    assert session.address == "127.0.0.1:5002"
    none = view_session(Record(), PLAN, "", 4.5)
    assert (none.backend, none.there_s) == ("", 0.0)


def dump(type_url: str, name: str, version: str, status: ResourceStatus) -> ResourceDump:
    return ResourceDump(type_url, name, status, version, b"", 0.0, OK, "")


def test_missing_resources_are_named_by_type() -> None:
    dumps = [
        dump(CLUSTER, "old", "9", ResourceStatus.ACKED),
        dump(CLUSTER, "older", "10", ResourceStatus.ACKED),
        dump(CLUSTER, "new", "", ResourceStatus.REQUESTED),
        dump(ENDPOINTS, "old", "2", ResourceStatus.ACKED),
    ]
    assert view_held(dumps) == (
        HeldType("LDS", ""),
        HeldType("RDS", ""),
        HeldType("CDS", "10", ("new",)),
        HeldType("EDS", "2"),
    )


def test_step_states_follow_from_the_logs() -> None:
    logs = (
        StepLog("calm", 0.0, 0.0, 0.0, 2.0),
        StepLog("kill-a", 2.0, 2.1, 2.7, 4.0),
        StepLog("kill-b", 4.0, 4.0, 4.3),
        StepLog("back", 6.0, 6.0, got="no backend answers"),
    )
    views = view_steps(STORY, logs)
    assert [(view.state, view.note) for view in views[:5]] == [
        (SEEN, "at once"),
        (SEEN, "0.7 s"),
        (RUNNING, "0.3 s"),
        (MISSED, "no backend answers"),
        (WAITING, ""),
    ]
    assert view_steps(STORY, (StepLog("calm", 0.0),))[0].state == RUNNING


def test_view_with_verdict_is_encoded_as_json() -> None:
    verdict = (Row("tear", "none"), Row("RPCs", "3", is_good=False))
    document = json.loads(json.dumps(replace(VIEW, verdict=verdict).to_json()))
    assert document["verdict"][1] == {"name": "RPCs", "value": "3", "is_good": False}
    assert document["tree"][0]["label"] == "xds:///greeter"
    assert document["backends"][2]["rate"] == 151.0
