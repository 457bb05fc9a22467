"""How do an application's interceptors come between its stubs and the RPCs?

They are grpc.aio's: each gets a continuation and the call's details, and returns a call, or a
response (or an iterator of responses) to stand in for one. They are coroutines, so the object
handed to the application stands for a call that may not exist yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from proxyless.base.frozen import frozen
from proxyless.front.aio.calls import ALREADY_FINISHED, MIXED_STYLES, RequestIterator

_LOCALLY_CANCELLED: Final = "Locally cancelled by application!"


# Everything an application says about one call, besides its requests. There is one for every RPC,
# so it is a plain tuple; with names, for interceptors, it is a `CallSpec`.
Said = tuple[
    str,
    float | None,
    Iterable[tuple[str, str | bytes]] | None,
    grpc.CallCredentials | None,
    bool | None,
    grpc.Compression | None,
]


class CallSpec(NamedTuple):
    """What an application said, by name."""

    path: str
    timeout: float | None = None
    metadata: Iterable[tuple[str, str | bytes]] | None = None
    credentials: grpc.CallCredentials | None = None
    wait_for_ready: bool | None = None
    compression: grpc.Compression | None = None


# Starts the RPC itself, with a request or an iterator of requests.
Start = Callable[[Said, Any], Any]


@frozen
class Interceptors:
    """An application's interceptors, by the kind of call they are for."""

    unary_unary: Sequence[Any] = ()
    unary_stream: Sequence[Any] = ()
    stream_unary: Sequence[Any] = ()
    stream_stream: Sequence[Any] = ()

    @classmethod
    def sort(cls, interceptors: Iterable[object]) -> Interceptors:
        """Raises ValueError for what is not an interceptor. One may be of several kinds."""
        known = (
            grpc.aio.UnaryUnaryClientInterceptor,
            grpc.aio.UnaryStreamClientInterceptor,
            grpc.aio.StreamUnaryClientInterceptor,
            grpc.aio.StreamStreamClientInterceptor,
        )
        found = list(interceptors)
        for interceptor in found:
            if not isinstance(interceptor, known):
                raise ValueError(
                    f"interceptor {interceptor!r} is of no known kind, wanted one of "
                    + ", ".join(kind.__name__ for kind in known)
                )
        return cls(*([each for each in found if isinstance(each, kind)] for kind in known))


async def _run_chain(
    methods: Sequence[Callable[..., Any]],
    wrap: Callable[[Any, Any], Any],
    start: Start,
    spec: CallSpec,
    requests: Any,
) -> Any:
    """The call that a chain of interceptors makes of a start."""
    last_call: Any = None

    async def run(at: int, details: grpc.aio.ClientCallDetails, requests: Any) -> Any:
        nonlocal last_call
        if at == len(methods):
            last_call = start(_changed(spec, details), requests)
            return last_call

        async def proceed(details: grpc.aio.ClientCallDetails, requests: Any) -> Any:
            return await run(at + 1, details, requests)

        last_call = wrap(await methods[at](proceed, details, requests), last_call)
        return last_call

    details = grpc.aio.ClientCallDetails(
        # grpcio hands interceptors the path as bytes.
        spec.path.encode("ascii"),
        spec.timeout,
        _as_metadata(spec.metadata),
        spec.credentials,
        spec.wait_for_ready,
    )
    return await run(0, details, requests)


def _as_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> grpc.aio.Metadata:
    if isinstance(metadata, grpc.aio.Metadata):
        return metadata
    return grpc.aio.Metadata(*(metadata or ()))


def _changed(spec: CallSpec, details: grpc.aio.ClientCallDetails) -> CallSpec:
    """What the innermost continuation was called with."""
    method = details.method
    return spec._replace(
        path=method.decode("ascii") if isinstance(method, bytes) else method,
        timeout=details.timeout,
        metadata=details.metadata,
        credentials=details.credentials,
        wait_for_ready=details.wait_for_ready,
    )


class _Intercepted:
    """Stands for the call that the interceptors will return. Driven by their task."""

    def __init__(self, chain: Any) -> None:
        self._task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(chain)
        self._callbacks: list[Callable[[Any], None]] = []
        self._task.add_done_callback(self._on_call)

    def __del__(self) -> None:
        task = self._task
        loop = task.get_loop()
        if not loop.is_closed() and not self.done():
            loop.call_soon_threadsafe(_cancel_call, task)

    def _on_call(self, task: asyncio.Task[Any]) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self.add_done_callback(callback)
        if not task.cancelled():
            # Looked at here, so that a failure nobody awaits is not reported by asyncio.
            task.exception()

    @property
    def _call(self) -> Any:
        """The call, once the interceptors have returned one."""
        task = self._task
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

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
            self._callbacks.append(callback)
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

    async def _ask(self, name: str, when_cancelled: Any) -> Any:
        """The call's answer, or the error's if the interceptors raised one."""
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
        return await self._ask("initial_metadata", None)

    async def trailing_metadata(self) -> grpc.aio.Metadata | None:
        return await self._ask("trailing_metadata", None)

    async def code(self) -> grpc.StatusCode:
        return await self._ask("code", grpc.StatusCode.CANCELLED)

    async def details(self) -> str:
        return str(await self._ask("details", _LOCALLY_CANCELLED))

    async def debug_error_string(self) -> str | None:
        text: str | None = await self._ask("debug_error_string", "")
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


class _InterceptedUnaryResponse(_Intercepted):
    """Awaiting it gives the response."""

    def __await__(self) -> Generator[Any, None, Any]:
        call = yield from self._task
        return (yield from call.__await__())


class _InterceptedStreamResponse(_Intercepted):
    """Iterating or reading it gives the responses."""

    _iterator: AsyncIterator[Any] | None = None

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
    """Turns what an application writes into the iterator that interceptors get."""

    _END: Final = object()

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (request := await self._queue.get()) is not self._END:
            yield request

    async def put(self, request: Any, call: Any) -> None:
        """Hand over a request, or give up when the call ends meanwhile."""
        put = asyncio.ensure_future(self._queue.put(request))
        ended = asyncio.ensure_future(call.code())
        try:
            await asyncio.wait((put, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            put.cancel()
            ended.cancel()

    async def close(self, call: Any) -> None:
        await self.put(self._END, call)


class _InterceptedStreamRequest(_Intercepted):
    """Requests come from an iterator, or are written."""

    _writes: _Writes | None

    async def _running_call(self) -> Any:
        try:
            call = await asyncio.shield(self._task)
        except (asyncio.CancelledError, grpc.aio.AioRpcError):
            raise asyncio.InvalidStateError(ALREADY_FINISHED) from None
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        return call

    async def write(self, request: Any) -> None:
        if self._writes is None:
            raise grpc.aio.UsageError(MIXED_STYLES)
        call = await self._running_call()
        await self._writes.put(request, call)
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)

    async def done_writing(self) -> None:
        if self._writes is None:
            raise grpc.aio.UsageError(MIXED_STYLES)
        if not self.done():
            await self._writes.close(await self._running_call())


class InterceptedUnaryUnaryCall(_InterceptedUnaryResponse, grpc.aio.UnaryUnaryCall):
    """One request, one response, through interceptors."""

    def __init__(
        self, interceptors: Sequence[Any], start: Start, spec: CallSpec, request: Any
    ) -> None:
        methods = [each.intercept_unary_unary for each in interceptors]
        super().__init__(_run_chain(methods, _wrap_response, start, spec, request))


class InterceptedUnaryStreamCall(_InterceptedStreamResponse, grpc.aio.UnaryStreamCall):
    """One request, many responses, through interceptors."""

    def __init__(
        self, interceptors: Sequence[Any], start: Start, spec: CallSpec, request: Any
    ) -> None:
        methods = [each.intercept_unary_stream for each in interceptors]
        super().__init__(_run_chain(methods, _wrap_unary_stream, start, spec, request))


class InterceptedStreamUnaryCall(
    _InterceptedStreamRequest, _InterceptedUnaryResponse, grpc.aio.StreamUnaryCall
):
    """Many requests, one response, through interceptors."""

    def __init__(
        self,
        interceptors: Sequence[Any],
        start: Start,
        spec: CallSpec,
        requests: RequestIterator | None,
    ) -> None:
        self._writes = _Writes() if requests is None else None
        methods = [each.intercept_stream_unary for each in interceptors]
        super().__init__(_run_chain(methods, _wrap_response, start, spec, self._writes or requests))


class InterceptedStreamStreamCall(
    _InterceptedStreamRequest, _InterceptedStreamResponse, grpc.aio.StreamStreamCall
):
    """Many requests, many responses, through interceptors."""

    def __init__(
        self,
        interceptors: Sequence[Any],
        start: Start,
        spec: CallSpec,
        requests: RequestIterator | None,
    ) -> None:
        self._writes = _Writes() if requests is None else None
        methods = [each.intercept_stream_stream for each in interceptors]
        super().__init__(
            _run_chain(methods, _wrap_stream_stream, start, spec, self._writes or requests)
        )


# What an interceptor may return instead of a call


class _Response(grpc.aio.UnaryUnaryCall):
    """A response that an interceptor made: a call that is over, and went well."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def time_remaining(self) -> float | None:
        return None

    async def initial_metadata(self) -> None:
        return None

    async def trailing_metadata(self) -> None:
        return None

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def debug_error_string(self) -> None:
        return None

    async def wait_for_connection(self) -> None:
        return None

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._response


class _OtherResponses:
    """A call whose responses an interceptor replaced by its own iterator."""

    def __init__(self, call: Any, responses: AsyncIterable[Any]) -> None:
        self._call = call
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses.__aiter__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _wrap_response(result: Any, _last_call: Any) -> Any:
    return result if isinstance(result, grpc.aio.Call) else _Response(result)


def _wrap_unary_stream(result: Any, last_call: Any) -> Any:
    is_call = isinstance(result, grpc.aio.UnaryStreamCall | _OtherResponses)
    return result if is_call else _OtherResponses(last_call or _Response(None), result)


def _wrap_stream_stream(result: Any, last_call: Any) -> Any:
    is_call = isinstance(result, grpc.aio.StreamStreamCall | _OtherResponses)
    return result if is_call else _OtherResponses(last_call or _Response(None), result)
