"""Streams to a control plane through an application's interceptors.

Specs: A110 (interceptors of child channels). Imported only if an application has given some.

The xDS client uses a `channel.Call`. An `InterceptedStream` has the methods of one that it uses,
and runs an RPC with the asyncio API on the same channel, because interceptors are grpc.aio's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.base import Status, StatusCode
from proxyless.channel.call import has_undelivered, probe_peer
from proxyless.channel.statuses import LOGGER, raised
from proxyless.front.aio.channel import AioChannel, Interceptors
from proxyless.front.aio.multi_callables import StreamStreamMultiCallable
from proxyless.runtime.tasks import create_owned_task
from proxyless.wire import IDENTITY, StreamEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from proxyless.channel import Call, Channel
    from proxyless.channel.attempt import CallObserver
    from proxyless.front.aio.interceptors import CallArguments


class InterceptedStreams:
    """Opens streams through these interceptors. Raises ValueError for one of no known kind."""

    def __init__(self, interceptors: Sequence[grpc.aio.ClientInterceptor]) -> None:
        Interceptors(interceptors)
        self._interceptors: Final = tuple(interceptors)

    def __call__(self, channel: Channel, path: str, observer: CallObserver) -> InterceptedStream:
        return InterceptedStream(_BorrowedChannel(channel, self._interceptors), path, observer)


class _BorrowedChannel(AioChannel):
    """The asyncio API on a channel that the xDS client owns, and closes."""

    def __init__(self, core: Channel, interceptors: Sequence[grpc.aio.ClientInterceptor]) -> None:
        super().__init__(lambda: core, encoding=IDENTITY, interceptors=interceptors)

    def __del__(self) -> None:
        return


class _CallKeeper(StreamStreamMultiCallable):
    """Keeps the last call that was started."""

    last_call: Call | None = None

    def _new_call(self, core: Channel, outcome: Any, arguments: CallArguments) -> Call:
        self.last_call = super()._new_call(core, outcome, arguments)
        return self.last_call


class InterceptedStream:
    """One stream. Owns the task that reads it."""

    def __init__(self, channel: AioChannel, path: str, observer: CallObserver) -> None:
        # Fixed at construction.
        self._observer: Final = observer
        self._loop: Final = asyncio.get_running_loop()
        channel.register(path, is_registered=True)
        self._method: Final = _CallKeeper(channel, path, None, None)
        # Requests that the RPC has not taken, and the event that ends its wait for one.
        self._requests: deque[bytes] = deque()
        self._has_request: Final = asyncio.Event()
        # Not set while the stream is held.
        self._may_read: Final = asyncio.Event()
        self._may_read.set()
        # After `start`.
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None
        self._is_connected = False
        # Whether a message has been read and not delivered.
        self._has_message = False

    # Called by the xDS client's stream

    def start(self) -> None:
        # In a context of its own, not that of the RPC that needs the stream first.
        requests = self._take_requests()
        self._call = Context().run(self._method, requests, wait_for_ready=True)
        self._task = create_owned_task(self._loop, self._run())

    def send_message(self, message: bytes) -> None:
        self._requests.append(message)
        self._has_request.set()

    @property
    def is_writable(self) -> bool:
        return self._is_connected and not self._requests

    def hold(self) -> None:
        self._may_read.clear()

    def release(self) -> None:
        self._may_read.set()

    def probe(self, on_answer: Callable[[], None]) -> None:
        if self._method.last_call is not None:
            probe_peer(self._method.last_call, on_answer)

    @property
    def has_undelivered(self) -> bool:
        call = self._method.last_call
        return self._has_message or (call is not None and has_undelivered(call))

    def cancel(self) -> None:
        """Idempotent. The observer is not called any more."""
        if self._task is not None:
            self._task.cancel()
        if self._call is not None:
            self._call.cancel()

    # Tasks

    async def _take_requests(self) -> AsyncIterator[bytes]:
        """The requests. The RPC takes one when those before have left."""
        while True:
            while self._requests:
                yield self._requests.popleft()
            if self._is_connected:
                self._observer.on_writable()
            self._has_request.clear()
            await self._has_request.wait()

    async def _run(self) -> None:
        try:
            status = await self._read()
        except Exception as error:
            LOGGER.exception("interceptor of a child channel")
            status = raised("interceptor", error)
        self._observer.on_end(StreamEnd(status))

    async def _read(self) -> Status:
        """Read until the end."""
        call = self._call
        try:
            await call.wait_for_connection()
            self._is_connected = True
            self._observer.on_writable()
            # One message ahead: a stream that is held may end after the last one.
            while (message := await call.read()) is not grpc.aio.EOF:
                self._has_message = True
                await self._may_read.wait()
                self._has_message = False
                self._observer.on_message(message)
        except grpc.aio.AioRpcError as error:
            return _status(error.code(), error.details())
        return _status(await call.code(), await call.details())


def _status(code: grpc.StatusCode, details: str | None) -> Status:
    return Status(StatusCode(code.value[0]), details or "")
