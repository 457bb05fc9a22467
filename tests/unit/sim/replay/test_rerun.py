"""Unit tests of proxyless.sim.replay.rerun: a recorded bad day, replayed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyless.observe.flight import Entry, Recording, read_lines
from proxyless.observe.flight.recording import RESOURCE_EVENT, RPC_EVENT
from proxyless.sim.replay import ReplayReport, replay
from tests.worlds.bad_days import bad_day

PRIORITY = 'priority of cluster "web"'


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_lines(bad_day())


def values(report: ReplayReport, subject: str) -> tuple[list[str], list[str], bool]:
    (found,) = [each for each in report.decisions if each.subject == subject]
    recorded = [each.value for each in found.recorded]
    return recorded, [each.value for each in found.replayed], found.is_same


def test_bad_day_is_replayed_with_the_same_decisions(recording: Recording) -> None:
    report = replay(recording)
    assert report.is_same
    assert values(report, PRIORITY) == (["0", "1", "2", "0"], ["0", "1", "2", "0"], True)
    assert values(report, 'endpoints of cluster "web"')[0] == ["4", "5"]
    assert {each.subject for each in report.decisions} >= {
        "state of xds:///api",
        "clusters of xds:///api",
    }
    assert len(report.picks) > 300
    assert all(each.is_same for each in report.picks)


def test_replay_with_another_seed_makes_the_same_decisions(recording: Recording) -> None:
    assert replay(recording, seed=99).is_same


def test_recordings_of_two_equal_runs_are_equal(recording: Recording) -> None:
    again = read_lines(bad_day())
    assert without_ids(again) == without_ids(recording)


def without_ids(recording: Recording) -> list[Entry]:
    """The entries without the IDs of channels, which are those of the process."""
    return [
        replace(each, fields={**each.fields, "channel": 0}) if "channel" in each.fields else each
        for each in recording.entries
    ]


def test_replay_differs_when_the_recorded_config_is_another(recording: Recording) -> None:
    """Without the change of the endpoints, there is no third priority to fail over to."""
    resources = [each for each in recording.entries if each.event == RESOURCE_EVENT]
    changed = [each for each in recording.entries if each is not resources[-1]]
    report = replay(replace(recording, entries=tuple(changed)))
    assert not report.is_same
    recorded, replayed, is_same = values(report, PRIORITY)
    assert (recorded, is_same) == (["0", "1", "2", "0"], False)
    assert "2" not in replayed


def test_replay_differs_when_a_backend_is_up_that_was_down(recording: Recording) -> None:
    """The event that shows that the first two backends were lost is what makes it fail over."""
    kept = [
        each
        for each in recording.entries
        if each.event != "subchannel.state" or each.fields["state"] in ("READY", "SHUTDOWN")
    ]
    report = replay(replace(recording, entries=tuple(kept)))
    assert not report.is_same


def test_rpc_that_was_sent_again_after_its_backend_went_away_is_the_same(
    recording: Recording,
) -> None:
    """Its first attempt is not recorded, and fails in the re-run before the failover."""
    start = recording.entries[0].time
    lost, failed_over = start + 8.001, start + 9.0
    late = next(
        each
        for each in recording.entries
        if each.event == RPC_EVENT and each.time > failed_over and each.fields["address"]
    )
    # 10 us before: the request is on its way.
    early = {**late.fields, "took_s": late.time - lost + 0.000_01}
    entries = [replace(each, fields=early) if each is late else each for each in recording.entries]
    report = replay(replace(recording, entries=tuple(entries)))
    (again,) = [each for each in report.picks if 8.0 < each.at_s < 8.01]
    assert (again.code, again.replayed_code) == ("OK", "UNAVAILABLE")
    assert report.is_same


def test_recording_that_lost_its_start_is_compared_from_there(recording: Recording) -> None:
    start = recording.entries[0].time
    kept = [
        each
        for each in recording.entries
        if each.event == RESOURCE_EVENT or each.time > start + 6.0
    ]
    report = replay(replace(recording, entries=tuple(kept), left_out=100))
    assert values(report, PRIORITY)[2]
    assert report.notes
