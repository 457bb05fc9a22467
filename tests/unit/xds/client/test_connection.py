"""Unit tests of the ADS connection to one server."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Event, Status, StatusCode, Trace
from proxyless.runtime.work_queue import UNITS_PER_TURN
from proxyless.xds.client import Cancel, DecodeContext, Decoded, Tools, XdsClient
from proxyless.xds.client.server_log import describe_silence
from tests.worlds.xds_clients import (
    GONE,
    TextType,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime.work_queue import Steps


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


def test_newest_reason_of_an_outage_is_shown_at_once_and_published_with_the_next_text() -> None:
    """A transport reports the first reason only."""
    world = XdsClientWorld()
    world.server().is_up = False
    recorder = world.watch(world.listeners, "x")
    world.server().fail(Status(StatusCode.UNAVAILABLE, "refused"))
    world.settle()
    (transport,) = world.server().transports
    transport.failure = Status(StatusCode.UNAVAILABLE, "no route")
    (view,) = world.client.servers()
    assert (view.status.details, view.newest.details) == (
        'xds server "a": does not answer: refused (node id "edge-7")',
        'xds server "a": does not answer: no route (node id "edge-7")',
    )
    assert [each.details for each in recorder.take()] == [view.status.details]
    world.clock.advance(60.0)
    assert [each.details for each in recorder.take()] == [
        'xds server "a": has not answered for over 1 min: no route (node id "edge-7")'
    ]
    world.close()


def end_short_stream(world: XdsClientWorld) -> None:
    """Let the server answer with one resource, and end the stream."""
    world.server().respond(world.listeners, text("x"))
    world.server().ads.end(GONE)
    world.clock.advance(3.0)


def test_server_that_ends_its_streams_before_a_resource_is_logged_once(
    lines: Callable[[], list[str]],
) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.watch(world.routes, "y")
    for _ in range(2):
        end_short_stream(world)
    assert lines() == []
    for _ in range(5):
        end_short_stream(world)
    expected = f'before it has sent route configuration "y": {GONE} (node id "edge-7")'
    assert lines() == [f'WARNING xds server "a": ends each stream soon, {expected}']
    world.close()


def test_server_that_ends_its_streams_after_all_resources_is_not_logged(
    lines: Callable[[], list[str]],
) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    for _ in range(5):
        end_short_stream(world)
    assert lines() == []
    world.close()


def test_short_streams_of_a_server_are_shown_until_one_lasts() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    shown = []
    for _ in range(4):
        end_short_stream(world)
        (view,) = world.client.servers()
        shown.append(view.short_streams)
    assert shown == [0, 0, 3, 4]
    assert view.last_end == GONE
    world.clock.advance(15.0)
    (view,) = world.client.servers()
    assert view.short_streams == 0
    # The count starts again.
    world.server().respond(world.listeners, text("x"))
    world.server().ads.end(GONE)
    (view,) = world.client.servers()
    assert view.short_streams == 0
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


# ---------------------------------------------------------------------------------------------
# Responses that take several turns


class SlowType(TextType):
    """Resource type that takes as many slices as the value of a resource."""

    def decode_in_steps(self, serialized: bytes, context: DecodeContext) -> Steps[Decoded[str]]:
        for _ in range(int(json.loads(serialized)["value"])):
            yield UNITS_PER_TURN
        return self.decode(serialized, context)


class SlowWorld(XdsClientWorld):
    """A client with watches of "x" and "y", and a response that takes four turns."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = SlowType(is_full_state=True)
        self.x, self.y = WatchRecorder(), WatchRecorder()
        self.cancel_x = self.client.watch(self.slow, "x", self.x)
        self.cancel_y = self.client.watch(self.slow, "y", self.y)
        self.settle()
        self.server().take_requests()

    def respond(self, event: Callable[[], object], *resources: bytes) -> None:
        """Send a response. The event happens between its first two turns."""
        message = self.server().response(self.slow, resources, version="1")
        self.server().ads.send_to_client(message)

        def run_event() -> None:
            event()

        self.clock.call_later(0, run_event)
        self.settle()

    def answers(self) -> list[tuple[str, str]]:
        requests = self.server().take_requests()
        return [(each.version_info, each.response_nonce) for each in requests]


def test_response_is_applied_and_answered_when_all_turns_are_over() -> None:
    world = SlowWorld()
    received = []
    world.respond(lambda: received.append((world.x.take(), world.answers())), text("x", "3"))
    assert received == [([], [])]
    assert (world.x.take(), world.answers()) == (["3"], [("1", "n1")])
    world.close()


def test_resource_is_dropped_when_its_watch_ends_during_the_response() -> None:
    world = SlowWorld()
    world.respond(world.cancel_x, text("x", "2"), text("y", "2"))
    assert (world.x.take(), world.y.take()) == ([], ["2"])
    assert world.answers()[-1] == ("1", "n1")
    world.close()


def test_resource_is_used_from_the_next_response_when_its_watch_starts_during_one() -> None:
    world = SlowWorld()
    late = WatchRecorder()
    world.respond(lambda: world.client.watch(world.slow, "z", late), text("z", "0"), text("x", "1"))
    assert (late.take(), world.x.take()) == ([], ["1"])
    world.respond(lambda: None, text("z", "0"), text("x", "1"))
    assert (late.take(), world.x.take()) == (["0"], [])
    world.close()


def test_response_is_applied_without_an_answer_when_the_stream_ends_before() -> None:
    world = SlowWorld()
    world.respond(lambda: world.server().ads.end(GONE), text("x", "3"))
    assert (world.x.take(), world.answers()) == (["3"], [])
    world.clock.advance(5)
    assert world.answers() == [("1", "")]
    world.close()


def test_response_is_applied_when_the_stream_ends_before_it_is_parsed() -> None:
    world = SlowWorld()
    # So many bytes take more than one turn.
    large = [json.dumps({"name": f"z{n}", "value": "0", "more": "-" * 200}) for n in range(5_000)]
    world.respond(
        lambda: world.server().ads.end(GONE), *(each.encode() for each in large), text("x", "0")
    )
    assert (world.x.take(), world.answers()) == (["0"], [])
    world.close()


def test_response_is_dropped_when_a_new_stream_has_one() -> None:
    world = SlowWorld()
    world.clock.advance(100)
    world.x.take()

    def replace_stream() -> None:
        world.server().ads.end(GONE)
        world.clock.call_later(0, lambda: world.server().ads.send_to_client(second))

    second = world.server().response(world.slow, [text("x", "1")], version="2", nonce="m")
    world.respond(replace_stream, text("x", "20"))
    assert world.x.take() == ["1"]
    assert world.answers()[-1] == ("2", "m")
    world.close()


def test_nothing_is_left_when_the_client_is_closed_during_a_response() -> None:
    world = SlowWorld()
    world.respond(world.client.close, text("x", "3"))
    assert (world.x.take(), world.answers()) == ([], [])
    world.close()


def test_missing_resources_are_deleted_when_all_turns_are_over() -> None:
    world = SlowWorld()
    world.respond(lambda: None, text("x", "1"), text("y", "1"))
    world.respond(lambda: None, text("y", "2"))
    assert (world.x.take_codes(), world.y.take()) == (["1", "NOT_FOUND"], ["1", "2"])
    world.close()


def test_large_response_is_applied_in_parts() -> None:
    world = XdsClientWorld()
    recorder = WatchRecorder()
    for index in range(1_200):
        world.client.watch(world.listeners, f"x{index}", recorder)
    world.settle()
    world.server().take_requests()
    for version in ("1", "2"):
        resources = [text(f"x{index}", version) for index in range(1_200)]
        world.server().respond(world.listeners, *resources, text("z", "bad"), version=version)
        assert recorder.take() == [version] * 1_200
    world.server().respond(world.listeners, *resources, version="3")
    answers = world.server().take_requests()
    assert [each.version_info for each in answers] == ["1", "2", "3"]
    assert {each.version for each in world.client.dump()} == {"3"}
    world.close()
