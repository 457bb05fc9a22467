"""Unit tests of proxyless.cli.top.live_samples."""

from __future__ import annotations

from proxyless.cli.admin_client import live_message
from proxyless.cli.top.live_samples import read_snapshot
from proxyless.cli.top.samples import Traffic

EVIL = "x\x1b[2J\n"
ESCAPED = "x\\x1b[2J"


def test_snapshot_becomes_rows() -> None:
    snapshot = live_message("Snapshot", has_more_channels=True, silent_loops=2)
    snapshot.time.FromNanoseconds(1_500_000_000)
    snapshot.process.pid, snapshot.process.version, snapshot.process.python = 7, "1.0", "3.11"
    channel = snapshot.channels.add(id=4, target="xds:///api", state="READY", config_generation=2)
    channel.rpcs.started, channel.rpcs.failed, channel.rpcs.in_flight = 9, 2, 1
    channel.failures_by_code["UNAVAILABLE"] = 2
    channel.last_failure.code, channel.last_failure.method = "UNAVAILABLE", "/a/b"
    channel.last_failure.address, channel.last_failure.details = "h:1", "gone"
    cluster = channel.clusters.add(name="web", state="IDLE", priority_in_use=-1, endpoints_total=1)
    cluster.endpoints.add(address="h:1", state="TRANSIENT_FAILURE", detail="h:1: refused")
    channel.lb_tree.name = "xds:///api"
    channel.lb_tree.children.add(name="child", state="CONNECTING", in_use=True)
    sample = read_snapshot(snapshot)
    assert sample.time_s == 1.5
    assert sample.process == "pid 7, proxyless 1.0, Python 3.11"
    assert sample.notes == (
        "channels after the first 1 are not shown",
        "2 event loops did not answer in time",
    )
    (row,) = sample.channels
    assert (row.key, row.target, row.state, row.generation) == ("4", "xds:///api", "READY", 2)
    assert row.traffic == Traffic(9, 2, 1)
    assert row.failures == {"UNAVAILABLE": 2}
    assert row.last_failure == "/a/b at h:1: UNAVAILABLE: gone"
    (web,) = row.clusters
    assert (web.state, web.priority_in_use, web.total) == ("IDLE", None, 1)
    (endpoint,) = web.endpoints
    assert (endpoint.state, endpoint.note) == ("TRANSIENT_FAILURE", "refused")
    assert row.lb_tree is not None
    assert row.lb_tree.children[0].state == "CONNECTING"


def test_texts_of_the_process_are_escaped() -> None:
    snapshot = live_message("Snapshot")
    snapshot.process.version = EVIL
    channel = snapshot.channels.add(target=EVIL, problem=EVIL)
    channel.failures_by_code[EVIL] = 1
    channel.last_failure.code = EVIL
    cluster = channel.clusters.add(name=EVIL, problem=EVIL)
    cluster.endpoints.add(address=EVIL, locality=EVIL, detail=EVIL)
    channel.lb_tree.name = channel.lb_tree.policy = channel.lb_tree.detail = EVIL
    snapshot.events.add(name=EVIL, fields={EVIL: EVIL})
    shown = repr(read_snapshot(snapshot)).replace(repr(ESCAPED)[1:-1], "")
    assert "\\x1b" not in shown
    assert "\\n" not in shown


def test_unknown_state_is_empty() -> None:
    snapshot = live_message("Snapshot")
    snapshot.channels.add(state=99)
    snapshot.channels.add()
    assert [row.state for row in read_snapshot(snapshot).channels] == ["", ""]


def test_sampled_rpcs_that_did_not_fail_are_left_out_of_the_events() -> None:
    snapshot = live_message("Snapshot")
    snapshot.events.add(name="rpc", fields={"status": "OK"})
    snapshot.events.add(name="rpc", fields={"status": "UNAVAILABLE: gone"})
    snapshot.events.add(name="channel.state", fields={"state": "READY", "target": "a"})
    assert [event.text for event in read_snapshot(snapshot).events] == [
        "rpc status=UNAVAILABLE: gone",
        "channel.state state=READY target=a",
    ]
