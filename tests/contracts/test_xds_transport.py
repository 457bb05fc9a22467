"""Contract of the transports of the xDS client.

It is checked for the in-memory fake that other tests use, and for gRPC on loopback sockets with a
grpcio server, with an interceptor (A110) and without.
"""

from __future__ import annotations

import asyncio
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
from proxyless.front.aio.child_streams import InterceptedStreams
from proxyless.runtime import AsyncioNetwork, LoopClock, VirtualClock, seeded_random
from proxyless.transport import Connector
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.grpc_transport import (
    MESSAGE_BYTES_MAX,
    NO_CHILD_OPTIONS,
    ChildChannel,
    GrpcTransports,
)
from tests.worlds.ports import free_port
from tests.worlds.transports import until
from tests.worlds.xds_clients import GONE, FakeXdsTransports, grpcio_tasks, server_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from proxyless.xds.client import Stream, Transport


class RecordingListener:
    """A listener that records events, and fails if called inside a call to the transport."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.is_busy = False

    def on_ready(self) -> None:
        self._record("ready")

    def on_writable(self) -> None:
        self._record("writable")

    def on_message(self, message: bytes) -> None:
        self._record(message)

    def on_end(self, status: Status) -> None:
        self._record(("end", status.code))

    def has(self, events: int) -> bool:
        return len(self.events) == events

    def _record(self, event: object) -> None:
        assert not self.is_busy, f"{event} was delivered inside a call to the transport"
        self.events.append(event)


class XdsTransportWorld(ABC):
    """One server with one stream, controlled from both sides."""

    transport: Transport
    failures: list[Status]

    @abstractmethod
    async def until(self, condition: Callable[[], bool]) -> None:
        """Run until the condition is true."""

    @abstractmethod
    async def settle(self) -> None:
        """Run until all pending work is done."""

    @abstractmethod
    async def start_server(self) -> None: ...

    @abstractmethod
    async def respond(self, message: bytes) -> None: ...

    @abstractmethod
    async def end(self, code: StatusCode) -> None: ...

    @abstractmethod
    def received(self) -> list[bytes]: ...

    def open(self, listener: RecordingListener) -> Stream:
        listener.is_busy = True
        stream = self.transport.open(ADS_PATH, listener)
        listener.is_busy = False
        return stream

    def read(self, stream: Stream, listener: RecordingListener) -> None:
        listener.is_busy = True
        stream.read_next()
        listener.is_busy = False


class FakeWorld(XdsTransportWorld):
    """The in-memory fake, in virtual time."""

    def __init__(self) -> None:
        self._clock = VirtualClock()
        transports = FakeXdsTransports(self._clock)
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

    async def settle(self) -> None:
        self._clock.advance(0)

    async def start_server(self) -> None:
        self._server.recover()

    async def respond(self, message: bytes) -> None:
        self._server.ads.send_to_client(message)

    async def end(self, code: StatusCode) -> None:
        self._server.ads.end(Status(code))

    def received(self) -> list[bytes]:
        return self._server.ads.sent


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves streams of bytes; the test queues the responses."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.written = 0
        # Cleared by a test of a server that does not read.
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.responses: asyncio.Queue[bytes | StatusCode] = asyncio.Queue()

    def service(self, details: Any) -> Any:  # noqa: ANN401 - grpc has no types
        assert details.method == ADS_PATH
        return grpc.stream_stream_rpc_method_handler(self._run)

    async def _run(self, requests: Any, context: Any) -> None:  # noqa: ANN401
        reading = asyncio.create_task(self._read(requests))
        try:
            while isinstance(item := await self.responses.get(), bytes):
                await context.write(item)
                self.written += 1
            if item is not StatusCode.OK:
                code = next(each for each in grpc.StatusCode if each.value[0] == item)
                await context.abort(code, "ended by the test")
        finally:
            reading.cancel()

    async def _read(self, requests: Any) -> None:  # noqa: ANN401
        await self.may_read.wait()
        async for request in requests:
            self.received.append(request)


class GrpcWorld(XdsTransportWorld):
    """gRPC on loopback."""

    def __init__(self, stack: LoopStack, child: ChildChannel = NO_CHILD_OPTIONS) -> None:
        self._port = free_port()
        self.handler = Handler()
        self._server: grpc.aio.Server | None = None
        transports = GrpcTransports(
            stack, policies=default_policies(), resolvers=default_resolvers(), child=child
        )
        self.transport = transports.create(server_config(f"127.0.0.1:{self._port}"))
        self.failures = []
        self.transport.watch_connectivity(self.failures.append)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition, "the condition of the test")

    async def settle(self) -> None:
        await asyncio.sleep(0.05)

    async def start_server(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers((self.handler,))
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def respond(self, message: bytes) -> None:
        self.handler.responses.put_nowait(message)

    async def end(self, code: StatusCode) -> None:
        self.handler.responses.put_nowait(code)

    def received(self) -> list[bytes]:
        return self.handler.received

    def written(self) -> int:
        return self.handler.written

    async def stop(self) -> None:
        self.transport.close()
        if self._server is not None:
            await self._server.stop(None)
            await until(lambda: not grpcio_tasks(), "grpcio's tasks to end")


class ForwardingInterceptor(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Changes nothing."""

    async def intercept_stream_stream(
        self,
        continuation: Any,  # noqa: ANN401
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return await continuation(client_call_details, request_iterator)


@asynccontextmanager
async def grpc_world(child: ChildChannel = NO_CHILD_OPTIONS) -> AsyncIterator[GrpcWorld]:
    clock, random = LoopClock(asyncio.get_running_loop()), seeded_random(1)
    connector = Connector(clock=clock)
    async with SubchannelPool(connector, clock=clock, random=random) as pool:
        stack = LoopStack(clock, random, AsyncioNetwork(), connector.deadlines, pool)
        world = GrpcWorld(stack, child)
        yield world
        await world.stop()


@pytest.fixture(params=["fake", "grpc", "intercepted"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[XdsTransportWorld]:
    if request.param == "fake":
        yield FakeWorld()
    elif request.param == "intercepted":
        streams = InterceptedStreams([ForwardingInterceptor()])
        async with grpc_world(ChildChannel(make_call=streams)) as made:
            yield made
    else:
        async with grpc_world() as made:
            yield made


async def test_messages_are_sent_in_order(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"one")
    await world.until(lambda: listener.events == ["ready"])
    stream.send(b"two")
    await world.until(lambda: world.received() == [b"one", b"two"])
    stream.close()


async def test_one_message_is_delivered_per_read(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"hello")
    await world.respond(b"one")
    await world.respond(b"two")
    await world.until(lambda: listener.events == ["ready"])
    await world.settle()
    assert listener.events == ["ready"]
    world.read(stream, listener)
    await world.until(lambda: listener.events == ["ready", b"one"])
    await world.settle()
    assert listener.events == ["ready", b"one"]
    world.read(stream, listener)
    await world.until(lambda: listener.events == ["ready", b"one", b"two"])
    stream.close()


async def test_end_is_delivered_after_the_messages(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"hello")
    await world.until(lambda: listener.events == ["ready"])
    await world.respond(b"one")
    await world.end(StatusCode.ABORTED)
    await world.settle()
    assert listener.events == ["ready"]
    world.read(stream, listener)
    await world.until(lambda: len(listener.events) == 3)
    assert listener.events[1:] == [b"one", ("end", StatusCode.ABORTED)]
    # These calls have no effect.
    stream.send(b"more")
    stream.read_next()
    stream.close()
    await world.settle()
    assert len(listener.events) == 3


async def test_end_with_status_ok_is_delivered_once(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"hello")
    await world.end(StatusCode.OK)
    await world.until(lambda: ("end", StatusCode.OK) in listener.events)
    assert listener.events.count(("end", StatusCode.OK)) == 1


async def test_no_event_after_close(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"hello")
    await world.until(lambda: listener.events == ["ready"])
    world.read(stream, listener)
    await world.respond(b"one")
    listener.is_busy = True
    stream.close()
    stream.close()
    await world.settle()
    assert listener.events == ["ready"]


async def test_close_of_the_transport_ends_its_streams(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    stream = world.open(listener)
    await world.until(lambda: listener.events == ["ready"])
    world.transport.close()
    world.transport.close()
    stream.send(b"late")
    await world.settle()
    assert listener.events == ["ready"]
    assert b"late" not in world.received()


async def test_stream_waits_while_the_server_is_unreachable(world: XdsTransportWorld) -> None:
    listener = RecordingListener()
    stream = world.open(listener)
    stream.send(b"early")
    await world.until(lambda: bool(world.failures))
    assert world.failures[0].code is StatusCode.UNAVAILABLE
    assert "refused" in world.failures[0].details
    assert listener.events == []
    await world.start_server()
    await world.until(lambda: listener.events == ["ready"])
    await world.until(lambda: world.received() == [b"early"])
    stream.close()


async def test_stream_on_an_existing_connection_is_ready(world: XdsTransportWorld) -> None:
    await world.start_server()
    listener = RecordingListener()
    for number in range(2):
        stream = world.open(listener)
        await world.until(lambda: listener.events == ["ready"])
        stream.send(b"%d" % number)
        stream.close()
        listener.events.clear()


async def test_late_watcher_is_notified_when_the_server_is_unreachable(
    world: XdsTransportWorld,
) -> None:
    stream = world.open(RecordingListener())
    await world.until(lambda: bool(world.failures))
    failures: list[Status] = []
    world.transport.watch_connectivity(failures.append)
    assert failures == []
    await world.until(lambda: bool(failures))
    assert failures[0] == world.failures[0]
    stream.close()


async def test_listener_is_notified_when_the_server_reads_again() -> None:
    async with grpc_world() as world:
        world.handler.may_read.clear()
        await world.start_server()
        listener = RecordingListener()
        stream = world.open(listener)
        await world.until(lambda: listener.events == ["ready"])
        # More than the server's windows.
        for _ in range(64):
            stream.send(bytes(1024 * 1024))
        await world.settle()
        assert (stream.is_writable, listener.events) == (False, ["ready"])
        world.handler.may_read.set()
        await world.until(lambda: listener.events == ["ready", "writable"])
        assert stream.is_writable
        stream.close()


async def test_message_of_12_megabytes_is_delivered() -> None:
    async with grpc_world() as world:
        await world.start_server()
        listener = RecordingListener()
        stream = world.open(listener)
        stream.send(b"hello")
        message = bytes(12 * 1024 * 1024)
        await world.respond(message)
        world.read(stream, listener)
        await world.until(lambda: len(listener.events) == 2)
        assert listener.events[1] == message
        stream.close()


async def test_message_above_the_limit_ends_the_stream() -> None:
    async with grpc_world() as world:
        await world.start_server()
        listener = RecordingListener()
        stream = world.open(listener)
        stream.send(b"hello")
        await world.respond(bytes(MESSAGE_BYTES_MAX + 1))
        world.read(stream, listener)
        await world.until(lambda: len(listener.events) == 2)
        assert listener.events[1] == ("end", StatusCode.RESOURCE_EXHAUSTED)


async def test_server_is_blocked_by_flow_control_when_it_sends_more_than_is_read() -> None:
    async with grpc_world() as world:
        await world.start_server()
        listener = RecordingListener()
        stream = world.open(listener)
        stream.send(b"hello")
        for index in range(64):
            await world.respond(bytes([index]) * 1024 * 1024)
        await world.until(lambda: world.written() > 0)
        written = -1
        while world.written() > written:
            written = world.written()
            await asyncio.sleep(0.1)
        assert written < 16
        for index in range(64):
            world.read(stream, listener)
            await world.until(partial(listener.has, index + 2))
        assert [message[0] for message in listener.events[1:]] == list(range(64))
        stream.close()


@pytest.mark.spec("HOLD-09")
@pytest.mark.parametrize("is_intercepted", [False, True])
async def test_stream_is_receiving_while_a_message_is_not_delivered(is_intercepted: bool) -> None:
    streams = InterceptedStreams([ForwardingInterceptor()]) if is_intercepted else None
    async with grpc_world(ChildChannel(make_call=streams)) as world:
        await world.start_server()
        listener = RecordingListener()
        stream = world.open(listener)
        stream.send(b"hello")
        await world.until(lambda: listener.has(1))
        assert not stream.is_receiving
        # Not requested: flow control holds back the rest.
        await world.respond(bytes(12 * 1024 * 1024))
        await world.until(lambda: stream.is_receiving)
        world.read(stream, listener)
        await world.until(lambda: listener.has(2))
        assert not stream.is_receiving
        # One that is complete, and not requested either.
        await world.respond(b"complete")
        await world.until(lambda: stream.is_receiving)
        world.read(stream, listener)
        await world.until(lambda: listener.has(3))
        assert not stream.is_receiving
        stream.close()
