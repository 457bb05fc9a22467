"""Unit tests of proxyless.channel.call_delays, and of the delays of measured calls."""

from typing import Any

import pytest

from proxyless.base import Metadata, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.call_delays import describe_queued_pick, describe_unsent
from proxyless.channel.credentials import OnMetadata
from proxyless.channel.service_config import MethodConfig
from proxyless.lb import QUEUE, QUEUE_PICKER, Fail
from proxyless.lb.attributes import DELAY_KIND, DELAY_PRIORITY
from proxyless.lb.pickers import FailPicker, NotePicker
from proxyless.metrics.instruments import ATTEMPT_DELAY, CALL_DELAY
from proxyless.wire import StreamEnd
from proxyless.wire.frames import (
    MAX_CONCURRENT_STREAMS,
    encode_settings,
    encode_window_update,
)
from tests.worlds.channels import CallObserver, ChannelWorld, FakeSelector
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.subchannels import CONNECTING, FAILURE
from tests.worlds.wire import ClientSide

METHOD = "pkg.Service/Method"
REFUSED = Status(StatusCode.UNAVAILABLE, "refused")


class DelayedWorld(ChannelWorld):
    """A channel with a plugin, and the delays that it measured."""

    def __init__(self) -> None:
        self.plugin = RecordingPlugin()
        super().__init__(metrics=self.plugin.metrics)

    @property
    def call_delays(self) -> list[tuple[str, float]]:
        return [(labels[1], value) for labels, value in self.plugin.values(CALL_DELAY)]

    @property
    def attempt_delays(self) -> list[tuple[str, float]]:
        return [(labels[1], value) for labels, value in self.plugin.values(ATTEMPT_DELAY)]


class SlowCredentials:
    """Call credentials that the test answers."""

    def __init__(self) -> None:
        self.answer: OnMetadata

    def request(self, _service_url: str, _path: str, on_metadata: OnMetadata) -> None:
        self.answer = on_metadata


class Faults:
    """An interception that delays RPCs."""

    mirrors = ()
    abort = None

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def on_delay_start(self) -> None: ...

    def on_delay_end(self) -> None: ...

    def on_head(self, metadata: Metadata) -> Metadata:
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        assert had_head
        return end


@pytest.fixture
def world() -> DelayedWorld:
    return DelayedWorld()


@pytest.mark.spec("A121-01", "A121-02", "A121-05")
def test_waits_for_resolution_and_pick_are_recorded_apart(world: DelayedWorld) -> None:
    world.call()
    world.clock.advance(1.0)
    world.resolve()
    world.report(CONNECTING, QUEUE_PICKER)
    world.clock.advance(2.0)
    world.ready()
    world.streams[0].respond()
    assert world.plugin.values(CALL_DELAY) == [((TARGET, "resolving", METHOD, ""), 1.0)]
    assert world.plugin.values(ATTEMPT_DELAY) == [((TARGET, "connecting", METHOD, ""), 2.0)]


def test_a_call_that_does_not_wait_has_no_delay(world: DelayedWorld) -> None:
    world.connect()
    world.call()
    world.streams[0].respond()
    assert (world.call_delays, world.attempt_delays) == ([], [])


def test_a_call_that_fails_for_lack_of_a_config_has_no_delay(world: DelayedWorld) -> None:
    world.channel.request_connection()
    world.resolve(endpoints=REFUSED)
    _, observer = world.call()
    assert not observer.is_running
    assert world.call_delays == []


@pytest.mark.spec("A121-07")
def test_a_delay_that_a_deadline_ends_is_recorded(world: DelayedWorld) -> None:
    world.call(timeout_s=3.0)
    world.clock.advance(3.0)
    assert world.call_delays == [("resolving", 3.0)]
    world.connect()
    world.report(CONNECTING, QUEUE_PICKER)
    call, _ = world.call()
    world.clock.advance(4.0)
    call.cancel()
    assert world.attempt_delays == [("connecting", 4.0)]


@pytest.mark.spec("A121-04")
def test_another_kind_of_delay_ends_the_one_before(world: DelayedWorld) -> None:
    world.channel.request_connection()
    world.resolve()
    world.report(CONNECTING, QUEUE_PICKER)
    world.call(wait_for_ready=True)
    world.clock.advance(1.0)
    world.report(FAILURE, FailPicker(REFUSED))
    world.clock.advance(2.0)
    world.report(FAILURE, FailPicker(Status(StatusCode.UNAVAILABLE, "reset")))
    world.clock.advance(4.0)
    world.ready()
    assert world.attempt_delays == [
        ("connecting", 1.0),
        ("picker_failing_with_wait_for_ready", 6.0),
    ]


@pytest.mark.spec("A121-02")
def test_a_pick_of_a_lost_connection_is_a_delay(world: DelayedWorld) -> None:
    world.connect()
    transport, world.subchannel.transport = world.subchannel.transport, None
    world.call()
    world.clock.advance(1.0)
    world.subchannel.transport = transport
    world.ready()
    assert world.attempt_delays == [("subchannel_state_mismatch", 1.0)]


@pytest.mark.spec("A121-02", "A121-03")
def test_notes_of_policies_are_part_of_the_kind(world: DelayedWorld) -> None:
    world.channel.request_connection()
    world.resolve()
    world.report(CONNECTING, NotePicker(QUEUE_PICKER, DELAY_KIND, "cds_dynamic_discovery"))
    world.call()
    world.clock.advance(1.0)
    for priority in ("0", "1"):
        world.report(CONNECTING, NotePicker(QUEUE_PICKER, DELAY_PRIORITY, priority))
        world.clock.advance(2.0)
    # The note of an earlier pick does not count.
    world.report(CONNECTING, QUEUE_PICKER)
    world.clock.advance(4.0)
    world.ready()
    assert world.attempt_delays == [
        ("cds_dynamic_discovery", 1.0),
        ("p0:connecting", 2.0),
        ("p1:connecting", 2.0),
        ("connecting", 4.0),
    ]


def test_waits_for_credentials_and_filters_are_delays_of_the_call(world: DelayedWorld) -> None:
    world.connect(FakeSelector(CallConfig(MethodConfig(), interception=Faults(delay_s=2.0))))
    call = world.channel.call_type(world.channel, world.method, CallObserver())
    credentials = SlowCredentials()
    call.credentials = credentials
    call.start_unary(b"request")
    world.clock.advance(1.0)
    credentials.answer(())
    world.clock.advance(2.0)
    world.streams[0].respond()
    assert world.call_delays == [("credentials", 1.0), ("http_filters", 2.0)]


def test_reasons_have_what_is_known(world: DelayedWorld) -> None:
    assert describe_queued_pick(world.complete, {}) == (
        "subchannel_state_mismatch",
        "connection to 127.0.0.1:80 was lost before its use",
    )
    assert describe_queued_pick(Fail(REFUSED), {})[1] == "refused"
    assert describe_queued_pick(QUEUE, {})[1] == "no endpoint is connected yet"


# Messages that wait


class OpenedWorld(DelayedWorld):
    """A channel whose subchannel has a real connection."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ClientSide()
        transport: Any = self.client.core
        self.subchannel.transport = transport
        self.connect()

    def open(self, message: bytes) -> Any:  # noqa: ANN401 - a stream
        self.call(message)
        core = self.client.core
        return next(iter(core.streams.values() or core.waiting))


def test_a_message_over_the_window_is_delayed_until_it_is_sent() -> None:
    world = OpenedWorld()
    stream = world.open(bytes(100_000))
    assert describe_unsent(stream) == ("flow_control", "34470 bytes wait for the peer's window")
    world.clock.advance(2.0)
    world.client.core.receive(encode_settings(()))
    for stream_id in (0, stream.id):
        world.client.core.receive(encode_window_update(stream_id, 100_000))
    world.clock.advance(1.0)
    assert world.attempt_delays == [("flow_control", 2.0)]


def test_a_stream_over_the_peers_limit_is_delayed_until_it_is_opened() -> None:
    world = OpenedWorld()
    world.client.core.receive(encode_settings(((MAX_CONCURRENT_STREAMS, 0),)))
    stream = world.open(b"request")
    assert not stream.id
    world.clock.advance(2.0)
    world.client.core.receive(encode_settings(((MAX_CONCURRENT_STREAMS, 1),)))
    world.clock.advance(1.0)
    assert world.attempt_delays == [("max_concurrent_streams", 2.0)]


def test_a_message_that_is_sent_at_once_is_not_delayed() -> None:
    world = OpenedWorld()
    call, _ = world.call(b"request")
    call.cancel(REFUSED)
    assert world.attempt_delays == []
