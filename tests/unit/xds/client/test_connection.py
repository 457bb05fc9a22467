"""Unit tests of the ADS connection to one server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Event, Trace
from proxyless.xds.client import Cancel, Tools, XdsClient
from proxyless.xds.client.connection import describe_silence
from tests.xds_client_world import GONE, ClientWorld, Recorder, server_config, text

if TYPE_CHECKING:
    from collections.abc import Callable


def test_one_timer_runs_for_all_resources_of_a_request() -> None:
    world = ClientWorld()
    recorders = [Recorder() for _ in range(100)]
    for index, recorder in enumerate(recorders):
        world.client.watch(world.listeners, f"x{index}", recorder)
    world.settle()
    assert world.clock.timers_pending == 1
    world.server().respond(world.listeners, *(text(f"x{index}") for index in range(99)))
    assert world.clock.timers_pending == 1
    world.clock.advance(15)
    assert [len(recorder.heard) for recorder in recorders] == [1] * 100
    assert recorders[99].take_codes() == ["NOT_FOUND"]
    assert world.clock.timers_pending == 0
    world.close()


def test_the_timer_ends_with_the_last_resource_that_came() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.listeners, "y", Recorder())
    world.settle()
    assert world.clock.timers_pending == 2
    world.server().respond(world.listeners, text("x"))
    assert world.clock.timers_pending == 1
    cancel()
    world.settle()
    assert world.clock.timers_pending == 0
    world.close()


def test_what_is_known_is_not_waited_for_on_a_new_stream() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().ads.end(GONE)
    world.clock.advance(2)
    assert world.server().open_ads == 1
    assert world.clock.timers_pending == 0
    world.close()


def test_a_timeout_may_cancel_the_watches_of_others() -> None:
    world = ClientWorld()
    cancels: list[Cancel] = []

    def cancel_other() -> None:
        cancels.pop()()

    first, other = Recorder(on_news=cancel_other), Recorder()
    world.client.watch(world.listeners, "x", first)
    cancels.append(world.client.watch(world.listeners, "y", other))
    world.clock.advance(15)
    assert first.take_codes() == ["NOT_FOUND"]
    assert other.take() == []
    world.close()


def test_a_server_that_is_not_asked_any_more_may_be_silent() -> None:
    world = ClientWorld()
    cancel = world.client.watch(world.listeners, "x", Recorder())
    load = world.client.load_stats(server_config(), "c", "")
    world.settle()
    cancel()
    world.settle()
    timers = world.clock.timers_pending
    world.server().fail()
    assert world.clock.timers_pending == timers, "load reports keep the transport, and no more"
    load.release()
    world.close()


def test_requests_and_ends_are_traced() -> None:
    world = ClientWorld()
    trace, events = Trace(), list[Event]()
    trace.subscribe(events.append)
    tools = Tools(world.clock, world.tools.random, trace)
    client = XdsClient(world.bootstrap, world.transports, tools)
    client.watch(world.listeners, "x", Recorder())
    world.settle()
    world.server().ads.end(GONE)
    assert [event.name for event in events] == ["xds.request", "xds.stream_ended"]
    assert events[0].fields["names"] == ("x",)
    client.close()
    world.close()


@pytest.mark.parametrize(
    ("silent_s", "words"),
    [
        (0, "does not answer"),
        (59, "does not answer"),
        (60, "has not answered for over 1 min"),
        (3_599, "has not answered for over 10 min"),
        (3_600, "has not answered for over 1 h"),
        (1e9, "has not answered for over 1 day"),
    ],
)
def test_text_about_a_silent_server_changes_in_few_steps(silent_s: float, words: str) -> None:
    assert describe_silence(silent_s) == words


# ---------------------------------------------------------------------------------------------
# Logs


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged since it was last asked."""
    caplog.set_level(logging.INFO, "proxyless.xds.client")

    def take() -> list[str]:
        messages = [f"{each.levelname} {each.getMessage()}" for each in caplog.records]
        caplog.clear()
        return messages

    return take


def test_what_is_refused_again_is_logged_once(lines: Callable[[], list[str]]) -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    said = 'WARNING listener "x": value is bad (node id "edge-7")'
    for _ in range(5):
        world.server().respond(world.listeners, text("x", "bad"))
    assert lines() == [said]
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "bad"))
    assert lines() == [said], "in between it was accepted"
    world.close()


def test_a_long_outage_is_logged_in_few_lines(lines: Callable[[], list[str]]) -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    heard.take()
    world.server().is_up = False
    for _ in range(200):
        if world.server().streams[-1].is_open:
            world.server().ads.end(GONE)
        world.clock.advance_to_next()
    told = lines()
    assert len(told) <= 5
    assert told[0].startswith('WARNING xds server "a": does not answer: stream ended before')
    assert 'xds server "a": has not answered for over 1 h: stream ended before' in told[-1]
    world.close()


def test_outage_is_logged_with_its_length_when_it_ends(lines: Callable[[], list[str]]) -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().ads.end(GONE)
    lines()
    world.clock.advance(10)
    world.server().respond(world.listeners, text("x"))
    assert lines() == ['INFO xds server "a": answers again after 10.0 s']
    world.close()
    assert world.clock.timers_pending == 0


def test_an_outage_leaves_no_timer_behind() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().ads.end(GONE)
    world.close()
    assert world.clock.timers_pending == 0


def test_bytes_that_are_no_response_are_logged_once(lines: Callable[[], list[str]]) -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    for _ in range(5):
        world.server().ads.say(b"\xff\xff")
        world.settle()
    assert lines() == ['WARNING xds server "a": response cannot be decoded (node id "edge-7")']
    world.close()


def test_names_from_a_control_plane_cannot_forge_a_line(lines: Callable[[], list[str]]) -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    name = "x\nCRITICAL all is lost\x1b[31m" + "y" * 100_000
    world.server().respond(world.listeners, text(name, "bad"))
    (line,) = lines()
    assert line.isprintable()
    assert len(line) < 500
    (nack,) = (each for each in world.server().take_requests() if each.HasField("error_detail"))
    assert f"WARNING {nack.error_detail.message}" == line
    world.close()
