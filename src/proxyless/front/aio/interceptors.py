"""Chains of grpc.aio's interceptors, and the call objects that applications get before the RPC.

An interceptor gets a continuation and the call's details, and returns a call, a response, or an
iterator of responses. It is a coroutine, so the application's call object has to exist before the
RPC does. Imported with the first call that is intercepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextvars import copy_context
from typing import Any, ClassVar, Final, NamedTuple

import grpc
import grpc.aio

from proxyless.channel.statuses import CANCELLED
from proxyless.front.aio.calls import (
    ALREADY_FINISHED,
    HALF_CLOSED,
    MIXED_STYLES,
    RequestIterator,
)
from proxyless.front.conversions import MetadataLike

# An application's arguments for one call, without requests. A plain tuple, because there is one for
# every RPC; interceptors use a `CallSpec`.
CallArguments = tuple[
    str,
    float | None,
    MetadataLike | None,
    grpc.CallCredentials | None,
    bool | None,
    grpc.Compression | None,
]


class CallSpec(NamedTuple):
    """`CallArguments` with names."""

    path: str
    timeout: float | None = None
    metadata: MetadataLike | None = None
    credentials: grpc.CallCredentials | None = None
    wait_for_ready: bool | None = None
    compression: grpc.Compression | None = None


# Starts the RPC itself, with a request or an iterator of requests.
Start = Callable[[CallArguments, Any], Any]


async def _run_chain(
    methods: Sequence[Callable[..., Any]],
    wrap: Callable[[Any, Any], Any],
    start: Start,
    spec: CallSpec,
    requests: Any,
) -> Any:
    """Run a chain of interceptors; return the call of the outermost."""
    last_call: Any = None

    async def run(at: int, details: grpc.aio.ClientCallDetails, requests: Any) -> Any:
        nonlocal last_call
        if at == len(methods):
            last_call = start(_with_details(spec, details), requests)
            return last_call

        async def proceed(details: grpc.aio.ClientCallDetails, requests: Any) -> Any:
            return await run(at + 1, details, requests)

        last_call = wrap(await methods[at](proceed, details, requests), last_call)
        return last_call

    details = grpc.aio.ClientCallDetails(
        # grpcio passes the path as bytes.
        spec.path.encode("ascii"),
        spec.timeout,
        _as_metadata(spec.metadata),
        spec.credentials,
        spec.wait_for_ready,
    )
    return await run(0, details, requests)


def _as_metadata(metadata: MetadataLike | None) -> grpc.aio.Metadata:
    if isinstance(metadata, grpc.aio.Metadata):
        return metadata
    return grpc.aio.Metadata(*(metadata or ()))


def _with_details(spec: CallSpec, details: grpc.aio.ClientCallDetails) -> CallSpec:
    """The arguments, with the details that the innermost continuation was called with."""
    method = details.method
    return spec._replace(
        path=method.decode("ascii") if isinstance(method, bytes) else method,
        timeout=details.timeout,
        metadata=details.metadata,
        credentials=details.credentials,
        wait_for_ready=details.wait_for_ready,
    )


class InterceptedCall:
    """The application's object for the call that a task of interceptors will return."""

    # Names the method of the interceptors.
    kind: ClassVar[str]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interceptors: Sequence[Any],
        start: Start,
        arguments: CallArguments,
        requests: Any,
    ) -> None:
        methods = [getattr(each, f"intercept_{self.kind}") for each in interceptors]
        chain = _run_chain(methods, self._wrap, start, CallSpec(*arguments), requests)
        self._task: asyncio.Task[Any] = loop.create_task(chain)
        self._callbacks: list[Callable[[Any], None]] = []
        self._task.add_done_callback(self._on_call)

    @classmethod
    def _wrap(cls, result: Any, last_call: Any) -> Any:
        """The result of an interceptor as a call."""
        raise NotImplementedError

    def __del__(self) -> None:
        task = self._task
        loop = task.get_loop()
        if not loop.is_closed() and not self.done():
            loop.call_soon_threadsafe(_cancel_call, task)

    def _on_call(self, task: asyncio.Task[Any]) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                self.add_done_callback(callback)
            except Exception as error:
                # The call has ended, and the other callbacks are still called.
                task.get_loop().call_exception_handler(
                    {"message": "exception in a done callback of an RPC", "exception": error}
                )
        if not task.cancelled():
            # Retrieved here, so that asyncio does not log an exception that is never awaited.
            task.exception()

    @property
    def _call(self) -> Any:
        """The call, once the interceptors have returned one."""
        task = self._task
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def chain(self) -> asyncio.Task[Any]:
        """The task of the interceptors."""
        return self._task

    @property
    def started(self) -> Any:
        """For `call_route`: the call, or the exception of an interceptor; None if there is none."""
        task = self._task
        is_failed = task.done() and not task.cancelled() and task.exception() is not None
        return task.exception() if is_failed else self._call

    def cancel(self) -> bool:
        return _cancel_call(self._task)

    def cancelled(self) -> bool:
        task = self._task
        if not task.done():
            return False
        if task.cancelled():
            return True
        error = task.exception()
        if error is not None:
            code = getattr(error, "code", None)
            return code is not None and code() is grpc.StatusCode.CANCELLED
        return bool(self._call.cancelled())

    def done(self) -> bool:
        if not self._task.done():
            return False
        call = self._call
        return True if call is None else bool(call.done())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if not self._task.done():
            context = copy_context()
            self._callbacks.append(lambda call: context.run(callback, call))
            return
        call = self._call
        if call is None or call.done():
            callback(self)
        else:
            call.add_done_callback(lambda _: callback(self))

    def time_remaining(self) -> float | None:
        call = self._call
        remaining: float | None = None if call is None else call.time_remaining()
        return remaining

    async def _get(self, name: str, when_cancelled: Any) -> Any:
        """The result of a method of the call, or of the error that the interceptors raised."""
        try:
            call = await asyncio.shield(self._task)
        except grpc.aio.AioRpcError as error:
            return getattr(error, name)()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            return when_cancelled
        return await getattr(call, name)()

    async def initial_metadata(self) -> grpc.aio.Metadata | None:
        return await self._get("initial_metadata", None)

    async def trailing_metadata(self) -> grpc.aio.Metadata | None:
        return await self._get("trailing_metadata", None)

    async def code(self) -> grpc.StatusCode:
        return await self._get("code", grpc.StatusCode.CANCELLED)

    async def details(self) -> str:
        return str(await self._get("details", CANCELLED.details))

    async def debug_error_string(self) -> str | None:
        text: str | None = await self._get("debug_error_string", "")
        return text

    async def wait_for_connection(self) -> None:
        call = await asyncio.shield(self._task)
        await call.wait_for_connection()


def _cancel_call(task: asyncio.Task[Any]) -> bool:
    if not task.done():
        return task.cancel()
    if task.cancelled() or task.exception() is not None:
        return False
    return bool(task.result().cancel())


class _InterceptedUnaryResponse(InterceptedCall):
    """An intercepted call with one response."""

    @classmethod
    def _wrap(cls, result: Any, last_call: Any) -> Any:
        return result if isinstance(result, grpc.aio.Call) else _Response(result, last_call)

    def __await__(self) -> Generator[Any, None, Any]:
        call = yield from self._task
        return (yield from call.__await__())


class _InterceptedStreamResponse(InterceptedCall):
    """An intercepted call with many responses."""

    _call_type: ClassVar[type]
    _iterator: AsyncIterator[Any] | None = None

    @classmethod
    def _wrap(cls, result: Any, last_call: Any) -> Any:
        if isinstance(result, (cls._call_type, _OtherResponses)):
            return result
        return _OtherResponses(last_call or _Response(None), result)

    async def _iterate(self) -> AsyncIterator[Any]:
        call = await self._task
        async for response in call:
            yield response

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._iterator is None:
            self._iterator = self._iterate()
        return self._iterator

    async def read(self) -> Any:
        try:
            return await anext(self.__aiter__())
        except StopAsyncIteration:
            return grpc.aio.EOF


class _Writes:
    """Iterator over the requests that an application writes, for interceptors."""

    _END: Final = object()

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (request := await self._queue.get()) is not self._END:
            yield request

    async def put(self, request: Any, call: Any) -> None:
        """Add a request; return without it if the call ends first."""
        put = asyncio.ensure_future(self._queue.put(request))
        ended = asyncio.ensure_future(call.code())
        try:
            await asyncio.wait((put, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            put.cancel()
            ended.cancel()

    async def close(self, call: Any) -> None:
        """End the requests. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            try:
                await self.put(self._END, call)
            except asyncio.CancelledError:
                self.is_closed = False
                raise


class _InterceptedStreamRequest(InterceptedCall):
    """An intercepted call with many requests, from an iterator or written."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interceptors: Sequence[Any],
        start: Start,
        arguments: CallArguments,
        requests: RequestIterator | None,
    ) -> None:
        self._writes = _Writes() if requests is None else None
        super().__init__(loop, interceptors, start, arguments, self._writes or requests)

    async def _wait_call(self) -> Any:
        """The call. Raises InvalidStateError if it was cancelled before there was one."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            raise asyncio.InvalidStateError(ALREADY_FINISHED) from None

    async def write(self, request: Any) -> None:
        if self._writes is None:
            raise grpc.aio.UsageError(MIXED_STYLES)
        try:
            call = await self._wait_call()
        except grpc.aio.AioRpcError:
            raise asyncio.InvalidStateError(ALREADY_FINISHED) from None
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        if self._writes.is_closed:
            raise asyncio.InvalidStateError(HALF_CLOSED)
        await self._writes.put(request, call)
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)

    async def done_writing(self) -> None:
        if self._writes is None:
            raise grpc.aio.UsageError(MIXED_STYLES)
        call = await self._wait_call()
        if not call.done():
            await self._writes.close(call)


class InterceptedUnaryUnaryCall(_InterceptedUnaryResponse, grpc.aio.UnaryUnaryCall):
    """One request, one response, through interceptors."""

    kind = "unary_unary"


class InterceptedUnaryStreamCall(_InterceptedStreamResponse, grpc.aio.UnaryStreamCall):
    """One request, many responses, through interceptors."""

    kind = "unary_stream"
    _call_type = grpc.aio.UnaryStreamCall


class InterceptedStreamUnaryCall(
    _InterceptedStreamRequest, _InterceptedUnaryResponse, grpc.aio.StreamUnaryCall
):
    """Many requests, one response, through interceptors."""

    kind = "stream_unary"


class InterceptedStreamStreamCall(
    _InterceptedStreamRequest, _InterceptedStreamResponse, grpc.aio.StreamStreamCall
):
    """Many requests, many responses, through interceptors."""

    kind = "stream_stream"
    _call_type = grpc.aio.StreamStreamCall


# By the kind of their multi-callable.
INTERCEPTED_CALLS: Final[Mapping[str, type[InterceptedCall]]] = {
    each.kind: each
    for each in (
        InterceptedUnaryUnaryCall,
        InterceptedUnaryStreamCall,
        InterceptedStreamUnaryCall,
        InterceptedStreamStreamCall,
    )
}


class _Response(grpc.aio.UnaryUnaryCall):
    """A call that has ended with the response of an interceptor."""

    def __init__(self, response: Any, call: Any = None) -> None:
        self._response = response
        # The call that the interceptor has made, if any.
        self._call = call

    def cancel(self) -> bool:
        return False

    cancelled = cancel

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def time_remaining(self) -> float | None:
        return None

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def initial_metadata(self) -> None:
        return None

    trailing_metadata = debug_error_string = wait_for_connection = initial_metadata

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._response


class _OtherResponses:
    """A call whose responses an interceptor has replaced."""

    def __init__(self, call: Any, responses: AsyncIterable[Any]) -> None:
        self._call = call
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses.__aiter__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
