"""Unit tests of proxyless.channel.health_checker; see also spec/test_a17.py."""

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode, Trace, hits
from proxyless.channel.credentials import CallCredentials, OnMetadata
from proxyless.channel.health_watch import ChannelHealth
from proxyless.wire import RequestEncoder, StreamEnd
from tests.spec.channel_world import FakeStream
from tests.subchannel_world import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    SubchannelWorld,
    Watcher,
    lose,
    subchannel_world,
)

if TYPE_CHECKING:
    from proxyless.channel.channel import Channel
    from proxyless.channel.pool import SubchannelHandle
    from proxyless.transport import ClientTransport
    from proxyless.wire import CallListener

WATCH = "/grpc.health.v1.Health/Watch"
UNIMPLEMENTED = Status(StatusCode.UNIMPLEMENTED, "no such method")
BROKEN = Status(StatusCode.INTERNAL, "broken")


class Options:
    """As much of a channel's options as a question needs."""

    scheme = "http"
    user_agent = "test/1"


class FakeChannel:
    """As much of a channel as a question needs."""

    options = Options()

    def __init__(self, credentials: CallCredentials | None = None) -> None:
        self.authority = "shop.test"
        self.call_credentials = credentials

    def service_url(self, path: str) -> str:
        return f"https://{self.authority}{path.rpartition('/')[0]}"


class HealthWorld:
    """One handle of a channel whose backends are asked, and the streams on its connection."""

    def __init__(self, world: SubchannelWorld, credentials: CallCredentials | None = None) -> None:
        self.world = world
        self.health = ChannelHealth(cast("Channel", FakeChannel(credentials)))
        self.health.check("shop")
        self.handle = self.acquire()
        self.seen = Watcher()
        self.streams: list[FakeStream] = []
        self.is_usable = True

    def acquire(self, health: ChannelHealth | None = None) -> "SubchannelHandle":
        address = self.world.acquire().address
        return self.world.pool.acquire(
            address, self.world.options, self.health if health is None else health
        )

    async def connect(self) -> "ClientTransport":
        transport = await self.world.connected(self.handle)
        transport.open_unary = self._open  # type: ignore[assignment,method-assign]
        return transport

    def _open(self, block: bytes, listener: "CallListener", message: bytes) -> FakeStream:
        stream = FakeStream(block, listener)
        stream.messages.append(message)
        self.streams.append(stream)
        if not self.is_usable:
            stream.end(StreamEnd(Status(StatusCode.UNAVAILABLE, "not usable")))
        return stream
