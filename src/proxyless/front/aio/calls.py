"""Call objects of the asyncio API, which behave as grpc.aio's.

A call with one response is its own `Outcome`. A call with streamed responses refers to one, which
does not refer to it: a call that the application drops is freed at once, and its RPC is cancelled,
as with grpcio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.base import Status, StatusCode
from proxyless.channel.statuses import CANCELLED
from proxyless.front.aio.outcomes import Outcome, StreamOutcome, UnaryOutcome
from proxyless.front.conversions import (
    COLLECTED,
    Deserializer,
    Serializer,
    serialize,
    to_aio_metadata,
    to_debug_string,
    to_grpc_code,
)

if TYPE_CHECKING:
    from proxyless.channel import Call

DoneCallback = Callable[[Any], None]
RequestIterator = AsyncIterable[Any] | Iterable[Any]

# A global, because in Python 3.11 `StatusCode.OK` calls a function, and every RPC reads it.
_OK: Final = StatusCode.OK
# The wording of grpcio.
ALREADY_FINISHED: Final = "RPC already finished."
HALF_CLOSED: Final = 'RPC is half closed after calling "done_writing".'
MIXED_STYLES: Final = "The iterator and read/write APIs may not be mixed on a single RPC."


class _CallApi:
    """The interface of a call, implemented with its outcome."""

    _outcome: Outcome

    @property
    def rpc(self) -> Call:
        """For `call_route`."""
        return self._outcome.call

    def cancelled(self) -> bool:
        end = self._outcome.end
        return end is not None and end.status.code is StatusCode.CANCELLED

    def done(self) -> bool:
        return self._outcome.end is not None

    def cancel(self) -> bool:
        return self._outcome.cancel()

    def time_remaining(self) -> float | None:
        return self._outcome.call.time_remaining_s()

    def add_done_callback(self, callback: DoneCallback) -> None:
        self._outcome.call_when_done(lambda: callback(self))

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return to_aio_metadata(await self._outcome.wait_head())

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return to_aio_metadata((await self._outcome.wait_end()).trailers)

    async def code(self) -> grpc.StatusCode:
        return to_grpc_code((await self._outcome.wait_end()).status.code)

    async def details(self) -> str:
        return (await self._outcome.wait_end()).status.details

    async def debug_error_string(self) -> str | None:
        status = (await self._outcome.wait_end()).status
        return None if status is CANCELLED else to_debug_string(status)

    async def wait_for_connection(self) -> None:
        await self._outcome.wait_connected()

    def __repr__(self) -> str:
        end = self._outcome.end
        state = "under way" if end is None else str(end.status)
        return f"<{type(self).__name__}: {state}>"


class _UnaryResponse(_CallApi, UnaryOutcome):
    """A call with one response, which is awaited."""

    @property
    def _outcome(self) -> Outcome:  # type: ignore[override]
        return self

    def cancel(self, status: Status = CANCELLED) -> bool:
        return Outcome.cancel(self, status)

    def __await__(self) -> Generator[Any, None, Any]:
        if self.end is None:
            try:
                yield from self.new_end_waiter()
            except asyncio.CancelledError:
                self.cancel()
                raise
        end = self.end
        if end is None or end.status.code is not _OK:
            self.raise_if_failed()
        return self.response


class _StreamResponse(_CallApi):
    """A call with many responses, which are iterated or read."""

    _outcome: StreamOutcome

    def __init__(self, outcome: StreamOutcome) -> None:
        self._outcome = outcome
        self._iterator: AsyncIterator[Any] | None = None
        self._is_read = False

    def __del__(self) -> None:
        outcome = self._outcome
        # May run in any thread, and after the loop is closed.
        if outcome.end is None and not outcome.loop.is_closed() and hasattr(outcome, "call"):
            outcome.loop.call_soon_threadsafe(outcome.cancel, COLLECTED)

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._is_read:
            raise grpc.aio.UsageError(MIXED_STYLES)
        if self._iterator is None:
            self._iterator = self._iterate()
        return self._iterator

    async def _iterate(self) -> AsyncIterator[Any]:
        outcome = self._outcome
        while (response := await outcome.read()) is not grpc.aio.EOF:
            yield response
        outcome.raise_if_failed()

    async def read(self) -> Any:
        # As in grpcio, the style of a call that has ended does not matter.
        if self._outcome.end is None:
            if self._iterator is not None:
                raise grpc.aio.UsageError(MIXED_STYLES)
            self._is_read = True
        response = await self._outcome.read()
        if response is grpc.aio.EOF:
            self._outcome.raise_if_failed()
        return response


class _RequestWriter:
    """Sends the requests of a call, from `write` or an iterator."""

    def __init__(self, outcome: Outcome, serializer: Serializer) -> None:
        self._outcome = outcome
        self._serializer = serializer
        self._task: asyncio.Task[None] | None = None

    @property
    def is_iterating(self) -> bool:
        return self._task is not None

    def consume(self, requests: RequestIterator, call: object) -> None:
        """Send the requests of an iterator, in a task that keeps the call object alive."""
        self._task = self._outcome.loop.create_task(self._consume(requests, call))
        self._outcome.stop_sending = self._stop

    def _stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _consume(self, requests: RequestIterator, _call: object) -> None:
        outcome = self._outcome
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self._send(request)
                    if outcome.call.is_ended or outcome.received_end is not None:
                        return
            else:
                for request in requests:
                    await self._send(request)
                    if outcome.call.is_ended or outcome.received_end is not None:
                        return
        except asyncio.CancelledError:
            # Raised by the iterator, or the loop is shutting down, unless the RPC has ended.
            if outcome.received_end is None:
                outcome.cancel()
            raise
        except Exception as error:
            text = f"request iterator raised {type(error).__name__}: {error}"
            outcome.call.cancel(Status(StatusCode.UNKNOWN, text))
        else:
            outcome.call.close_sending()

    async def write(self, request: object) -> None:
        outcome = self._outcome
        if outcome.end is not None:
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        if outcome.call.is_half_closed:
            raise asyncio.InvalidStateError(HALF_CLOSED)
        if outcome.call.is_ended or outcome.received_end is not None:
            await self._raise_if_failed()
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        await self._send(request)
        await self._raise_if_failed()

    async def _raise_if_failed(self) -> None:
        """Raise the error of an RPC that has failed, when its end is delivered."""
        outcome = self._outcome
        if outcome.received_end is None and outcome.call.is_ended:
            await outcome.wait_end()
        if outcome.received_end is not None:
            outcome.raise_if_failed()

    async def _send(self, request: object) -> None:
        outcome = self._outcome
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            outcome.call.cancel(message)
            return
        outcome.call.send_message(message)
        while not outcome.call.is_writable:
            try:
                await outcome.new_waiter()
            except asyncio.CancelledError:
                outcome.cancel()
                raise

    def done_writing(self) -> None:
        if self._outcome.end is None:
            self._outcome.call.close_sending()


class _StreamRequest:
    """A call with many requests, which are written or come from an iterator."""

    _writer: _RequestWriter

    def start_writing(self, requests: RequestIterator | None) -> None:
        if requests is not None:
            self._writer.consume(requests, self)

    async def write(self, request: object) -> None:
        if self._writer.is_iterating:
            raise grpc.aio.UsageError(MIXED_STYLES)
        await self._writer.write(request)

    async def done_writing(self) -> None:
        if self._writer.is_iterating:
            raise grpc.aio.UsageError(MIXED_STYLES)
        self._writer.done_writing()


class UnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall):
    """One request, one response."""


class UnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall):
    """One request, many responses."""

    async def wait_for_connection(self) -> None:
        """As in grpcio, return when the server has answered; raise if the answer is an error.

        Google's clients await this before they return a stream, and retry what it raises.
        """
        await self._outcome.wait_head()
        if self._outcome.end is not None:
            self._outcome.raise_if_failed()


class StreamUnaryCall(_StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall):
    """Many requests, one response."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deserializer: Deserializer,
        serializer: Serializer,
    ) -> None:
        UnaryOutcome.__init__(self, loop, deserializer)
        self._writer = _RequestWriter(self, serializer)


class StreamStreamCall(_StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall):
    """Many requests, many responses."""

    def __init__(self, outcome: StreamOutcome, serializer: Serializer) -> None:
        super().__init__(outcome)
        self._writer = _RequestWriter(outcome, serializer)
