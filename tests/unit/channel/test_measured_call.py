"""Unit tests of proxyless.channel.measured_call."""

from typing import Any

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.channel import Call
from proxyless.channel.measured_call import MeasuredCall
from proxyless.lb import QUEUE, QUEUE_PICKER, Drop, Fail
from proxyless.lb.api import PickInfo, PickResult
from proxyless.lb.attributes import PICK_LABELS
from proxyless.lb.pickers import FailPicker
from proxyless.metrics import custom_label
from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    BACKEND_SERVICE,
    CALL_DURATION,
    CALL_HEDGES,
    CALL_RETRIES,
    CALL_RETRY_DELAY,
    CALL_TRANSPARENT_RETRIES,
    LOCALITY,
)
from proxyless.wire import StreamEnd
from proxyless.wire.frames import WINDOW_DEFAULT, encode_settings, encode_window_update
from proxyless.wire.messages import PREFIX_BYTES, Unpacking
from proxyless.wire.responses import CallListener
from tests.worlds.channels import (
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeStream,
    FakeTransport,
    RecordingPicker,
)
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.subchannels import CONNECTING, FAILURE
from tests.worlds.wire import ClientSide

NAME = "pkg.Service/Method"
REFUSED = Status(StatusCode.UNAVAILABLE, "not reachable")


class MeasuredWorld(ChannelWorld):
    """A channel with a plugin, and its measurements."""

    def __init__(self, **options: object) -> None:
        self.plugin = RecordingPlugin()
        super().__init__(metrics=self.plugin.metrics, **options)

    @property
    def started(self) -> int:
        return self.plugin.count_of(ATTEMPT_STARTED)

    @property
    def attempts(self) -> list[tuple[str, float]]:
        """Status and duration of each attempt that ended."""
        return [(labels[2], value) for labels, value in self.plugin.values(ATTEMPT_DURATION)]

    @property
    def calls(self) -> list[tuple[str, float]]:
        return [(labels[2], value) for labels, value in self.plugin.values(CALL_DURATION)]

    @property
    def retries(self) -> list[list[float]]:
        """Retries, transparent retries and hedges of each RPC that ended and had any."""
        return [
            [value for _, value in self.plugin.values(each)]
            for each in (CALL_RETRIES, CALL_TRANSPARENT_RETRIES, CALL_HEDGES)
        ]

    @property
    def retry_delays(self) -> list[float]:
        return [value for _, value in self.plugin.values(CALL_RETRY_DELAY)]

    @property
    def sizes(self) -> list[tuple[float, float]]:
        """Bytes that each attempt sent and received."""
        sent, received = self.plugin.values(ATTEMPT_SENT), self.plugin.values(ATTEMPT_RECEIVED)
        return [(out[1], back[1]) for out, back in zip(sent, received, strict=True)]


@pytest.fixture
def world() -> MeasuredWorld:
    return MeasuredWorld()


def policy(**settings: object) -> dict[str, object]:
    """A service config with a policy for all methods."""
    return {"loadBalancingConfig": [{"stub": {}}], "methodConfig": [{"name": [{}], **settings}]}


RETRY = policy(
    retryPolicy={
        "maxAttempts": 3,
        "initialBackoff": "1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
)
HEDGE = policy(
    hedgingPolicy={"maxAttempts": 3, "hedgingDelay": "1s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
)


def test_a_channel_without_plugins_makes_plain_calls() -> None:
    world = ChannelWorld()
    assert world.channel.call_type is Call
    assert world.method.recorder is None


def test_a_channel_with_plugins_makes_measured_calls(world: MeasuredWorld) -> None:
    assert world.channel.call_type is MeasuredCall
    world.connect()
    assert world.policy.helper.context.metrics.plugins == (world.plugin,)


def test_an_rpc_is_one_attempt_from_its_pick_to_its_end(world: MeasuredWorld) -> None:
    world.connect()
    _, observer = world.call(b"request")
    assert (world.started, world.attempts, world.calls) == (1, [], [])
    world.clock.advance(2.0)
    world.streams[0].respond(b"reply!")
    assert observer.status is OK
    assert world.attempts == [("OK", 2.0)]
    assert world.sizes == [(7, 6)]
    assert world.calls == [("OK", 2.0)]
    labels = (NAME, TARGET, "OK", "", "", "")
    assert world.plugin.values(ATTEMPT_DURATION)[0][0] == labels


def test_an_attempt_ends_before_its_call(world: MeasuredWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].respond()
    assert world.plugin.order[-1] == CALL_DURATION.name


def test_attempt_includes_the_wait_for_its_pick_and_not_the_resolution(
    world: MeasuredWorld,
) -> None:
    world.call()
    world.clock.advance(1.0)
    assert world.started == 0
    world.resolve()
    world.report(CONNECTING, QUEUE_PICKER)
    assert world.started == 1
    world.clock.advance(2.0)
    world.ready()
    assert world.started == 1
    world.clock.advance(4.0)
    world.streams[0].respond()
    assert world.attempts == [("OK", 6.0)]
    assert world.calls == [("OK", 7.0)]


def test_an_rpc_that_is_never_picked_for_has_no_attempt(world: MeasuredWorld) -> None:
    call, _ = world.call()
    call.cancel()
    assert (world.started, world.attempts) == (0, [])
    assert world.calls == [("CANCELLED", 0.0)]


@pytest.mark.parametrize("result", [Fail(REFUSED), Drop(REFUSED)])
def test_a_pick_that_fails_is_the_end_of_its_attempt(
    world: MeasuredWorld, result: PickResult
) -> None:
    world.connect().result = result
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert (world.started, world.attempts) == (1, [("UNAVAILABLE", 0.0)])
    assert world.sizes == [(0, 0)]


def test_a_deadline_ends_an_attempt_that_waits_for_its_pick(world: MeasuredWorld) -> None:
    world.connect()
    world.report(CONNECTING, QUEUE_PICKER)
    world.call(timeout_s=3.0)
    world.clock.advance(3.0)
    assert world.attempts == [("DEADLINE_EXCEEDED", 3.0)]
    assert world.calls == [("DEADLINE_EXCEEDED", 3.0)]


def test_a_deadline_ends_an_attempt_that_is_under_way(world: MeasuredWorld) -> None:
    world.connect()
    _, observer = world.call(b"12345", timeout_s=3.0)
    # Reported before the observer is called.
    world.clock.advance(3.0)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED
    assert world.attempts == [("DEADLINE_EXCEEDED", 3.0)]
    assert world.sizes == [(5, 0)]


def test_cancelled_attempt_is_reported_before_the_observer_is_called(
    world: MeasuredWorld,
) -> None:
    world.connect()
    call, observer = world.call()
    seen: list[list[tuple[str, float]]] = []
    on_end = observer.on_end

    def look(end: StreamEnd) -> None:
        seen.append(world.attempts)
        on_end(end)

    observer.on_end = look  # type: ignore[method-assign]
    call.cancel()
    assert seen == [[("CANCELLED", 0.0)]]
    assert len(world.attempts) == 1


def test_every_message_of_a_stream_counts(world: MeasuredWorld) -> None:
    world.connect()
    call, _ = world.call(None)
    for message in (b"1", b"22", b"333"):
        call.send_message(message)
    call.close_sending()
    (stream,) = world.streams
    stream.head()
    for message in (b"4444", b"55555"):
        stream.listener.on_message(message)
    stream.end(StreamEnd(OK))
    assert stream.messages == [b"1", b"22", b"333"]
    assert stream.is_half_closed
    assert world.sizes == [(6, 9)]


def test_a_compressed_response_counts_as_it_was_on_the_wire(world: MeasuredWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].unpacked_bytes = 90
    world.streams[0].respond(b"x" * 100)
    assert world.sizes == [(7, 10)]


def test_stream_that_was_never_opened_has_sent_nothing(world: MeasuredWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].id = 0
    world.streams[0].end(UNAVAILABLE)
    assert world.sizes == [(0, 0)]


class OpenedWorld(MeasuredWorld):
    """A channel whose subchannel has a real connection."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ClientSide()
        transport: Any = self.client.core
        self.subchannel.transport = transport
        self.connect()


@pytest.mark.parametrize("is_unary", [True, False])
def test_bytes_that_wait_for_the_window_do_not_count_as_sent(is_unary: bool) -> None:
    """The stream drops the rest before the attempt is ended."""
    world = OpenedWorld()
    if is_unary:
        call, _ = world.call(bytes(100_000))
    else:
        call, _ = world.call(None)
        call.send_message(b"first")
        call.send_message(bytes(100_000))
        call.close_sending()
    call.cancel(REFUSED)
    prefixes = 1 if is_unary else 2
    assert world.sizes == [(WINDOW_DEFAULT - prefixes * PREFIX_BYTES, 0)]


def test_bytes_count_as_sent_after_they_waited_for_the_window() -> None:
    world = OpenedWorld()
    call, _ = world.call(bytes(100_000))
    world.client.core.receive(encode_settings(()))
    for stream_id in (0, 1):
        world.client.core.receive(encode_window_update(stream_id, 100_000))
    call.cancel(REFUSED)
    assert world.sizes == [(100_000, 0)]


class RefusingTransport(FakeTransport):
    """Transport whose unary streams end while they are opened."""

    def open_unary(self, block: bytes, listener: CallListener, message: bytes) -> FakeStream:
        stream = super().open_unary(block, listener, message)
        stream.end(UNAVAILABLE)
        return stream


def test_unary_stream_that_ends_while_it_is_opened_has_sent_nothing(world: MeasuredWorld) -> None:
    world.subchannel.transport = RefusingTransport()
    world.connect()
    world.call(b"request")
    assert (world.attempts, world.sizes) == ([("UNAVAILABLE", 0.0)], [(0, 0)])


def test_a_transparent_retry_is_another_attempt(world: MeasuredWorld) -> None:
    world.connect()
    _, observer = world.call()
    world.clock.advance(1.0)
    world.streams[0].end(UNPROCESSED)
    assert world.started == 2
    world.streams[1].respond()
    assert observer.status is OK
    assert world.attempts == [("UNAVAILABLE", 1.0), ("OK", 0.0)]
    assert world.calls == [("OK", 1.0)]


def test_each_retry_is_an_attempt_without_the_backoff_before_it() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    _, observer = world.call()
    world.clock.advance(1.0)
    world.streams[0].end(UNAVAILABLE)
    assert world.started == 1
    world.clock.advance(2.0)
    assert world.started == 2
    world.streams[1].respond()
    assert observer.status is OK
    assert [status for status, _ in world.attempts] == ["UNAVAILABLE", "OK"]
    assert world.attempts[0][1] == 1.0
    # The whole time, with the jittered backoff.
    assert world.calls == [("OK", 3.0)]


def test_other_hedges_end_as_cancelled() -> None:
    world = MeasuredWorld(service_config=HEDGE)
    world.connect()
    _, observer = world.call()
    world.clock.advance(1.0)
    assert world.started == 2
    world.streams[0].respond()
    assert observer.status is OK
    assert sorted(world.attempts) == [("CANCELLED", 0.0), ("OK", 1.0)]
    world.clock.advance(10.0)
    assert world.started == 2


def test_hedge_that_waits_for_its_pick_ends_when_another_one_succeeds() -> None:
    world = MeasuredWorld(service_config=HEDGE)
    world.connect()
    world.call()
    world.report(CONNECTING, QUEUE_PICKER)
    world.clock.advance(1.0)
    assert world.started == 2
    world.streams[0].respond()
    assert sorted(world.attempts) == [("CANCELLED", 0.0), ("OK", 1.0)]


def test_hedge_that_waits_for_its_pick_ends_when_the_call_is_committed() -> None:
    world = MeasuredWorld(service_config=HEDGE)
    world.connect()
    world.call()
    world.report(CONNECTING, QUEUE_PICKER)
    world.clock.advance(1.0)
    world.streams[0].head()
    assert world.attempts == [("CANCELLED", 0.0)]


def test_hedge_that_waits_for_its_pick_ends_when_another_one_fails_fatally() -> None:
    world = MeasuredWorld(service_config=HEDGE)
    world.connect()
    _, observer = world.call()
    world.report(CONNECTING, QUEUE_PICKER)
    world.clock.advance(1.0)
    world.streams[0].end(StreamEnd(Status(StatusCode.INTERNAL, "broken")))
    assert observer.status.code is StatusCode.INTERNAL
    assert world.attempts == [("INTERNAL", 1.0), ("CANCELLED", 0.0)]


def test_a_failed_pick_of_a_retried_rpc_is_an_attempt_of_its_own() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    world.report(FAILURE, FailPicker(REFUSED))
    _, observer = world.call()
    world.clock.advance(10.0)
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert (world.started, len(world.attempts)) == (3, 3)
    assert len(world.calls) == 1


def test_no_retries_are_recorded_when_there_were_none() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    world.call()
    world.streams[0].respond()
    assert world.retries == [[], [], []]
    assert world.retry_delays == []


@pytest.mark.spec("A96-01", "A96-04")
def test_retries_and_their_delay_are_recorded_when_the_rpc_ends() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    world.call()
    delays_s: list[float] = []
    for index in range(2):
        world.streams[index].end(UNAVAILABLE)
        ended_s = world.clock.now_s()
        while len(world.streams) == index + 1:
            world.clock.advance(0.01)
        delays_s.append(world.clock.now_s() - ended_s)
        assert world.retries == [[], [], []]
    world.clock.advance(5.0)
    world.streams[2].respond()
    assert world.retries == [[2], [], []]
    assert world.retry_delays == [pytest.approx(sum(delays_s), abs=0.02)]


@pytest.mark.spec("A96-02")
def test_a_transparent_retry_is_recorded_without_a_delay(world: MeasuredWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    assert world.retries == [[], [1], []]
    assert world.retry_delays == []


@pytest.mark.spec("A96-03")
def test_hedges_are_recorded_without_the_first_attempt() -> None:
    world = MeasuredWorld(service_config=HEDGE)
    world.connect()
    world.call()
    world.clock.advance(2.0)
    assert world.started == 3
    world.streams[1].respond()
    assert world.retries == [[], [], [2]]
    # One attempt was always active.
    assert world.retry_delays == []


@pytest.mark.spec("A96-01")
def test_retries_are_recorded_once_when_the_rpc_is_cancelled() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    call, _ = world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    call.cancel()
    call.cancel()
    assert world.retries == [[1], [], []]


def test_failed_picks_are_retries_when_they_are_retried() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    world.report(FAILURE, FailPicker(REFUSED))
    world.call()
    world.clock.advance(10.0)
    assert world.retries == [[2], [], []]


@pytest.mark.spec("A108-01")
def test_an_rpc_has_the_custom_label_of_its_start(world: MeasuredWorld) -> None:
    world.connect()
    with custom_label("checkout"):
        world.call()
    world.call()
    for stream in world.streams:
        stream.respond()
    for instrument in (ATTEMPT_DURATION, CALL_DURATION):
        labels = [labels[-1] for labels, _ in world.plugin.values(instrument)]
        assert labels == ["checkout", ""]


class LabellingPicker(RecordingPicker):
    """Adds another locality label at each pick."""

    __slots__ = ("places",)

    def __init__(self, result: PickResult, *places: str) -> None:
        super().__init__(result)
        self.places = list(places)

    def pick(self, info: PickInfo) -> PickResult:
        labels = info.attributes.get(PICK_LABELS)
        assert labels is not None, "a measured RPC has a dictionary for labels"
        labels[BACKEND_SERVICE] = "cluster"
        if self.places:
            labels[LOCALITY] = self.places.pop(0)
        return super().pick(info)


def test_an_attempt_has_the_labels_of_its_own_pick() -> None:
    world = MeasuredWorld(service_config=RETRY)
    world.connect()
    world.report(CONNECTING, LabellingPicker(world.complete, "here"))
    world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    world.streams[1].respond()
    labels = [labels[2:] for labels, _ in world.plugin.values(ATTEMPT_DURATION)]
    # The second pick has no locality label.
    assert labels == [("UNAVAILABLE", "here", "cluster", ""), ("OK", "", "cluster", "")]


def test_an_attempt_that_fails_without_a_stream_has_the_labels_of_its_last_pick(
    world: MeasuredWorld,
) -> None:
    world.connect()
    world.report(FAILURE, LabellingPicker(Fail(REFUSED), "here"))
    world.call()
    ((labels, _),) = world.plugin.values(ATTEMPT_SENT)
    assert labels == (NAME, TARGET, "UNAVAILABLE", "here", "cluster", "")


def test_rpcs_do_not_share_pick_labels(world: MeasuredWorld) -> None:
    world.connect()
    # The second pick has no locality label, and the RPCs are under way at the same time.
    world.report(CONNECTING, LabellingPicker(world.complete, "here"))
    world.call()
    world.call()
    for stream in world.streams:
        stream.respond()
    labels = [labels[3] for labels, _ in world.plugin.values(ATTEMPT_DURATION)]
    assert labels == ["here", ""]
    assert world.method.plain_info.attributes.get(PICK_LABELS) is None


def test_queued_rpc_keeps_the_labels_of_its_own_pick(world: MeasuredWorld) -> None:
    world.connect()
    world.report(CONNECTING, LabellingPicker(QUEUE, "here", "there"))
    first, _ = world.call()
    second, _ = world.call()
    first.cancel()
    second.cancel()
    labels = [labels[3] for labels, _ in world.plugin.values(ATTEMPT_DURATION)]
    assert labels == ["here", "there"]


def test_methods_of_the_stream_are_forwarded_to_the_wire(world: MeasuredWorld) -> None:
    world.connect()
    call, _ = world.call(None)
    (stream,) = world.streams
    held: list[bool] = []
    for act in (call.hold, call.release):
        act()
        held.append(stream.is_held)
    assert held == [True, False]
    stream.head("gzip")
    assert stream.unpacking is Unpacking.AT_ONCE
    call.request_message()
    assert (stream.requests, call.undelivered_end) == (1, None)
    stream.undelivered_end = UNAVAILABLE
    assert call.undelivered_end is UNAVAILABLE
    writable: list[bool] = []
    for stream.is_writable in (True, False):
        writable.append(call.is_writable)
    assert writable == [True, False]
    call.close_sending()
    assert stream.is_half_closed
    call.cancel()
    assert stream.cancelled_with is not None
