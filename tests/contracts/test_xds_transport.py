"""What every transport promises to the xDS client.

The same promises over a list, as other tests use it, and over gRPC on loopback sockets to a server
made with grpcio.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from proxyless.assembly import default_policies, default_resolvers
from proxyless.base import Status, StatusCode
from proxyless.channel import LoopStack, SubchannelPool
from proxyless.runtime import AsyncioNetwork, LoopClock, VirtualClock, seeded_random
from proxyless.transport import Connector
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.grpc_transport import MESSAGE_BYTES_MAX, GrpcTransports
from tests.transport_world import until
from tests.xds_client_world import GONE, FakeTransports, grpcio_tasks, server_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from proxyless.xds.client import Stream, Transport


class Heard:
    """A listener that remembers, and knows when it is called inside a call of its own."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.is_busy = False

    def on_ready(self) -> None:
        self._note("ready")

    def on_message(self, message: bytes) -> None:
        self._note(message)

    def on_end(self, status: Status) -> None:
        self._note(("end", status.code))

    def has(self, events: int) -> bool:
        return len(self.events) == events

    def _note(self, event: object) -> None:
        assert not self.is_busy, f"{event} was told inside a call to the transport"
        self.events.append(event)


class World(ABC):
    """One server that takes one stream, seen from both sides."""

    transport: Transport
    failures: list[Status]

    @abstractmethod
    async def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until this is so."""

    @abstractmethod
    async def calm(self) -> None:
        """Let everything happen that would."""

    @abstractmethod
    async def start_server(self) -> None: ...

    @abstractmethod
    async def say(self, message: bytes) -> None: ...

    @abstractmethod
    async def end(self, code: StatusCode) -> None: ...

    @abstractmethod
    def received(self) -> list[bytes]: ...

    def open(self, heard: Heard) -> Stream:
        heard.is_busy = True
        stream = self.transport.open(ADS_PATH, heard)
        heard.is_busy = False
        return stream

    def read(self, stream: Stream, heard: Heard) -> None:
        heard.is_busy = True
        stream.read_next()
        heard.is_busy = False


class FakeWorld(World):
    """Over a list, in virtual time."""

    def __init__(self) -> None:
        self._clock = VirtualClock()
        transports = FakeTransports(self._clock)
        self._server = transports.server("a")
        self._server.is_up = False
        self.transport = transports.create(server_config("a"))
        self.failures = []
        self.transport.watch_connectivity(self.failures.append)

    async def until(self, condition: Callable[[], bool]) -> None:
        if not self._server.is_up and self._server.streams:
            self._server.fail(GONE)
        self._clock.advance(0)
        assert condition()

    async def calm(self) -> None:
        self._clock.advance(0)

    async def start_server(self) -> None:
        self._server.rise()

    async def say(self, message: bytes) -> None:
        self._server.ads.say(message)

    async def end(self, code: StatusCode) -> None:
        self._server.ads.end(Status(code))

    def received(self) -> list[bytes]:
        return self._server.ads.sent


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes streams of bytes, and does what the test says."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.written = 0
        self.to_say: asyncio.Queue[bytes | StatusCode] = asyncio.Queue()

    def service(self, details: Any) -> Any:  # noqa: ANN401 - grpc has no types
        assert details.method == ADS_PATH
        return grpc.stream_stream_rpc_method_handler(self._run)

    async def _run(self, requests: Any, context: Any) -> None:  # noqa: ANN401
        reading = asyncio.create_task(self._read(requests))
        try:
            while isinstance(item := await self.to_say.get(), bytes):
                await context.write(item)
                self.written += 1
            if item is not StatusCode.OK:
                code = next(each for each in grpc.StatusCode if each.value[0] == item)
                await context.abort(code, "said the test")
        finally:
            reading.cancel()

    async def _read(self, requests: Any) -> None:  # noqa: ANN401
        async for request in requests:
            self.received.append(request)


class GrpcWorld(World):
    """Over gRPC, on loopback."""

    def __init__(self, stack: LoopStack) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._handler = Handler()
        self._server: grpc.aio.Server | None = None
        transports = GrpcTransports(
            stack, policies=default_policies(), resolvers=default_resolvers()
        )
        self.transport = transports.create(server_config(f"127.0.0.1:{self._port}"))
        self.failures = []
        self.transport.watch_connectivity(self.failures.append)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, "what the test expects")

    async def calm(self) -> None:
        await asyncio.sleep(0.05)

    async def start_server(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers((self._handler,))
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def say(self, message: bytes) -> None:
        self._handler.to_say.put_nowait(message)

    async def end(self, code: StatusCode) -> None:
        self._handler.to_say.put_nowait(code)

    def received(self) -> list[bytes]:
        return self._handler.received

    def written(self) -> int:
        return self._handler.written

    async def stop(self) -> None:
        self.transport.close()
        if self._server is not None:
            await self._server.stop(None)
            await until(lambda: not grpcio_tasks(), "grpcio's tasks to end")


@asynccontextmanager
async def grpc_world() -> AsyncIterator[GrpcWorld]:
    clock, random = LoopClock(asyncio.get_running_loop()), seeded_random(1)
    connector = Connector(clock=clock)
    async with SubchannelPool(connector, clock=clock, random=random) as pool:
        stack = LoopStack(clock, random, AsyncioNetwork(), connector.deadlines, pool)
        world = GrpcWorld(stack)
        yield world
        await world.stop()


@pytest.fixture(params=["fake", "grpc"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "fake":
        yield FakeWorld()
    else:
        async with grpc_world() as made:
            yield made


async def test_what_is_sent_arrives_in_order(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"one")
    await world.until(lambda: heard.events == ["ready"])
    stream.send(b"two")
    await world.until(lambda: world.received() == [b"one", b"two"])
    stream.close()


async def test_messages_come_one_by_one_as_they_are_asked_for(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"hello")
    await world.say(b"one")
    await world.say(b"two")
    await world.until(lambda: heard.events == ["ready"])
    await world.calm()
    assert heard.events == ["ready"]
    world.read(stream, heard)
    await world.until(lambda: heard.events == ["ready", b"one"])
    await world.calm()
    assert heard.events == ["ready", b"one"]
    world.read(stream, heard)
    await world.until(lambda: heard.events == ["ready", b"one", b"two"])
    stream.close()


async def test_the_end_comes_behind_the_messages(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"hello")
    await world.until(lambda: heard.events == ["ready"])
    await world.say(b"one")
    await world.end(StatusCode.ABORTED)
    await world.calm()
    assert heard.events == ["ready"]
    world.read(stream, heard)
    await world.until(lambda: len(heard.events) == 3)
    assert heard.events[1:] == [b"one", ("end", StatusCode.ABORTED)]
    # Void, all of it.
    stream.send(b"more")
    stream.read_next()
    stream.close()
    await world.calm()
    assert len(heard.events) == 3


async def test_an_end_without_trouble_is_an_end(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"hello")
    await world.end(StatusCode.OK)
    await world.until(lambda: ("end", StatusCode.OK) in heard.events)
    assert heard.events.count(("end", StatusCode.OK)) == 1


async def test_nothing_is_told_after_close(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"hello")
    await world.until(lambda: heard.events == ["ready"])
    world.read(stream, heard)
    await world.say(b"one")
    heard.is_busy = True
    stream.close()
    stream.close()
    await world.calm()
    assert heard.events == ["ready"]


async def test_closing_the_transport_ends_its_streams(world: World) -> None:
    await world.start_server()
    heard = Heard()
    stream = world.open(heard)
    await world.until(lambda: heard.events == ["ready"])
    world.transport.close()
    world.transport.close()
    stream.send(b"late")
    await world.calm()
    assert heard.events == ["ready"]
    assert b"late" not in world.received()


async def test_a_stream_waits_while_the_server_cannot_be_reached(world: World) -> None:
    heard = Heard()
    stream = world.open(heard)
    stream.send(b"early")
    await world.until(lambda: bool(world.failures))
    assert world.failures[0].code is StatusCode.UNAVAILABLE
    assert "refused" in world.failures[0].details
    assert heard.events == []
    await world.start_server()
    await world.until(lambda: heard.events == ["ready"])
    await world.until(lambda: world.received() == [b"early"])
    stream.close()


async def test_a_stream_on_a_connection_that_is_there_is_ready_too(world: World) -> None:
    await world.start_server()
    heard = Heard()
    for number in range(2):
        stream = world.open(heard)
        await world.until(lambda: heard.events == ["ready"])
        stream.send(b"%d" % number)
        stream.close()
        heard.events.clear()


async def test_who_watches_later_hears_that_the_server_cannot_be_reached(world: World) -> None:
    stream = world.open(Heard())
    await world.until(lambda: bool(world.failures))
    told: list[Status] = []
    world.transport.watch_connectivity(told.append)
    assert told == []
    await world.until(lambda: bool(told))
    assert told[0] == world.failures[0]
    stream.close()


async def test_a_message_of_many_megabytes_arrives() -> None:
    async with grpc_world() as world:
        await world.start_server()
        heard = Heard()
        stream = world.open(heard)
        stream.send(b"hello")
        message = bytes(20 * 1024 * 1024)
        await world.say(message)
        world.read(stream, heard)
        await world.until(lambda: len(heard.events) == 2)
        assert heard.events[1] == message
        stream.close()


async def test_a_message_beyond_the_limit_ends_the_stream() -> None:
    async with grpc_world() as world:
        await world.start_server()
        heard = Heard()
        stream = world.open(heard)
        stream.send(b"hello")
        await world.say(bytes(MESSAGE_BYTES_MAX + 1))
        world.read(stream, heard)
        await world.until(lambda: len(heard.events) == 2)
        assert heard.events[1] == ("end", StatusCode.RESOURCE_EXHAUSTED)


async def test_a_server_that_says_more_than_is_read_is_held_back() -> None:
    async with grpc_world() as world:
        await world.start_server()
        heard = Heard()
        stream = world.open(heard)
        stream.send(b"hello")
        for index in range(64):
            await world.say(bytes([index]) * 1024 * 1024)
        await world.until(lambda: world.written() > 0)
        written = -1
        while world.written() > written:
            written = world.written()
            await asyncio.sleep(0.1)
        assert written < 16
        for index in range(64):
            world.read(stream, heard)
            await world.until(partial(heard.has, index + 2))
        assert [message[0] for message in heard.events[1:]] == list(range(64))
        stream.close()
