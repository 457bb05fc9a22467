"""Unit tests of the ADS connection to one server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Event, Trace
from proxyless.xds.client import Cancel, Tools, XdsClient
from proxyless.xds.client.connection import describe_silence
from tests.worlds.xds_clients import GONE, WatchRecorder, XdsClientWorld, server_config, text

if TYPE_CHECKING:
    from collections.abc import Callable


def test_one_timer_runs_for_all_resources_of_a_request() -> None:
    world = XdsClientWorld()
    recorders = [WatchRecorder() for _ in range(100)]
    for index, recorder in enumerate(recorders):
        world.client.watch(world.listeners, f"x{index}", recorder)
    world.settle()
    assert world.clock.timers_pending == 1
    world.server().respond(world.listeners, *(text(f"x{index}") for index in range(99)))
    assert world.clock.timers_pending == 1
    world.clock.advance(15)
    assert [len(recorder.received) for recorder in recorders] == [1] * 100
    assert recorders[99].take_codes() == ["NOT_FOUND"]
    assert world.clock.timers_pending == 0
    world.close()


def test_resource_timer_ends_when_no_resource_is_awaited() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.listeners, "y", WatchRecorder())
    world.settle()
    assert world.clock.timers_pending == 2
    world.server().respond(world.listeners, text("x"))
    assert world.clock.timers_pending == 1
    cancel()
    world.settle()
    assert world.clock.timers_pending == 0
    world.close()


def test_no_resource_timer_runs_on_a_new_stream_when_all_resources_are_cached() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().ads.end(GONE)
    world.clock.advance(2)
    assert world.server().open_ads == 1
    assert world.clock.timers_pending == 0
    world.close()


def test_watcher_is_not_called_when_another_one_cancels_its_watch() -> None:
    world = XdsClientWorld()
    cancels: list[Cancel] = []

    def cancel_other() -> None:
        cancels.pop()()

    first, other = WatchRecorder(on_notification=cancel_other), WatchRecorder()
    world.client.watch(world.listeners, "x", first)
    cancels.append(world.client.watch(world.listeners, "y", other))
    world.clock.advance(15)
    assert first.take_codes() == ["NOT_FOUND"]
    assert other.take() == []
    world.close()


def test_failure_has_no_effect_when_only_load_reports_use_the_server() -> None:
    world = XdsClientWorld()
    cancel = world.client.watch(world.listeners, "x", WatchRecorder())
    load = world.client.load_stats(server_config(), "c", "")
    world.settle()
    cancel()
    world.settle()
    timers = world.clock.timers_pending
    world.server().fail()
    assert world.clock.timers_pending == timers, "only load reports use the transport"
    load.release()
    world.close()


def test_requests_and_ends_of_streams_are_traced() -> None:
    world = XdsClientWorld()
    trace, events = Trace(), list[Event]()
    trace.subscribe(events.append)
    tools = Tools(world.clock, world.tools.random, trace)
    client = XdsClient(world.bootstrap, world.transports, tools)
    client.watch(world.listeners, "x", WatchRecorder())
    world.settle()
    world.server().ads.end(GONE)
    assert [event.name for event in events] == ["xds.request", "xds.stream_ended"]
    assert events[0].fields["names"] == ("x",)
    client.close()
    world.close()


@pytest.mark.parametrize(
    ("silent_s", "expected"),
    [
        (0, "does not answer"),
        (59, "does not answer"),
        (60, "has not answered for over 1 min"),
        (3_599, "has not answered for over 10 min"),
        (3_600, "has not answered for over 1 h"),
        (1e9, "has not answered for over 1 day"),
    ],
)
def test_text_about_a_silent_server_changes_in_few_steps(silent_s: float, expected: str) -> None:
    assert describe_silence(silent_s) == expected


# ---------------------------------------------------------------------------------------------
# Logs


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Take the lines logged since the last call."""
    caplog.set_level(logging.INFO, "proxyless.xds.client")

    def take() -> list[str]:
        messages = [f"{each.levelname} {each.getMessage()}" for each in caplog.records]
        caplog.clear()
        return messages

    return take


def test_nack_is_logged_once_when_it_is_repeated(lines: Callable[[], list[str]]) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    expected = 'WARNING listener "x": value is bad (node id "edge-7")'
    for _ in range(5):
        world.server().respond(world.listeners, text("x", "bad"))
    assert lines() == [expected]
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "bad"))
    assert lines() == [expected], "the one before was accepted"
    world.close()


def test_long_outage_is_logged_in_few_lines(lines: Callable[[], list[str]]) -> None:
    world = XdsClientWorld()
    recorder = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    recorder.take()
    world.server().is_up = False
    for _ in range(200):
        if world.server().streams[-1].is_open:
            world.server().ads.end(GONE)
        world.clock.advance_to_next()
    logged = lines()
    assert len(logged) <= 5
    assert logged[0].startswith('WARNING xds server "a": does not answer: stream ended before')
    assert 'xds server "a": has not answered for over 1 h: stream ended before' in logged[-1]
    world.close()


def test_outage_is_logged_with_its_length_when_it_ends(lines: Callable[[], list[str]]) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().ads.end(GONE)
    lines()
    world.clock.advance(10)
    world.server().respond(world.listeners, text("x"))
    assert lines() == ['INFO xds server "a": answers again after 10.0 s']
    world.close()
    assert world.clock.timers_pending == 0


def test_no_timer_is_left_when_the_client_is_closed_in_an_outage() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().ads.end(GONE)
    world.close()
    assert world.clock.timers_pending == 0


def test_undecodable_response_is_logged_once(lines: Callable[[], list[str]]) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    for _ in range(5):
        world.server().ads.send_to_client(b"\xff\xff")
        world.settle()
    assert lines() == ['WARNING xds server "a": response cannot be decoded (node id "edge-7")']
    world.close()


def test_name_cannot_add_a_line_to_the_log(lines: Callable[[], list[str]]) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    name = "x\nCRITICAL all is lost\x1b[31m" + "y" * 100_000
    world.server().respond(world.listeners, text(name, "bad"))
    (line,) = lines()
    assert line.isprintable()
    assert len(line) < 500
    (nack,) = (each for each in world.server().take_requests() if each.HasField("error_detail"))
    assert f"WARNING {nack.error_detail.message}" == line
    world.close()
