"""What is said to one server, and what is waited for?"""

from proxyless.base import Event, Trace
from proxyless.xds.bootstrap import Node
from proxyless.xds.client import Cancel, Tools, XdsClient
from proxyless.xds.client.connection import node_note
from tests.xds_client_world import GONE, ClientWorld, Recorder, text


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


def test_every_text_ends_with_who_we_are() -> None:
    assert node_note(Node("a'b")) == """ (xds node "a'b")"""
