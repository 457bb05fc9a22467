"""Unit tests of proxyless.observe.flight.recorder."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, cast

from proxyless.base import OK, IpAddress, Status, StatusCode, Trace
from proxyless.channel.loop_stack import LoopChannels
from proxyless.observe.flight import FlightRecorder, read_lines
from proxyless.observe.flight import recorder as module
from proxyless.runtime import VirtualClock

if TYPE_CHECKING:
    import pytest

    from proxyless.channel import LoopStack
    from proxyless.channel.call_counts import ChannelCounts

DOWN = Status(StatusCode.UNAVAILABLE, "down")


class FakeStack:
    """Clock, trace and channels of a loop."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.trace = Trace()
        self.channels = LoopChannels()


class FakeChannel:
    """A channel, as far as a recorder uses it."""

    def __init__(self, stack: FakeStack, number: int) -> None:
        self.stack, self.id, self.target = stack, number, f"dns:///{number}"
        self.counts: list[ChannelCounts] = []

    def count_calls(self, counts: ChannelCounts) -> None:
        self.counts.append(counts)


class Sample:
    """An RPC that ended."""

    path = "/shop.Orders/Get"
    address = IpAddress("10.0.0.1", 80)
    pick_attributes = None
    started_s = 0.0


class RecorderWorld:
    """A recorder with one loop."""

    def __init__(self) -> None:
        self.recorder = FlightRecorder(is_epoch_of_clock=True)
        self.stack = FakeStack()
        self.recorder.attach(cast("LoopStack", self.stack), lambda: None)

    def observe(self) -> None:
        self.recorder.observe_channels(cast("LoopStack", self.stack))

    def channel(self, number: int = 1) -> FakeChannel:
        made = FakeChannel(self.stack, number)
        self.stack.channels.add(made)
        return made

    def end(self, channel: FakeChannel, status: Status = OK) -> None:
        counts = channel.counts[0]
        counts.sink.on_call_end(counts, Sample(), status)

    def names(self) -> list[str]:
        return [each.event for each in self.recorder.entries()]


def test_events_have_the_time_of_their_loop_and_increasing_numbers() -> None:
    world = RecorderWorld()
    world.stack.trace.emit("a.one", value=1)
    world.stack.clock.advance(2.5)
    world.stack.trace.emit("a.two")
    first, second = world.recorder.entries()
    assert (first.number, first.fields, first.loop) == (1, {"value": 1}, 1)
    assert second.time - first.time == 2.5
    assert world.recorder.last_number == 2


def test_older_events_are_displaced_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 3)
    world = RecorderWorld()
    for number in range(10):
        world.stack.trace.emit("a.event", number=number)
    recording = read_lines(world.recorder.dump_lines())
    assert [each.fields["number"] for each in recording.entries] == [7, 8, 9]
    assert recording.left_out == 7


def test_rpcs_do_not_displace_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RPCS_MAX", 2)
    world = RecorderWorld()
    world.observe()
    channel = world.channel()
    world.stack.trace.emit("channel.state")
    for _ in range(5):
        world.end(channel, DOWN)
    assert world.names() == ["channel.state", "rpc", "rpc"]


def test_successes_are_sampled_and_failures_are_limited_per_second() -> None:
    world = RecorderWorld()
    world.observe()
    channel = world.channel()
    for _ in range(1000):
        world.end(channel, DOWN)
    # One of them is the sample.
    assert len(world.names()) == module.FAILURES_PER_S_MAX + 1
    sink = channel.counts[0].sink
    assert sink.next_sample_s == world.stack.clock.now_s() + module.SAMPLE_INTERVAL_S


def test_channels_are_counted_once_whether_old_or_new() -> None:
    world = RecorderWorld()
    old = world.channel(1)
    world.observe()
    world.observe()
    new = world.channel(2)
    assert (len(old.counts), len(new.counts)) == (1, 1)
    assert world.recorder.created(1) is None
    assert world.recorder.created(2) == world.stack.clock.now_s()
    header = read_lines(world.recorder.dump_lines()).header
    assert [each["target"] for each in header["channels"]] == ["dns:///1", "dns:///2"]


def test_storm_is_reported_once() -> None:
    world = RecorderWorld()
    world.observe()
    storms: list[int] = []
    world.recorder.on_storm = lambda: storms.append(1)
    channel = world.channel()
    for _ in range(200):
        world.end(channel, DOWN)
    assert storms == [1]


def test_failures_of_several_channels_are_no_storm_unless_one_has_enough() -> None:
    world = RecorderWorld()
    world.observe()
    storms: list[int] = []
    world.recorder.on_storm = lambda: storms.append(1)
    first, second = world.channel(1), world.channel(2)
    # Of the first, most RPCs succeed; the second has few.
    for _ in range(49):
        first.counts[0].succeeded += 10
        world.end(first, DOWN)
        world.end(second, DOWN)
    first.counts[0].succeeded += 10
    world.end(first, DOWN)
    assert storms == []


def test_events_after_a_number_are_the_newest_with_the_rest_counted() -> None:
    world = RecorderWorld()
    for number in range(10):
        world.stack.trace.emit("a.event", number=number)
    found, left_out = world.recorder.events_after(4, 3)
    assert ([each["number"] for each in found], left_out) == ([8, 9, 10], 3)
    assert world.recorder.events_after(10, 3) == ([], 0)


def test_chunks_are_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 200)
    world = RecorderWorld()
    for _ in range(20):
        world.stack.trace.emit("a.event", text="x" * 50)
    chunks = list(world.recorder.dump_chunks())
    assert len(chunks) > 5
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    assert len(read_lines(b"".join(chunks).decode().splitlines()).entries) == 20


def test_closed_recorder_records_and_observes_nothing() -> None:
    world = RecorderWorld()
    world.observe()
    world.recorder.close()
    world.recorder.close()
    world.stack.trace.emit("a.event")
    assert not world.stack.trace.active
    assert world.channel().counts == []
    assert world.names() == []


def test_ended_loop_is_not_kept_alive() -> None:
    world = RecorderWorld()
    loops: Any = world.recorder._loops
    assert len(loops) == 1
    del world.stack
    gc.collect()
    assert len(loops) == 0
