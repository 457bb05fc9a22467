"""Result of a call of the asyncio API: head, responses, end, and the futures that wait for them.

An `Outcome` observes the channel's `Call` for the application's call object, on one loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode
from proxyless.channel.statuses import CANCELLED
from proxyless.channel.unread_call import track_unread
from proxyless.front.channel_api import attach_rpc, call_here
from proxyless.front.conversions import (
    NO_MESSAGE,
    SECOND_MESSAGE,
    Deserializer,
    deserialize,
    to_aio_error,
)
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from proxyless.wire.messages import Unpacking

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import Call
    from proxyless.channel.unread_call import UnreadCall

# A global, because in Python 3.11 `StatusCode.OK` calls a function, and every RPC reads it.
_OK: Final = StatusCode.OK

# Turns of the loop until the end of an RPC without response headers is delivered: the minimum in
# grpcio. A task that the application starts for its writes gets the error in `write`.
TURNS_TO_FAIL: Final = 4


class Outcome:
    """The result of one RPC. Observes its `Call`."""

    # Call objects also have a `__dict__`; what every RPC uses is found without it.
    __slots__ = (
        "_done_callbacks",
        "_end_waiters",
        "_waiters",
        "call",
        "deserializer",
        "end",
        "head",
        "is_starting",
        "loop",
        "response",
        "stop_sending",
    )

    # Set before the RPC starts.
    call: Call

    def __init__(self, loop: asyncio.AbstractEventLoop, deserializer: Deserializer) -> None:
        # Fixed at construction.
        self.loop = loop
        self.deserializer = deserializer
        # Set to False when the stub is about to return. An end that comes before is delivered in a
        # later turn of the loop: a done callback may start another RPC, which fails again.
        self.is_starting = True
        # Stops the task that sends requests, if there is one.
        self.stop_sending: Callable[[], None] | None = None
        # From the `Call`. An RPC with one response keeps its bytes here until the end.
        self.head: Metadata | None = None
        self.response: Any = None
        self.end: StreamEnd | None = None
        self._done_callbacks: tuple[Callable[[], None], ...] = ()
        # Futures for the end, and for the next change.
        self._end_waiters: tuple[asyncio.Future[None], ...] = ()
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    @property
    def received_end(self) -> StreamEnd | None:
        """The end of the RPC, even if responses before it are unread."""
        return self.end

    # Called by the `Call`

    def on_head(self, metadata: Metadata) -> None:
        self.head = metadata
        if self._waiters:
            self.wake()

    def on_writable(self) -> None:
        self.wake()

    def on_end(self, end: StreamEnd) -> None:
        if self.is_starting or (self.head is None and _is_failure(end)):
            self._defer_end(end, TURNS_TO_FAIL)
            return
        self.end = end
        for waiter in self._end_waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._waiters:
            self.wake()
        if self.stop_sending is not None:
            self.stop_sending()
        for callback in self._done_callbacks:
            self._run(callback)

    def _defer_end(self, end: StreamEnd, turns: int) -> None:
        """Deliver an end after this number of turns of the loop."""
        if turns > 0:
            self.loop.call_soon(self._defer_end, end, turns - 1)
        elif self.end is None:  # Not cancelled since.
            self.is_starting = False
            self.head = self.head or EMPTY_METADATA
            # Not the subclass's `on_end`, which was called before.
            Outcome.on_end(self, end)

    # Waiting

    def new_waiter(self) -> asyncio.Future[None]:
        """A future for the next change; each waiting task needs its own."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters += (waiter,)
        return waiter

    def new_end_waiter(self) -> asyncio.Future[None]:
        """A future for the end of the RPC; each waiting task needs its own."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._end_waiters += (waiter,)
        return waiter

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_end(self) -> StreamEnd:
        if self.end is None:
            waiter = self.new_end_waiter()
            try:
                await waiter
            finally:
                # A cancelled waiter must not be kept until the end of the RPC.
                self._end_waiters = tuple(each for each in self._end_waiters if each is not waiter)
        assert self.end is not None, "only on_end completes these futures"
        return self.end

    async def _wait_change(self) -> None:
        waiter = self.new_waiter()
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)

    async def wait_head(self) -> Metadata:
        while self.head is None and self.end is None:
            await self._wait_change()
        return self.head or EMPTY_METADATA

    async def wait_connected(self) -> None:
        """Return when the RPC is on a connection; raise if it has failed."""
        while self.received_end is None and not self.call.is_connected:
            await self._wait_change()
        if self.end is not None:
            self.raise_if_failed()

    # Called by the application

    def cancel(self, status: Status = CANCELLED) -> bool:
        if self.end is not None:
            return False
        if self.call.is_ended:
            # Replaces the end, which is not delivered yet.
            self.on_end(StreamEnd(status))
        else:
            self.call.cancel(status)
        return True

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Call back when the RPC has ended, with the context variables of this call."""
        if self.end is None:
            # Not in the context of the connection, which is that of the first RPC on it.
            self._done_callbacks += (partial(copy_context().run, callback),)
        else:
            self._run(callback)

    def _run(self, callback: Callable[[], None]) -> None:
        """Call an application's callback. An exception must not reach the connection."""
        try:
            callback()
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": "exception in a done callback of an RPC", "exception": error}
            )

    def raise_if_failed(self) -> None:
        """Raise the exception for the end of the RPC, unless that is OK."""
        end = self.received_end
        assert end is not None, "called after the end"
        if end.status.code is _OK:
            return
        # Compared by identity: a server may send an equal status.
        if end.status is CANCELLED:
            raise asyncio.CancelledError
        error = to_aio_error(end, self.head or EMPTY_METADATA)
        raise attach_rpc(error, self.call, call_here)


def _is_failure(end: StreamEnd) -> bool:
    """Whether the end comes neither from the server nor from the application's `cancel`."""
    return not end.is_from_trailers and end.status is not CANCELLED


class UnaryOutcome(Outcome):
    """The result of an RPC with one response."""

    __slots__ = ()

    def choose_unpacking(self) -> Unpacking:
        return Unpacking.AT_END

    def on_message(self, message: bytes) -> None:
        if self.response is not None:
            self.call.cancel(SECOND_MESSAGE)
        else:
            self.response = message

    def on_end(self, end: StreamEnd) -> None:
        if end.status.code is _OK:
            if self.response is None:
                end = StreamEnd(NO_MESSAGE, end.trailers)
            elif self.deserializer is not None:
                self.response, error = deserialize(self.deserializer, self.response)
                if error is not None:
                    end = StreamEnd(error, end.trailers)
        Outcome.on_end(self, end)


class StreamOutcome(Outcome):
    """The result of an RPC with any number of responses, in a bounded queue.

    As with grpcio, an end from trailers is delivered after the responses: the RPC ends when they
    are read. Every other end (deadline, closed channel) is delivered at once, even while an end
    from trailers is pending.
    """

    # The end from trailers while responses before it are unread, and the unread call.
    _pending_end: StreamEnd | None = None
    _unread: UnreadCall | None = None
    # Responses may be compressed: each is unpacked when it is read.
    _is_packed = False

    def __init__(self, loop: asyncio.AbstractEventLoop, deserializer: Deserializer) -> None:
        super().__init__(loop, deserializer)
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_held = False

    @property
    def received_end(self) -> StreamEnd | None:
        if self.end is None and (self._is_packed or self._is_held):
            return self._pending_end or self.call.undelivered_end
        return self._pending_end if self.end is None else self.end

    def choose_unpacking(self) -> Unpacking:
        self._is_packed = True
        if self._waiters:
            # A task may wait in `read`.
            self.wake()
        return Unpacking.ON_READ

    def on_writable(self) -> None:
        if self.stop_sending is not None and self.received_end is not None:
            # The server has ended the RPC, and unread responses come before the end.
            self.stop_sending()
        self.wake()

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._received_bytes > BUFFERED_BYTES_MAX:
            self._is_held = True
            self.call.hold()
        self.wake()

    def on_end(self, end: StreamEnd) -> None:
        if end.is_from_trailers and self._received:
            self._pending_end = end
            self._unread = track_unread(self.call, self._on_unread_end)
            if self.stop_sending is not None:
                self.stop_sending()
            # Wakes `write` and `wait_for_connection`.
            self.wake()
        else:
            Outcome.on_end(self, end)

    def _on_unread_end(self, status: Status) -> None:
        """End a call whose responses were not read in time; they can still be read."""
        self._conclude(StreamEnd(status))

    def _conclude(self, end: StreamEnd) -> None:
        """Deliver the end of a call whose `on_end` was called before."""
        if self._unread is not None:
            self._unread.close()
        Outcome.on_end(self, end)

    def cancel(self, status: Status = CANCELLED) -> bool:
        if self.end is not None:
            return False
        self._received.clear()
        if self.call.is_ended:
            self._conclude(StreamEnd(status))
        else:
            self.call.cancel(status)
        return True

    async def read(self) -> Any:
        """The next response, or EOF after the last."""
        while not self._received:
            if self.end is not None:
                return grpc.aio.EOF
            if self._is_packed:
                self.call.request_message()
                if self._received or self.end is not None:
                    continue
            try:
                await self.new_waiter()
            except asyncio.CancelledError:
                self.cancel()
                raise
        message = self._received.popleft()
        self._received_bytes -= len(message) + MESSAGE_OVERHEAD_BYTES
        response, error = deserialize(self.deserializer, message)
        if error is not None:
            self._received.clear()
            self.call.cancel(error)
        elif self._is_held and self._received_bytes <= BUFFERED_BYTES_MAX // 2:
            # After deserializing: `release` may deliver the end at once.
            self._is_held = False
            self.call.release()
        if self._pending_end is not None and not self._received and self.end is None:
            status = self._pending_end.status if error is None else error
            self._conclude(StreamEnd(status, self._pending_end.trailers))
        return response if error is None else grpc.aio.EOF
