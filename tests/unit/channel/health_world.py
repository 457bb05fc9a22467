"""Subchannels whose backends are asked for their health, with the backends in the test's hands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxyless.base import Status, StatusCode, Trace, parse_address
from proxyless.channel import ChannelOptions
from proxyless.channel.credentials import CallCredentials
from proxyless.channel.health_watch import ChannelHealth
from proxyless.channel.pool import SubchannelHandle
from proxyless.transport import ClientTransport
from proxyless.wire import CallListener, StreamEnd
from tests.spec.channel_world import FakeStream
from tests.subchannel_world import (
    ADDRESS,
    DEFAULT_OPTIONS,
    SubchannelWorld,
    Watcher,
    subchannel_world,
)

UNKNOWN, SERVING, NOT_SERVING = 0, 1, 2
BROKEN = Status(StatusCode.INTERNAL, "broken")


class Watched(FakeStream):
    """One call of `Watch`. Driven by the test."""

    def say(self, answer: int) -> None:
        self.listener.on_message(bytes([8, answer]))

    def finish(self, status: Status = BROKEN) -> None:
        self.end(StreamEnd(status))


def channel_health(
    service: str | None = "shop", credentials: CallCredentials | None = None
) -> ChannelHealth:
    """What a channel has whose service config names this."""
    health = ChannelHealth(
        "shop.test:80", ChannelOptions(user_agent="test/1", call_credentials=credentials)
    )
    health.check(service)
    return health


class HealthWorld:
    """Handles of one address, and every stream that was opened on its connection."""

    def __init__(self, subchannels: SubchannelWorld) -> None:
        self.subchannels = subchannels
        self.clock = subchannels.clock
        self.settle = subchannels.settle
        self.checkers = subchannels.pool.health_checkers
        self.streams: list[Watched] = []
        # Whether streams fail while they are opened.
        self.is_usable = True

    def handle(self, health: ChannelHealth | None = None) -> SubchannelHandle:
        health = channel_health() if health is None else health
        return self.subchannels.pool.acquire(parse_address(ADDRESS), DEFAULT_OPTIONS, health)

    def watched(self, health: ChannelHealth | None = None) -> tuple[SubchannelHandle, Watcher]:
        """A handle, and a watcher of its health that was told the first state."""
        handle, watcher = self.handle(health), Watcher()
        handle.watch_health(watcher)
        return handle, watcher

    async def connect(self, handle: SubchannelHandle) -> ClientTransport:
        attempt = await self.subchannels.request(handle)
        transport = attempt.succeed()
        # Any: a stand-in for a method.
        stand_in: Any = self._open
        transport.open_unary = stand_in
        await self.settle()
        return transport

    def _open(self, block: bytes, listener: CallListener, message: bytes) -> Watched:
        stream = Watched(block, listener)
        stream.messages.append(message)
        self.streams.append(stream)
        if not self.is_usable:
            stream.finish()
        return stream

    @property
    def stream(self) -> Watched:
        """The only one that is open."""
        [stream] = [each for each in self.streams if not each.is_ended]
        return stream

    async def say(self, answer: int) -> None:
        self.stream.say(answer)
        await self.settle()

    async def finish(self, status: Status = BROKEN) -> None:
        self.stream.finish(status)
        await self.settle()

    async def advance(self, seconds: float) -> None:
        await self.subchannels.advance(seconds)


@asynccontextmanager
async def health_world(trace: Trace | None = None) -> AsyncIterator[HealthWorld]:
    """A world after which nobody asks, and nothing is left."""
    async with subchannel_world(trace=trace) as subchannels:
        world = HealthWorld(subchannels)
        yield world
        await subchannels.pool.aclose()
        assert len(world.checkers) == 0
        assert all(stream.is_ended for stream in world.streams)
