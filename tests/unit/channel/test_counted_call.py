"""Unit tests of proxyless.channel.counted_call."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, cast

import pytest

from proxyless.base import OK, IpAddress, Status, StatusCode
from proxyless.channel import Call
from proxyless.channel.call_counts import ChannelCounts
from proxyless.channel.counted_call import counted
from proxyless.channel.measured_call import MeasuredCall
from proxyless.metrics.instruments import ATTEMPT_STARTED
from proxyless.wire import StreamEnd
from tests.worlds.channels import PATH, UNPROCESSED, CallObserver, ChannelWorld
from tests.worlds.stats_plugins import RecordingPlugin

if TYPE_CHECKING:
    from proxyless.channel.call_counts import CallSample

ADDRESS = IpAddress("127.0.0.1", 80)
FAILED = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))


class RecordingSink:
    """Sink that records the samples."""

    def __init__(self, next_sample_s: float) -> None:
        self.next_sample_s = next_sample_s
        self.samples: list[tuple[str, object, str]] = []

    def on_call_end(self, counts: ChannelCounts, call: CallSample, status: Status) -> None:
        self.samples.append((call.path, call.address, status.code.name))


class CountedWorld(ChannelWorld):
    """A channel whose calls are counted."""

    def __init__(self, next_sample_s: float = inf, **options: object) -> None:
        super().__init__(**options)
        self.sink = RecordingSink(next_sample_s)
        self.counts = ChannelCounts(self.channel.id, self.sink)
        self.channel.count_calls(self.counts)
        transport = cast("Any", self.subchannel.transport)
        transport.address = ADDRESS

    def begin(self, **options: Any) -> CallObserver:  # noqa: ANN401 - options of a call
        observer = CallObserver()
        self.channel.call_type(self.channel, self.method, observer, **options).start_unary(b"x")
        return observer

    @property
    def totals(self) -> tuple[int, int, int, int]:
        found = self.counts
        return found.started, found.succeeded, found.failed, found.in_flight

    @property
    def totals_at_address(self) -> tuple[int, int, int]:
        found = self.counts.addresses[ADDRESS]
        return found.started, found.succeeded, found.failed


@pytest.fixture
def world() -> CountedWorld:
    return CountedWorld()


def ready(world: CountedWorld) -> CountedWorld:
    world.connect()
    return world


def test_rpc_is_in_flight_until_it_ends(world: CountedWorld) -> None:
    ready(world).begin()
    assert world.totals == (1, 0, 0, 1)
    world.streams[-1].respond()
    assert world.totals == (1, 1, 0, 0)
    assert world.totals_at_address == (1, 1, 0)


def test_failure_is_counted_by_code_and_kept(world: CountedWorld) -> None:
    ready(world).begin()
    world.clock.advance(2.0)
    world.streams[-1].end(FAILED)
    assert world.totals == (1, 0, 1, 0)
    assert world.counts.by_code == {StatusCode.UNAVAILABLE: 1}
    at_s, path, status, address = world.counts.last_failure or (0.0, "", OK, None)
    assert (at_s, path, status, address) == (world.clock.now_s(), PATH, FAILED.status, ADDRESS)


def test_transparent_retry_is_one_rpc_with_two_attempts(world: CountedWorld) -> None:
    ready(world).begin()
    world.streams[-1].end(UNPROCESSED)
    world.streams[-1].respond()
    assert world.totals == (1, 1, 0, 0)
    assert world.totals_at_address == (2, 1, 1)


def test_rpc_that_cannot_be_made_is_counted(world: CountedWorld) -> None:
    observer = CallObserver()
    call = world.channel.call_type(world.channel, world.method, observer)
    call.start_failed(Status(StatusCode.INTERNAL, "cannot be serialized"))
    assert world.totals == (1, 0, 1, 0)
    assert world.counts.addresses == {}


def test_samples_are_failures_and_what_is_due() -> None:
    world = ready(CountedWorld(next_sample_s=5.0))
    for response in (StreamEnd(OK), FAILED):
        world.begin()
        world.streams[-1].end(response)
    world.clock.advance(5.0)
    world.begin()
    world.streams[-1].respond()
    assert world.sink.samples == [(PATH, ADDRESS, "UNAVAILABLE"), (PATH, ADDRESS, "OK")]


def test_measured_call_is_measured_and_counted() -> None:
    plugin = RecordingPlugin()
    world = ready(CountedWorld(metrics=plugin.metrics))
    call_type: Any = world.channel.call_type
    assert issubclass(call_type, MeasuredCall)
    world.begin()
    world.streams[-1].respond()
    assert world.totals == (1, 1, 0, 0)
    assert ATTEMPT_STARTED.name in plugin.order


def test_counting_again_changes_nothing(world: CountedWorld) -> None:
    call_type = world.channel.call_type
    world.channel.count_calls(ChannelCounts(world.channel.id))
    assert world.channel.counts is world.counts
    assert world.channel.call_type is call_type
    assert counted(Call) is counted(Call)


def test_channel_that_is_not_observed_makes_plain_calls() -> None:
    assert ChannelWorld().channel.call_type is Call
