"""Unit tests of proxyless.sim.replay.decisions."""

from __future__ import annotations

from proxyless.observe.flight import Entry
from proxyless.sim.replay.decisions import Decision, compare_decisions, find_decisions

TARGETS = {"api": "xds:///api"}


def entry(time: float, event: str, **fields: object) -> Entry:
    return Entry(0, time, 1, event, fields)


def decided(*values: str) -> list[Decision]:
    return [Decision(float(at), value) for at, value in enumerate(values)]


def test_decisions_are_found_by_subject_without_repetitions() -> None:
    entries = [
        entry(10.0, "channel.state", target="xds:///api", state="CONNECTING"),
        entry(10.0, "channel.state", target="ipv4:10.0.0.1:1", state="READY"),
        entry(10.5, "xds_resolver.config", listener="api", clusters=["a", "b"]),
        entry(11.0, "priority.choice", child="{cluster=a, child_number=0}", priority=0),
        entry(12.0, "priority.choice", child="{cluster=a, child_number=0}", priority=0),
        entry(13.0, "priority.choice", child="{cluster=a, child_number=1}", priority=1),
        entry(14.0, "priority.choice", child="leaf-b", priority=1),
        entry(15.0, "cds.cluster", cluster="a", endpoints=3),
        entry(16.0, "channel.state", target="xds:///api", state="SHUTDOWN"),
        entry(17.0, "priority.choice", child=7, priority="no number"),
    ]
    assert find_decisions(entries, 10.0, TARGETS) == {
        "state of xds:///api": [Decision(0.0, "CONNECTING")],
        "clusters of xds:///api": [Decision(0.5, "a, b")],
        'priority of cluster "a"': [Decision(1.0, "0"), Decision(3.0, "1")],
        "leaf of the aggregate cluster": [Decision(4.0, "leaf-b")],
        'endpoints of cluster "a"': [Decision(5.0, "3")],
    }


def same(recorded: list[Decision], replayed: list[Decision], *, has_start: bool = True) -> bool:
    (found,) = compare_decisions({"x": recorded}, {"x": replayed}, end_s=2.0, has_start=has_start)
    return found.is_same


def test_sequences_are_compared_and_times_are_not() -> None:
    later = [Decision(each.at_s + 0.5, each.value) for each in decided("0", "1")]
    assert same(decided("0", "1"), later)
    assert not same(decided("0", "1"), decided("0", "2"))
    assert not same(decided("0", "1"), decided("0"))
    assert not same(decided("0", "1"), decided("0", "1", "0"))


def test_decision_after_the_end_of_the_recording_does_not_count() -> None:
    assert same(decided("0", "1"), [*decided("0", "1"), Decision(2.5, "0")])


def test_last_decision_may_come_a_little_after_the_end() -> None:
    assert same(decided("0", "1"), [Decision(0.0, "0"), Decision(2.1, "1")])


def test_recording_without_its_start_is_the_end_of_the_re_run() -> None:
    assert same(decided("1"), decided("0", "1"), has_start=False)
    assert not same(decided("1"), decided("1", "0"), has_start=False)


def test_subject_that_is_missing_in_the_re_run_differs() -> None:
    (found,) = compare_decisions({"x": decided("0")}, {}, end_s=1.0, has_start=True)
    assert not found.is_same
