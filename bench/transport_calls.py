"""Calls on one connection, without a channel: for benchmarks and tests of the transport.

No retries, no load balancing, no serialisation. Errors are reported as a `Status`, never raised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from proxyless.base.metadata import EMPTY, Metadata
from proxyless.base.status import Status, StatusCode
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from proxyless.transport.client import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock

_DEADLINE_EXCEEDED: Final = Status(StatusCode.DEADLINE_EXCEEDED, "deadline exceeded")
_NO_MESSAGE: Final = Status(
    StatusCode.UNIMPLEMENTED, "peer ended the call with OK but without a message"
)
_SECOND_MESSAGE: Final = Status(
    StatusCode.UNIMPLEMENTED, "peer sent a second message in a unary call"
)


class UnaryCall:
    """One request, one response. Awaiting it returns the end; if that is OK, `message` is set."""

    __slots__ = ("_deadlines", "_done", "_stream", "deadline_id", "end", "head", "message")

    def __init__(
        self,
        transport: ClientTransport,
        block: bytes,
        message: bytes,
        timeout_s: float | None = None,
    ) -> None:
        self.head: ResponseBlock | None = None
        self.message: bytes | None = None
        self.end: StreamEnd | None = None
        self._done: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()
        self._deadlines = transport.deadlines
        self.deadline_id = 0
        self._stream = transport.open_unary(block, self, message)
        if timeout_s is not None and self.end is None:
            self._deadlines.expire(self, transport.clock.now_s() + timeout_s)

    def __await__(self) -> Generator[object, None, StreamEnd]:
        return self._done.__await__()

    @property
    def initial_metadata(self) -> Metadata:
        return EMPTY if self.head is None else self.head.metadata

    def cancel(self) -> None:
        self._stream.cancel()

    def on_deadline(self) -> None:
        self._stream.cancel(_DEADLINE_EXCEEDED)

    # Called by the stream

    def on_head(self, head: ResponseBlock) -> None:
        self.head = head

    def on_message(self, message: bytes) -> None:
        if self.message is not None:
            self._stream.refuse(_SECOND_MESSAGE)
        else:
            self.message = message

    def on_writable(self) -> None: ...

    def on_end(self, end: StreamEnd) -> None:
        if self.message is None and end.status.is_ok:
            end = StreamEnd(_NO_MESSAGE, end.trailers)
        self.end = end
        self._deadlines.cancel(self)
        # The waiting task may have been cancelled meanwhile.
        if not self._done.done():
            self._done.set_result(end)


class StreamingCall:
    """Any number of messages each way. Reading, writing and waiting are for one task each."""

    def __init__(
        self, transport: ClientTransport, block: bytes, timeout_s: float | None = None
    ) -> None:
        self.head: ResponseBlock | None = None
        self.end: StreamEnd | None = None
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._new_future = asyncio.get_running_loop().create_future
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._deadlines = transport.deadlines
        self.deadline_id = 0
        self._stream: ClientStream = transport.open(block, self)
        if timeout_s is not None and self.end is None:
            self._deadlines.expire(self, transport.clock.now_s() + timeout_s)

    async def write(
        self, message: bytes, *, is_compressed: bool = False, end_stream: bool = False
    ) -> None:
        """Send a message and wait for flow control. A no-op after the end."""
        # A stream may be over before its last messages are read; `on_end` comes after them.
        if self.end is not None or self._stream.is_ended:
            return
        self._stream.send_message(message, is_compressed=is_compressed, end_stream=end_stream)
        if not self._stream.is_writable:
            self._writer = self._new_future()
            await self._writer

    def close_sending(self) -> None:
        self._stream.close_sending()

    async def read(self) -> bytes | None:
        """The next message, or None after the last one: then `end` is set."""
        while not self._received:
            if self.end is not None:
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

    async def wait_end(self) -> StreamEnd:
        """Drop what was not read and wait for the end."""
        while await self.read() is not None:
            pass
        assert self.end is not None, "reading ends when the call does"
        return self.end

    def cancel(self) -> None:
        self._stream.cancel()

    def on_deadline(self) -> None:
        self._stream.cancel(_DEADLINE_EXCEEDED)

    # Called by the stream

    def on_head(self, head: ResponseBlock) -> None:
        self.head = head

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._received_bytes > BUFFERED_BYTES_MAX:
            self._stream.hold()
        wake(self._reader)

    def on_writable(self) -> None:
        wake(self._writer)

    def on_end(self, end: StreamEnd) -> None:
        self.end = end
        self._deadlines.cancel(self)
        wake(self._reader)
        wake(self._writer)


def wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
