"""An RPC between the application and the wire."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from proxyless.base import OK, Metadata, State, Status, StatusCode
from proxyless.channel.call import TRANSPARENT_RETRIES_MAX
from proxyless.channel.credentials import CombinedCredentials, OnMetadata
from proxyless.lb import Complete, Drop, Fail, PickInfo
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.wire import StreamEnd
from tests.spec.channel_world import (
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    Observer,
    RecordingPicker,
)

DOWN = Status(StatusCode.UNAVAILABLE, "down")


class LateCredentials:
    """Call credentials that answer when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, OnMetadata]] = []

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        self.requests.append((service_url, path, on_metadata))

    def answer(self, found: Metadata | Status) -> None:
        self.requests.pop(0)[2](found)


def test_a_failing_picker_fails_rpcs_unless_they_wait() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    _, failed = world.call()
    _, waiting = world.call(wait_for_ready=True)
    assert failed.status == DOWN
    assert waiting.is_running
    world.ready()
    world.streams[0].answer()
    assert waiting.status == OK


def test_a_drop_ends_even_an_rpc_that_waits() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.READY, RecordingPicker(Drop(DOWN)))
    _, observer = world.call(wait_for_ready=True)
    assert observer.status == DOWN


def test_a_subchannel_that_lost_its_connection_queues_the_pick() -> None:
    world = ChannelWorld()
    world.connect()
    transport, world.subchannel.transport = world.subchannel.transport, None
    _, observer = world.call()
    assert observer.is_running
    world.subchannel.transport = transport
    world.ready()
    world.streams[0].answer()
    assert observer.status == OK


def test_a_stream_the_server_never_saw_is_tried_again_once() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    assert observer.is_running
    assert world.streams[1].messages == [b"request"]
    world.streams[1].end(UNPROCESSED)
    assert observer.status == UNPROCESSED.status
    assert len(world.streams) == 2


def test_what_was_never_sent_is_tried_again_without_counting() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    for stream in range(10):
        world.streams[stream].end(replace(UNPROCESSED, is_retry_free=True))
    world.streams[10].end(UNPROCESSED)
    assert observer.is_running
    world.streams[11].end(UNPROCESSED)
    assert observer.status == UNPROCESSED.status


def test_even_what_was_never_sent_is_not_tried_for_ever() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    for stream in range(TRANSPARENT_RETRIES_MAX + 1):
        assert observer.is_running
        world.streams[stream].end(replace(UNPROCESSED, is_retry_free=True))
    assert observer.status == UNPROCESSED.status
    assert len(world.streams) == TRANSPARENT_RETRIES_MAX + 1


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, nan])
def test_a_timeout_that_leaves_no_time_ends_the_rpc_soon(timeout_s: float) -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call(timeout_s=timeout_s)
    world.clock.advance(0.0)
    assert observer.status == Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def test_after_response_metadata_nothing_is_tried_again() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    world.streams[0].head()
    world.streams[0].end(UNPROCESSED)
    assert observer.status == UNPROCESSED.status
    assert len(world.streams) == 1


def test_a_deadline_ends_the_rpc_and_its_stream() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call(timeout_s=2.0)
    assert b"grpc-timeout" in world.streams[0].block
    world.clock.advance(2.0)
    assert observer.status == Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    assert world.streams[0].cancelled_with == observer.status


def test_the_timeout_on_the_wire_is_what_is_left_after_waiting() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.call(timeout_s=50.0)
    world.clock.advance(20.0)
    world.ready()
    assert b"30000000u" in world.streams[0].block


def test_an_ended_rpc_leaves_no_timer_and_no_trace_in_the_channel() -> None:
    world = ChannelWorld(idle_timeout_s=float("inf"))
    world.connect()
    for _ in range(100):
        world.call(timeout_s=2.0)
        world.streams[-1].answer()
    assert world.channel.calls == 0
    world.clock.advance(3.0)
    assert world.clock.timers_pending == 0


def test_a_message_over_the_limit_never_leaves() -> None:
    world = ChannelWorld(send_bytes_max=3)
    world.connect()
    _, observer = world.call(b"1234")
    text = "Sent message larger than max (4 vs. 3)"
    assert observer.status == Status(StatusCode.RESOURCE_EXHAUSTED, text)
    assert not world.streams


def test_call_credentials_are_asked_before_selection_and_their_metadata_is_sent() -> None:
    credentials = LateCredentials()
    world = ChannelWorld(call_credentials=credentials, is_private=True)
    picker = world.connect()
    _, observer = world.call()
    assert credentials.requests[0][:2] == ("https://test.example/pkg.Service", world.method.path)
    assert not picker.asked
    credentials.answer((("authorization", "token"),))
    assert b"authorization" in world.streams[0].block or b"token" in world.streams[0].block
    assert picker.asked[0].metadata == (("authorization", "token"),)
    world.streams[0].answer()
    assert observer.status == OK


def test_call_credentials_that_fail_end_the_rpc() -> None:
    credentials = LateCredentials()
    world = ChannelWorld(call_credentials=CombinedCredentials((credentials,)), is_private=True)
    world.connect()
    _, observer = world.call()
    credentials.answer(DOWN)
    assert observer.status == DOWN
    assert not world.streams


def test_an_rpc_that_ended_ignores_late_credentials() -> None:
    credentials = LateCredentials()
    world = ChannelWorld(call_credentials=credentials, is_private=True)
    world.connect()
    call, observer = world.call()
    call.cancel()
    credentials.answer(())
    assert observer.status.code is StatusCode.CANCELLED
    assert not world.streams


def test_closing_the_channel_ends_every_rpc_wherever_it_is() -> None:
    world = ChannelWorld()
    world.connect()
    observers = [world.call()[1]]
    world.report(State.CONNECTING, QUEUE_PICKER)
    observers.append(world.call()[1])
    world.channel.close()
    for observer in observers:
        assert observer.status == Status(StatusCode.CANCELLED, "Channel closed!")
    assert world.streams[0].is_ended
    world.expect_released(True)


@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_an_rpc_on_a_closed_channel_ends_at_once(wait_for_ready: bool) -> None:
    world = ChannelWorld()
    world.channel.close()
    _, observer = world.call(wait_for_ready=wait_for_ready)
    assert observer.status == Status(StatusCode.CANCELLED, "Channel closed!")


def test_a_tracker_hears_of_each_attempt() -> None:
    heard: list[str] = []

    class Tracker:
        def on_start(self) -> None:
            heard.append("start")

        def on_end(self, end: object) -> None:
            status = getattr(end, "status", None)
            heard.append(str(status))

    world = ChannelWorld()
    world.connect()
    complete = Complete(world.complete.subchannel, Tracker())
    world.report(State.READY, RecordingPicker(complete))
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].answer()
    assert observer.status == OK
    assert heard == ["start", "UNAVAILABLE: going away", "start", "OK"]


@pytest.mark.parametrize("end", [UNAVAILABLE, StreamEnd(OK)])
def test_the_observer_hears_exactly_one_end(end: StreamEnd) -> None:
    world = ChannelWorld()
    world.connect()
    call, observer = world.call()
    world.streams[0].end(end)
    call.cancel()
    world.channel.close()
    assert observer.ends == [end]
    assert isinstance(observer, Observer)


def test_a_queued_rpc_is_picked_in_order_of_arrival() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    for name in (b"first", b"second", b"third"):
        world.call(name)
    world.ready()
    assert [stream.messages for stream in world.streams] == [[b"first"], [b"second"], [b"third"]]


def test_a_failed_pick_carries_the_pickers_status() -> None:
    world = ChannelWorld()
    world.connect()
    picker = RecordingPicker(Fail(DOWN))
    world.report(State.TRANSIENT_FAILURE, picker)
    _, observer = world.call()
    assert observer.status == DOWN
    assert isinstance(picker.asked[0], PickInfo)
