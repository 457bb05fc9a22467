"""What is known about an RPC of the asyncio API, and who waits for more?

An `Outcome` observes the channel's `Call` and remembers what was said about it, for the call object
that the application has. All of it happens on one loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode
from proxyless.channel.statuses import CANCELLED
from proxyless.channel.unread import await_reader
from proxyless.front.conversions import (
    NO_MESSAGE,
    SECOND_MESSAGE,
    Deserializer,
    deserialize,
    to_aio_error,
)
from proxyless.front.explaining import ask_here, remember
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import Call
    from proxyless.channel.unread import Unread

# In Python 3.11 naming the member of an enum runs a function, and every RPC asks for this one.
_OK: Final = StatusCode.OK

# Turns of the loop until the end of an RPC that failed at once is delivered: as many as grpcio
# takes at least. A task that the application starts for its writes gets the error in `write`.
TURNS_TO_FAIL: Final = 4


class Outcome:
    """What is known about an RPC so far, and who waits for more. Driven by the channel's `Call`."""

    # Set before the RPC starts.
    core: Call
    # Set to False when the stub is about to return. An end that comes before is delivered in a
    # later turn of the loop: a done callback may make the next RPC, and fail again.
    is_starting = True
    # Stops whoever sends requests, if somebody does on his own.
    stop_sending: Callable[[], None] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, deserializer: Deserializer) -> None:
        # Fixed at construction.
        self.loop = loop
        self.deserializer = deserializer
        # What the RPC said.
        self.head: Metadata | None = None
        self.end: StreamEnd | None = None
        # Who wants to know of the end.
        self._callbacks: tuple[Callable[[], None], ...] = ()
        # Who waits for the end, and who for whatever comes next.
        self._end_waiters: tuple[asyncio.Future[None], ...] = ()
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    @property
    def known_end(self) -> StreamEnd | None:
        """The end of the RPC, even if responses before it are not read; None before it came."""
        return self.end

    # What the channel says

    def on_head(self, metadata: Metadata) -> None:
        self.head = metadata
        if self._waiters:
            self.wake()

    def on_writable(self) -> None:
        self.wake()

    def on_end(self, end: StreamEnd) -> None:
        if self.is_starting:
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
        for callback in self._callbacks:
            self._run(callback)

    def _defer_end(self, end: StreamEnd, turns: int) -> None:
        """Deliver an end that came before the stub returned."""
        if turns > 0:
            self.loop.call_soon(self._defer_end, end, turns - 1)
        elif self.end is None:  # Not cancelled meanwhile.
            self.is_starting = False
            self.on_end(end)

    # Waiting

    def new_waiter(self) -> asyncio.Future[None]:
        """A future for the next thing that happens; each waiting task needs its own."""
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
                # Who gave up waiting must not stay here for as long as the RPC lasts.
                self._end_waiters = tuple(each for each in self._end_waiters if each is not waiter)
        assert self.end is not None, "nobody else wakes those who wait for the end"
        return self.end

    async def wait_news(self) -> None:
        """Return at the next thing that happens. Who gives up leaves nothing here."""
        waiter = self.new_waiter()
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)

    async def wait_head(self) -> Metadata:
        while self.head is None and self.end is None:
            await self.wait_news()
        return self.head or EMPTY_METADATA

    async def wait_connected(self) -> None:
        """Return when the RPC was given to a connection; raise if it has failed."""
        while self.known_end is None and not self.core.is_connected:
            await self.wait_news()
        if self.end is not None:
            self.raise_if_failed()

    # The application's side

    def cancel(self, status: Status = CANCELLED) -> bool:
        if self.end is not None:
            return False
        if self.core.is_ended:
            # Its end is not delivered yet, and this one comes first.
            self.on_end(StreamEnd(status))
        else:
            self.core.cancel(status)
        return True

    def call_when_done(self, callback: Callable[[], None]) -> None:
        if self.end is None:
            self._callbacks += (callback,)
        else:
            self._run(callback)

    def _run(self, callback: Callable[[], None]) -> None:
        """An application's callback must not break the connection it is called from."""
        try:
            callback()
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": "exception in a done callback of an RPC", "exception": error}
            )

    def raise_if_failed(self) -> None:
        """Raise what the application expects for the end of the RPC, unless that is OK."""
        end = self.known_end
        assert end is not None, "called when the end of the RPC is known"
        if end.status.code is _OK:
            return
        # Itself, not an equal one: a server may use the same words.
        if end.status is CANCELLED:
            raise asyncio.CancelledError
        error = to_aio_error(end, self.head or EMPTY_METADATA)
        raise remember(error, self.core, ask_here)


class UnaryOutcome(Outcome):
    """The outcome of an RPC with one response."""

    # As long as nothing came. Here, and not set for each, because there is one for every RPC.
    _message: bytes | None = None
    response: Any = None

    def on_message(self, message: bytes) -> None:
        if self._message is not None:
            self.core.cancel(SECOND_MESSAGE)
        else:
            self._message = message

    def on_end(self, end: StreamEnd) -> None:
        if end.status.code is _OK:
            if self._message is None:
                end = StreamEnd(NO_MESSAGE, end.trailers)
            else:
                self.response, problem = deserialize(self.deserializer, self._message)
                if problem is not None:
                    end = StreamEnd(problem, end.trailers)
        Outcome.on_end(self, end)


class StreamOutcome(Outcome):
    """The outcome of an RPC with any number of responses, in a bounded queue.

    As with grpcio, what the server says last stands in the queue behind its responses: the RPC is
    over when they are read. Every other end is seen at once, also while that one waits: at the
    deadline, and when the channel is closed.
    """

    # What the server said last, while there are responses before it.
    _last_word: StreamEnd | None = None
    _unread: Unread | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, deserializer: Deserializer) -> None:
        super().__init__(loop, deserializer)
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_held = False

    @property
    def known_end(self) -> StreamEnd | None:
        return self._last_word if self.end is None else self.end

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._received_bytes > BUFFERED_BYTES_MAX:
            self._is_held = True
            self.core.hold()
        self.wake()

    def on_end(self, end: StreamEnd) -> None:
        if end.is_last_word and self._received:
            self._last_word = end
            self._unread = await_reader(self.core, self._on_cut)
            if self.stop_sending is not None:
                self.stop_sending()
            # Who writes need not wait, and who waits for the connection has waited long enough.
            self.wake()
        else:
            Outcome.on_end(self, end)

    def _on_cut(self, status: Status) -> None:
        """Nobody has read everything in time. As with any other end, what is here can be read."""
        self._conclude(StreamEnd(status))

    def _conclude(self, end: StreamEnd) -> None:
        """End an RPC whose end is known and was not delivered."""
        if self._unread is not None:
            self._unread.forget()
        Outcome.on_end(self, end)

    def cancel(self, status: Status = CANCELLED) -> bool:
        if self.end is not None:
            return False
        # Who cancels does not want the rest.
        self._received.clear()
        if self.core.is_ended:
            self._conclude(StreamEnd(status))
        else:
            self.core.cancel(status)
        return True

    async def read(self) -> Any:
        """The next response, or EOF after the last."""
        while not self._received:
            if self.end is not None:
                return grpc.aio.EOF
            try:
                await self.new_waiter()
            except asyncio.CancelledError:
                self.cancel()
                raise
        message = self._received.popleft()
        self._received_bytes -= len(message) + MESSAGE_OVERHEAD_BYTES
        response, problem = deserialize(self.deserializer, message)
        if problem is not None:
            self._received.clear()
            self.core.cancel(problem)
        elif self._is_held and self._received_bytes <= BUFFERED_BYTES_MAX // 2:
            # Not before: the end may be all that comes of it.
            self._is_held = False
            self.core.release()
        if self._last_word is not None and not self._received and self.end is None:
            status = self._last_word.status if problem is None else problem
            self._conclude(StreamEnd(status, self._last_word.trailers))
        return response if problem is None else grpc.aio.EOF
