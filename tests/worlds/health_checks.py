"""Health checking under test: subchannels whose backends the test controls."""

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
from tests.worlds.channels import FakeStream
from tests.worlds.subchannels import (
    ADDRESS,
    DEFAULT_OPTIONS,
    SubchannelWorld,
    Watcher,
    subchannel_world,
)

UNKNOWN, SERVING, NOT_SERVING = 0, 1, 2
BROKEN = Status(StatusCode.INTERNAL, "broken")


class HealthStream(FakeStream):
    """Stream of a call of `Watch`, which the test controls."""

    def send_health(self, answer: int) -> None:
        self.listener.on_message(bytes([8, answer]))

    def finish(self, status: Status = BROKEN) -> None:
        self.end(StreamEnd(status))


def channel_health(
    service: str | None = "shop", credentials: CallCredentials | None = None
) -> ChannelHealth:
    """Return the `ChannelHealth` of a channel with this service name."""
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
        self.streams: list[HealthStream] = []
        # Whether streams fail while they are opened.
        self.is_usable = True

    def handle(self, health: ChannelHealth | None = None) -> SubchannelHandle:
        health = channel_health() if health is None else health
        return self.subchannels.pool.acquire(parse_address(ADDRESS), DEFAULT_OPTIONS, health)

    def watched(self, health: ChannelHealth | None = None) -> tuple[SubchannelHandle, Watcher]:
        """Return a handle, and a watcher of its health that got the first state."""
        handle, watcher = self.handle(health), Watcher()
        handle.watch_health(watcher)
        return handle, watcher

    async def connect(self, handle: SubchannelHandle) -> ClientTransport:
        await self.subchannels.request(handle)
        transport = self.accept()
        await self.settle()
        return transport

    def accept(self) -> ClientTransport:
        """Let the last attempt to connect succeed."""
        transport = self.subchannels.attempts[-1].succeed()
        # Any, because it replaces a method.
        stand_in: Any = self._open
        transport.open_unary = stand_in
        return transport

    def _open(self, block: bytes, listener: CallListener, message: bytes) -> HealthStream:
        stream = HealthStream(block, listener)
        stream.messages.append(message)
        self.streams.append(stream)
        if not self.is_usable:
            stream.finish()
        return stream

    @property
    def stream(self) -> HealthStream:
        """The only open stream."""
        [stream] = [each for each in self.streams if not each.is_ended]
        return stream

    async def respond(self, answer: int) -> None:
        self.stream.send_health(answer)
        await self.settle()

    async def finish(self, status: Status = BROKEN) -> None:
        self.stream.finish(status)
        await self.settle()

    async def advance(self, seconds: float) -> None:
        await self.subchannels.advance(seconds)


@asynccontextmanager
async def health_world(trace: Trace | None = None) -> AsyncIterator[HealthWorld]:
    """A world that asserts at its end that nothing is left open."""
    async with subchannel_world(trace=trace) as subchannels:
        world = HealthWorld(subchannels)
        yield world
        await subchannels.pool.aclose()
        assert len(world.checkers) == 0
        assert all(stream.is_ended for stream in world.streams)
