"""Unit tests of the retried stream."""

from __future__ import annotations

from proxyless.base import BackoffPolicy, Status
from proxyless.runtime import VirtualClock, seeded_random
from proxyless.xds.client.retried_stream import RetriedStream, Tools
from tests.worlds.xds_clients import GONE, FakeXdsTransports, server_config


class Owner:
    def __init__(self) -> None:
        self.events: list[object] = []

    def on_stream_opened(self) -> None:
        self.events.append("opened")

    def on_stream_ready(self) -> None:
        self.events.append("ready")

    def on_stream_writable(self) -> None:
        self.events.append("writable")

    def on_stream_message(self, message: bytes) -> None:
        self.events.append(message)

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        self.events.append(("ended", has_answered))


class RetriedStreamWorld:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        transports = FakeXdsTransports(self.clock)
        self.server = transports.server("a")
        tools = Tools(self.clock, seeded_random(1), backoff=BackoffPolicy(jitter=0.0))
        self.owner = Owner()
        self.stream = RetriedStream("/p", transports.create(server_config("a")), tools, self.owner)
        self.stream.start()
        self.clock.advance(0)


def test_stream_is_started_again_after_its_end() -> None:
    world = RetriedStreamWorld()
    world.server.streams[-1].end(GONE)
    assert world.owner.events == ["opened", "ready", ("ended", False)]
    assert not world.server.streams[-1].is_open
    world.clock.advance(0.9)
    assert not world.server.streams[-1].is_open
    world.clock.advance(0.1)
    assert world.owner.events[3:] == ["opened", "ready"]
    world.stream.close()
    assert world.clock.timers_pending == 0


def test_delay_counts_from_the_start_of_the_stream() -> None:
    world = RetriedStreamWorld()
    world.clock.advance(0.75)
    world.server.streams[-1].end(GONE)
    world.clock.advance(0.25)
    assert world.server.streams[-1].is_open
    world.clock.advance(100)
    world.server.streams[-1].end(GONE)
    world.clock.advance(0)
    assert world.server.streams[-1].is_open
    world.stream.close()


def test_backoff_is_reset_by_an_answer() -> None:
    world = RetriedStreamWorld()
    for _ in range(5):
        world.server.streams[-1].end(GONE)
        while not world.server.streams[-1].is_open:
            world.clock.advance_to_next()
    world.stream.note_answer()
    world.server.streams[-1].end(GONE)
    world.clock.advance(1)
    assert world.server.streams[-1].is_open
    world.server.streams[-1].end(GONE)
    world.clock.advance(1)
    assert world.server.streams[-1].is_open
    world.stream.close()


def test_reader_belongs_to_the_stream_it_was_made_for() -> None:
    world = RetriedStreamWorld()
    read = world.stream.reader()
    first = world.server.streams[-1]
    first.end(GONE)
    world.clock.advance(1)
    second = world.server.streams[-1]
    assert second is not first
    read()
    assert second.reads == 0
    world.stream.read_next()
    assert second.reads == 1
    world.stream.close()
    world.stream.read_next()


def test_stream_is_not_started_again_after_close() -> None:
    world = RetriedStreamWorld()
    world.server.streams[-1].end(GONE)
    world.stream.close()
    world.stream.close()
    world.clock.advance(1000)
    assert len(world.server.streams) == 1
    world.stream.send(b"no-op")
