"""An RPC between the application and the wire."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, Metadata, State, Status, StatusCode
from proxyless.channel.credentials import CombinedCredentials, OnMetadata
from proxyless.channel.transparent_retries import TRANSPARENT_RETRIES_MAX
from proxyless.lb import QUEUE, Complete, Drop, Fail, HeadTracker, Picker, PickInfo, PickResult
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.wire import StreamEnd
from proxyless.wire.messages import Unpacking
from tests.worlds.channels import (
    UNAVAILABLE,
    UNPROCESSED,
    CallObserver,
    ChannelWorld,
    FakeSelector,
    RecordingPicker,
)

if TYPE_CHECKING:
    from proxyless.channel import CallConfig

DOWN = Status(StatusCode.UNAVAILABLE, "down")


class LateCredentials:
    """Call credentials that the test answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, OnMetadata]] = []

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        self.requests.append((service_url, path, on_metadata))

    def answer(self, found: Metadata | Status) -> None:
        self.requests.pop(0)[2](found)


def test_failing_picker_fails_rpcs_that_are_not_wait_for_ready() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    _, failed = world.call()
    _, waiting = world.call(wait_for_ready=True)
    assert failed.status == DOWN
    assert waiting.is_running
    world.ready()
    world.streams[0].respond()
    assert waiting.status == OK


def test_drop_ends_even_a_wait_for_ready_rpc() -> None:
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
    world.streams[0].respond()
    assert observer.status == OK


def test_stream_that_the_server_never_saw_is_retried_once() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    assert observer.is_running
    assert world.streams[1].messages == [b"request"]
    world.streams[1].end(UNPROCESSED)
    assert observer.status == UNPROCESSED.status
    assert len(world.streams) == 2


def test_stream_that_was_never_sent_is_retried_repeatedly() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    for stream in range(10):
        world.streams[stream].end(replace(UNPROCESSED, is_retry_free=True))
    world.streams[10].end(UNPROCESSED)
    assert observer.is_running
    world.streams[11].end(UNPROCESSED)
    assert observer.status == UNPROCESSED.status


def test_stream_that_was_never_sent_is_retried_a_limited_number_of_times() -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call()
    for stream in range(TRANSPARENT_RETRIES_MAX + 1):
        assert observer.is_running
        world.streams[stream].end(replace(UNPROCESSED, is_retry_free=True))
    assert observer.status == UNPROCESSED.status
    assert len(world.streams) == TRANSPARENT_RETRIES_MAX + 1


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, nan])
def test_rpc_ends_in_the_next_turn_when_its_timeout_is_not_positive(timeout_s: float) -> None:
    world = ChannelWorld()
    world.connect()
    _, observer = world.call(timeout_s=timeout_s)
    world.clock.advance(0.0)
    assert observer.status == Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def test_rpc_is_not_retried_after_response_metadata() -> None:
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


def test_deadline_before_the_rpc_is_sent_names_what_it_waited_for() -> None:
    world = ChannelWorld()
    _, unresolved = world.call(timeout_s=1.0)
    world.clock.advance(1.0)
    assert unresolved.status is not None
    assert unresolved.status.details.endswith("while waiting for the target's config")
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    _, queued = world.call(timeout_s=1.0, wait_for_ready=True)
    world.clock.advance(1.0)
    assert queued.status is not None
    assert queued.status.details.endswith("while waiting for a connection: down")


def test_deadline_of_a_queued_rpc_names_the_failure_of_its_pick_when_others_are_picked() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.READY, RecordingPicker(Fail(DOWN)))
    _, queued = world.call(timeout_s=1.0, wait_for_ready=True)
    world.clock.advance(1.0)
    assert queued.status is not None
    assert queued.status.details.endswith("while waiting for a connection: down")


def test_timeout_on_the_wire_is_the_remaining_time_after_a_wait() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.call(timeout_s=50.0)
    world.clock.advance(20.0)
    world.ready()
    assert b"30000000u" in world.streams[0].block


def test_ended_rpc_leaves_no_timer_and_no_reference_in_the_channel() -> None:
    world = ChannelWorld(idle_timeout_s=float("inf"))
    world.connect()
    for _ in range(100):
        world.call(timeout_s=2.0)
        world.streams[-1].respond()
    assert world.channel.calls == 0
    world.clock.advance(3.0)
    assert world.clock.timers_pending == 0


def test_message_over_the_limit_is_not_sent() -> None:
    world = ChannelWorld(send_bytes_max=3)
    world.connect()
    _, observer = world.call(b"1234")
    text = "Sent message larger than max (4 vs. 3)"
    assert observer.status == Status(StatusCode.RESOURCE_EXHAUSTED, text)
    assert not world.streams


def test_call_credentials_are_requested_before_selection_and_their_metadata_is_sent() -> None:
    credentials = LateCredentials()
    world = ChannelWorld(call_credentials=credentials, is_private=True)
    picker = world.connect()
    _, observer = world.call()
    assert credentials.requests[0][:2] == ("https://test.example/pkg.Service", world.method.path)
    assert not picker.picks
    credentials.answer((("authorization", "token"),))
    assert b"authorization" in world.streams[0].block or b"token" in world.streams[0].block
    assert picker.picks[0].metadata == (("authorization", "token"),)
    world.streams[0].respond()
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


def test_closing_the_channel_ends_every_rpc_at_any_station() -> None:
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
def test_close_ends_waiting_rpcs_with_its_status(wait_for_ready: bool) -> None:
    world = ChannelWorld()
    observers = [world.call(wait_for_ready=wait_for_ready)[1]]
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    observers.append(world.call(wait_for_ready=wait_for_ready)[1])
    world.streams[0].end(UNPROCESSED)
    world.channel.close(DOWN)
    # The same object: fronts compare it by identity.
    assert [observer.status is DOWN for observer in observers] == [True, True]


@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_an_rpc_on_a_closed_channel_ends_at_once(wait_for_ready: bool) -> None:
    world = ChannelWorld()
    world.channel.close()
    _, observer = world.call(wait_for_ready=wait_for_ready)
    assert observer.status == Status(StatusCode.CANCELLED, "Channel closed!")


def test_tracker_is_called_for_each_attempt() -> None:
    events: list[str] = []

    class Tracker:
        def on_start(self) -> None:
            events.append("start")

        def on_end(self, end: object) -> None:
            status = getattr(end, "status", None)
            events.append(str(status))

    world = ChannelWorld()
    world.connect()
    complete = Complete(world.complete.subchannel, Tracker())
    world.report(State.READY, RecordingPicker(complete))
    _, observer = world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    assert observer.status == OK
    assert events == ["start", "UNAVAILABLE: going away", "start", "OK"]


class RecordingHeadTracker(HeadTracker):
    """Tracker that records its calls, and raises in one of them."""

    def __init__(self, raises_in: str = "") -> None:
        self.events: list[str] = []
        self._raises_in = raises_in

    def on_start(self) -> None:
        self._add("start")

    def on_head(self) -> None:
        self._add("head")

    def on_end(self, end: object) -> None:
        self._add("end")

    def _add(self, event: str) -> None:
        self.events.append(event)
        assert event != self._raises_in


@pytest.mark.parametrize("raises_in", ["", "start", "head", "end"])
def test_head_tracker_is_called_with_the_headers_and_does_not_affect_the_rpc(
    raises_in: str,
) -> None:
    world = ChannelWorld()
    world.connect()
    tracker = RecordingHeadTracker(raises_in)
    world.report(State.READY, RecordingPicker(Complete(world.complete.subchannel, tracker)))
    _, observer = world.call()
    world.streams[0].respond()
    assert observer.status == OK
    expected = ["start"] if raises_in == "start" else ["start", "head", "end"]
    assert tracker.events == expected


def test_head_tracker_is_not_called_with_headers_when_the_response_is_trailers_only() -> None:
    world = ChannelWorld()
    world.connect()
    tracker = RecordingHeadTracker()
    world.report(State.READY, RecordingPicker(Complete(world.complete.subchannel, tracker)))
    world.call()
    world.streams[0].end(StreamEnd(OK))
    assert tracker.events == ["start", "end"]


@pytest.mark.parametrize("end", [UNAVAILABLE, StreamEnd(OK)])
def test_observer_is_called_with_exactly_one_end(end: StreamEnd) -> None:
    world = ChannelWorld()
    world.connect()
    call, observer = world.call()
    world.streams[0].end(end)
    call.cancel()
    world.channel.close()
    assert observer.ends == [end]
    assert isinstance(observer, CallObserver)


def test_a_queued_rpc_is_picked_in_order_of_arrival() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    for name in (b"first", b"second", b"third"):
        world.call(name)
    world.ready()
    assert [stream.messages for stream in world.streams] == [[b"first"], [b"second"], [b"third"]]


def test_failed_pick_has_the_status_of_the_picker() -> None:
    world = ChannelWorld()
    world.connect()
    picker = RecordingPicker(Fail(DOWN))
    world.report(State.TRANSIENT_FAILURE, picker)
    _, observer = world.call()
    assert observer.status == DOWN
    assert isinstance(picker.picks[0], PickInfo)


# Exceptions in an application's own code


class Broken(Picker):
    """A picker that raises."""

    def pick(self, info: PickInfo) -> PickResult:
        raise KeyError(info.path)


def test_picker_that_raises_ends_each_rpc() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    observers = [world.call()[1] for _ in range(3)]
    world.report(State.READY, Broken())
    for observer in observers:
        assert observer.status.code is StatusCode.INTERNAL
        assert "picker raised KeyError" in observer.status.details
    assert world.channel.calls == 0


@pytest.mark.parametrize("waits_for", ["selector", "picker"])
def test_rpc_that_cannot_be_sent_ends_and_later_ones_continue(waits_for: str) -> None:
    world = ChannelWorld()
    if waits_for == "picker":
        world.connect()
        world.report(State.CONNECTING, QUEUE_PICKER)
    broken, first = world.call()
    broken._request.encoding = "unknown"
    _, second = world.call()
    world.connect()
    assert first.status.code is StatusCode.INTERNAL
    assert first.status.details.startswith("channel raised ")
    world.streams[-1].respond()
    assert second.status == OK
    assert world.channel.calls == 0


def test_on_writable_is_called_when_a_new_stream_takes_all_messages() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    call, observer = world.call(None)
    call.send_message(b"only")
    call.close_sending()
    was_writable = call.is_writable
    world.ready()
    assert world.streams[0].messages == [b"only"]
    assert (was_writable, call.is_writable) == (False, True)
    assert observer.writable == 1


class Silent(RecordingPicker):
    """A picker whose status raises."""

    @property
    def status(self) -> Status:
        raise AttributeError("status")


def test_deadline_ends_rpc_when_the_status_of_the_picker_raises() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, Silent(QUEUE))
    assert world.channel.state is State.TRANSIENT_FAILURE
    _, observer = world.call(timeout_s=1.0)
    world.clock.advance(1.0)
    assert observer.status.details == "Deadline Exceeded while waiting for a connection"


def test_a_selector_that_raises_ends_the_rpc() -> None:
    def bug() -> CallConfig | Status:
        raise ZeroDivisionError

    world = ChannelWorld()
    world.connect(FakeSelector(bug))
    _, observer = world.call()
    assert observer.status.code is StatusCode.INTERNAL
    assert "config selector raised ZeroDivisionError" in observer.status.details


@pytest.mark.parametrize("when", ["start", "end"])
def test_tracker_that_raises_does_not_affect_the_rpc(when: str) -> None:
    class Tracker:
        def on_start(self) -> None:
            assert when != "start"

        def on_end(self, end: object) -> None:
            assert when != "end"

    world = ChannelWorld()
    world.connect()
    complete = Complete(world.complete.subchannel, Tracker())
    world.report(State.READY, RecordingPicker(complete))
    _, observer = world.call()
    world.streams[0].respond()
    assert observer.status == OK


def test_resolver_that_cannot_be_created_fails_rpcs_and_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(*_: object) -> None:
        raise ValueError("no such file")

    world = ChannelWorld()
    with monkeypatch.context() as patch:
        patch.setattr(world.resolver, "create", bug)
        _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "resolver raised ValueError: no such file" in observer.status.details
    _, observer = world.call()
    world.resolve()
    world.ready()
    world.streams[0].respond()
    assert observer.status == OK


# Time


def test_cancel_by_the_server_after_the_deadline_is_deadline_exceeded() -> None:
    world = ChannelWorld()
    world.connect()
    call, observer = world.call(timeout_s=2.0)
    # Our own timer is late; the server's is not.
    world.channel.stack.deadlines.cancel(call)
    world.clock.advance(2.0)
    world.streams[0].end(StreamEnd(Status(StatusCode.CANCELLED, "stream reset by peer: CANCEL")))
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


def test_a_configured_timeout_counts_from_the_start_of_the_rpc() -> None:
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "methodConfig": [{"name": [{}], "timeout": "5s"}],
    }
    world = ChannelWorld(service_config=config)
    _, observer = world.call()
    world.clock.advance(4.0)
    world.resolve()
    world.ready()
    assert b"grpc-timeout" in world.streams[0].block
    assert observer.is_running
    world.clock.advance(1.0)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


def test_infinite_timeout_is_no_timeout() -> None:
    world = ChannelWorld(idle_timeout_s=float("inf"))
    world.connect()
    call, _ = world.call(timeout_s=float("inf"))
    assert call.time_remaining_s() is None
    assert b"grpc-timeout" not in world.streams[0].block
    assert world.clock.timers_pending == 0


def test_a_closed_channel_does_not_connect() -> None:
    world = ChannelWorld()
    world.channel.close()
    world.channel.request_connection()
    assert world.resolver.started == 0
    world.expect_state(State.SHUTDOWN)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_observer_chooses_unpacking_only_if_messages_may_be_compressed(encoding: str) -> None:
    world = ChannelWorld()
    world.connect()
    call, observer = world.call()
    observer.unpacking = Unpacking.ON_READ
    world.streams[0].head(encoding)
    assert world.streams[0].unpacking is (None if encoding == "identity" else Unpacking.ON_READ)
    call.request_message()
    assert world.streams[0].requests == 1
    assert call.undelivered_end is None
    call.cancel()
    assert call.undelivered_end is None
