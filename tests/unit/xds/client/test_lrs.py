"""Unit tests of load reports and the times between them."""

import logging

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.client.lrs import CLUSTERS_AND_LOCALITIES_PER_TURN, UNUSED_MAX
from tests.worlds.xds_clients import LoadStatsResponse, XdsClientWorld, server_config


def request_reports(world: XdsClientWorld, seconds: int, *clusters: str) -> None:
    """Respond with these clusters; without any, with send_all_clusters."""
    response = LoadStatsResponse(send_all_clusters=not clusters, clusters=clusters)
    response.load_reporting_interval.seconds = seconds
    world.server().lrs.send_to_client(response.SerializeToString())
    world.settle()


@pytest.mark.parametrize(("requested_s", "interval_s"), [(-5, 1), (0, 1), (7, 7), (10**9, 86_400)])
def test_interval_is_bounded(requested_s: int, interval_s: int) -> None:
    world = XdsClientWorld()
    world.client.load_stats(server_config(), "c", "")
    request_reports(world, requested_s)
    world.server().lrs.take_requests()
    world.clock.advance(interval_s - 0.5)
    assert world.server().lrs.take_requests() == []
    world.clock.advance(0.5)
    assert len(world.server().lrs.take_requests()) == 1
    world.close()


def test_report_is_not_delayed_when_the_server_repeats_its_response() -> None:
    world = XdsClientWorld()
    world.client.load_stats(server_config(), "c", "")
    request_reports(world, 10)
    world.server().lrs.take_requests()
    world.clock.advance(9)
    request_reports(world, 10)
    world.clock.advance(1)
    assert len(world.server().lrs.take_requests()) == 1
    world.clock.advance(5)
    request_reports(world, 20)
    world.clock.advance(19)
    assert world.server().lrs.take_requests() == []
    world.clock.advance(1)
    assert len(world.server().lrs.take_requests()) == 1
    world.close()


def test_load_report_is_sent_later_when_the_server_does_not_read() -> None:
    world = XdsClientWorld()
    load = world.client.load_stats(server_config(), "c", "")
    request_reports(world, 1)
    lrs = world.server().lrs
    lrs.take_requests()
    lrs.is_writable = False
    for _ in range(100):
        load.drop(None)
        world.clock.advance(1)
    assert lrs.take_requests() == []
    lrs.is_writable = True
    world.clock.advance(1)
    (report,) = lrs.take_requests()
    assert report.cluster_stats[0].total_dropped_requests == 100
    world.close()


def test_clusters_are_reported_in_slices_when_they_are_many() -> None:
    world = XdsClientWorld()
    names = [f"c{number:04}" for number in range(3 * CLUSTERS_AND_LOCALITIES_PER_TURN)]
    loads = [world.client.load_stats(server_config(), name, "") for name in names]
    request_reports(world, 10)
    lrs = world.server().lrs
    for _ in range(2):
        for load in loads:
            load.drop(None)
        lrs.take_requests()
        world.clock.advance(10)
        world.settle()
        reports = lrs.take_requests()
        assert len(reports) == 3
        found = [each.cluster_name for report in reports for each in report.cluster_stats]
        assert found == names
    world.close()


def test_counter_is_reused_when_it_is_acquired_before_its_report() -> None:
    world = XdsClientWorld()
    stream_user = world.client.load_stats(server_config(), "d", "")
    load = world.client.load_stats(server_config(), "c", "")
    load.drop(None)
    load.release()
    assert world.client.load_stats(server_config(), "c", "") is load
    load.release()
    request_reports(world, 1)
    world.clock.advance(1)
    # The counter was reported and is unused, so it was removed.
    assert world.client.load_stats(server_config(), "c", "") is not load
    stream_user.release()
    world.close()


def test_unused_load_counters_are_bounded_when_no_report_is_requested() -> None:
    world = XdsClientWorld()
    kept = world.client.load_stats(server_config(), "kept", "")
    first = world.client.load_stats(server_config(), "first", "")
    first.release()
    for number in range(UNUSED_MAX):
        world.client.load_stats(server_config(), f"c{number}", "").release()
    assert world.client.load_stats(server_config(), "first", "") is not first
    assert world.client.load_stats(server_config(), "kept", "") is kept
    world.close()


def test_load_counter_is_removed_when_it_is_unused_and_not_requested() -> None:
    world = XdsClientWorld()
    stream_user = world.client.load_stats(server_config(), "wanted", "")
    load = world.client.load_stats(server_config(), "other", "")
    load.drop(None)
    load.release()
    request_reports(world, 1, "wanted")
    world.clock.advance(1)
    assert world.client.load_stats(server_config(), "other", "") is not load
    stream_user.release()
    world.close()


def test_counter_can_be_released_after_its_client_was_closed() -> None:
    world = XdsClientWorld()
    load = world.client.load_stats(server_config(), "c", "")
    world.settle()
    world.close()
    load.drop(None)
    load.release()


def test_error_of_the_stream_is_logged_once_when_it_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.client.lrs")
    world = XdsClientWorld()
    world.client.load_stats(server_config(), "c", "")
    for _ in range(5):
        world.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "no\nsuch service"))
        while not world.server().lrs.is_open:
            assert world.clock.advance_to_next()
    expected = (
        'xds server "a": load reports: stream ended before any response:'
        ' UNIMPLEMENTED: no such service (node id "edge-7")'
    )
    assert [record.getMessage() for record in caplog.records] == [expected]
    request_reports(world, 10)
    for _ in range(2):
        world.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "no\nsuch service"))
        while not world.server().lrs.is_open:
            assert world.clock.advance_to_next()
    assert [record.getMessage() for record in caplog.records] == [expected, expected]
    world.close()
