"""Server: a small gRPC server on our own wire, for simulations, tests, demos and benchmarks.

Methods are async functions that take a `ServerCall`; what they return or raise becomes the status.
Production servers use grpcio.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

from proxyless.base import EMPTY_METADATA, OK, Address, Metadata, Status, StatusCode
from proxyless.runtime import AsyncioNetwork, Clock, Listener, LoopClock, Network
from proxyless.transport.pump import Pump, make_read_buffer, turns_of
from proxyless.wire import (
    IDENTITY,
    Limits,
    RemoteProtocolError,
    RequestBlock,
    ServerConnection,
    ServerStream,
    StreamEnd,
    compress,
)
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from proxyless.wire.turns import Turns

_INTERNAL: Final = Status(StatusCode.INTERNAL, "the method raised an exception")


class ServerCall:
    """A call, for its method. Reading and writing are for one task each."""

    def __init__(
        self, stream: ServerStream, request: RequestBlock, new_future: "_NewFuture"
    ) -> None:
        self.request = request
        self.trailers: Metadata = EMPTY_METADATA
        self._stream = stream
        self._new_future = new_future
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_half_closed = False
        self._is_finished = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._encoding = IDENTITY
        # Set by the server when the method starts.
        self.task: asyncio.Task[None] | None = None

    async def read(self) -> bytes | None:
        """The next message, or None after the last."""
        while not self._received:
            if self._is_half_closed:
                return None
            self._reader = self._new_future()
            await self._reader
        message = self._received.popleft()
        self._received_bytes -= len(message) + MESSAGE_OVERHEAD_BYTES
        if self._stream.is_held and self._received_bytes <= BUFFERED_BYTES_MAX // 2:
            self._stream.release()
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.read()) is not None:
            yield message

    def send_head(self, metadata: Metadata = EMPTY_METADATA, encoding: str = IDENTITY) -> None:
        """Send response metadata. Later messages are compressed with `encoding`."""
        self._encoding = encoding
        self._stream.send_head(metadata, encoding)

    async def write(self, message: bytes) -> None:
        """Send a message and wait for the client's window."""
        if self._encoding == IDENTITY:
            self._stream.send_message(message)
        else:
            self._stream.send_message(compress(self._encoding, message), is_compressed=True)
        while not self._stream.is_writable:
            self._writer = self._new_future()
            await self._writer

    def finish(self, status: Status) -> None:
        self._is_finished = True
        if not self._stream.is_send_closed:
            self._stream.send_status(status, self.trailers)

    # Called by the wire

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._received_bytes > BUFFERED_BYTES_MAX:
            self._stream.hold()
        _wake(self._reader)

    def on_half_close(self) -> None:
        self._is_half_closed = True
        _wake(self._reader)

    def on_writable(self) -> None:
        _wake(self._writer)

    def on_end(self, end: StreamEnd) -> None:
        """Cancel the method, unless it has ended."""
        if not self._is_finished and self.task is not None:
            self.task.cancel()


_NewFuture = Callable[[], "asyncio.Future[None]"]
Method = Callable[[ServerCall], Awaitable[Status | None]]


class _ServerPump(Pump):
    """One accepted connection."""

    _wire: ServerConnection

    def __init__(
        self, server: "Server", loop: asyncio.AbstractEventLoop, clock: Clock, turns: Turns
    ) -> None:
        super().__init__(loop, server.buffer, turns)
        self._server = server
        self._wire = ServerConnection(self, server.limits, clock.now_s, turns)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not in `__init__`: after a failed TLS handshake `connection_lost` is not called.
        self._server.connections[self] = None
        super().connection_made(transport)

    def drain(self) -> None:
        self._wire.drain()
        self._flush()

    def on_call(self, stream: ServerStream, request: RequestBlock) -> ServerCall:
        call = ServerCall(stream, request, self._loop.create_future)
        call.task = self._server.start(call)
        return call

    def on_settings(self) -> None: ...
    def on_ping_ack(self, payload: bytes) -> None: ...
    def on_goaway(self, code: int, text: str) -> None: ...
    def on_broken(self, error: RemoteProtocolError) -> None: ...

    def on_drained(self) -> None:
        self._loop.call_soon(self.close)

    def _on_lost(self, status: Status) -> None:
        self._server.connections.pop(self, None)
        super()._on_lost(status)


class Server:
    """Serves methods by path. Owns listeners, connections and tasks."""

    def __init__(self, methods: Mapping[str, Method], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.buffer = make_read_buffer()
        # Ordered, so that simulations are reproducible; the tasks, too.
        self.connections: dict[_ServerPump, None] = {}
        # Number of connections since the start.
        self.accepted = 0
        self._methods = methods
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._listeners: list[Listener] = []

    async def listen(
        self,
        address: Address,
        *,
        network: Network | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Address:
        """Accept connections at an address; returns it with the real port."""
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        turns = turns_of(clock)

        def accept() -> _ServerPump:
            self.accepted += 1
            return _ServerPump(self, loop, clock, turns)

        listener = await (network or AsyncioNetwork()).listen(address, accept, tls=tls)
        self._listeners.append(listener)
        return listener.address

    def start(self, call: ServerCall) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._run(call))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _run(self, call: ServerCall) -> None:
        method = self._methods.get(call.request.path)
        if method is None:
            text = f"no method {call.request.path!r} here"
            call.finish(Status(StatusCode.UNIMPLEMENTED, text))
            return
        status: Status | None = _INTERNAL
        try:
            status = await method(call)
        finally:
            call.finish(status or OK)

    def drain(self) -> None:
        """Accept nothing new; close each connection after its last call."""
        self._close_listeners()
        for connection in list(self.connections):
            connection.drain()

    async def close(self) -> None:
        """Close everything now."""
        self._close_listeners()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in connections:
            await connection.wait_closed()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
