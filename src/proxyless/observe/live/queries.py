"""Query: work for all event loops of a process, and how grpcio's servers run it.

A method of a service returns a `Query`: work for each loop, and a function that makes the response
of the results. The same methods serve blocking and asyncio servers. A loop that does not finish
its work in time is left out and counted. A server runs one query of a service at a time, so many
requests do not take more of a loop than one does.

Work runs in slices, each in a turn of its own, so that the RPCs of a loop run between them. The
next query of a stream starts when the reader has taken the last response: a slow reader skips
snapshots.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent import futures
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from proxyless.channel import LoopStack
    from proxyless.observe.live.views import LoopWork
    from proxyless.protos import Proto

# grpcio's objects have no types.
Untyped: TypeAlias = Any

# Returns the stacks of the process by the loop on which they run.
StacksByLoop: TypeAlias = "Callable[[], Mapping[asyncio.AbstractEventLoop, LoopStack]]"

# A loop that is busy for longer is stuck.
ANSWER_TIMEOUT_S: Final = 2.0

_LOGGER: Final = logging.getLogger("proxyless.observe")


class RefusedRequestError(Exception):
    """A request that cannot be served: its status code and details."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code: Final = code
        self.details: Final = details


@frozen
class Query:
    """Work for each loop, and the function that makes serialized messages of its results.

    `finish` is called with the results, and the number of loops that are left out. It may raise
    `RefusedRequestError`.
    """

    work: LoopWork[Any]
    finish: Callable[[list[Any], int], list[bytes]]


@frozen
class Pause:
    """A delay between two queries of a stream."""

    delay_s: float


# A unary method, or one with a stream of responses.
UnaryMethod: TypeAlias = "Callable[[Proto], Query]"
StreamMethod: TypeAlias = "Callable[[Proto], Iterator[Query | Pause]]"


@frozen
class ServiceMethods:
    """The methods of a service by name, each with the class of its request."""

    name: str
    unary: Mapping[str, tuple[type[Proto], UnaryMethod]]
    streaming: Mapping[str, tuple[type[Proto], StreamMethod]]


def add_service(server: Untyped, methods: ServiceMethods, stacks: StacksByLoop) -> None:
    """Add a service to a grpcio server of either kind that has not been started."""
    is_async = isinstance(server, grpc.aio.Server)
    runner = _AioRunner(stacks) if is_async else _SyncRunner(stacks)
    handlers = {}
    for name, (request, unary) in methods.unary.items():
        handlers[name] = grpc.unary_unary_rpc_method_handler(
            runner.unary(unary), request_deserializer=request.FromString, response_serializer=None
        )
    for name, (request, streaming) in methods.streaming.items():
        handlers[name] = grpc.unary_stream_rpc_method_handler(
            runner.stream(streaming),
            request_deserializer=request.FromString,
            response_serializer=None,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.name, handlers),))


class _SyncRunner:
    """Runs queries in the threads of a blocking server, one at a time."""

    def __init__(self, stacks: StacksByLoop) -> None:
        self._stacks: Final = stacks
        self._turn: Final = Lock()

    def unary(self, method: UnaryMethod) -> Callable[[Proto, Untyped], bytes]:
        def handle(request: Proto, context: Untyped) -> bytes:
            try:
                return self._run(method(request))[0]
            except RefusedRequestError as refused:
                context.abort(refused.code, refused.details)
                raise

        return handle

    def stream(self, method: StreamMethod) -> Callable[[Proto, Untyped], Iterator[bytes]]:
        def handle(request: Proto, context: Untyped) -> Iterator[bytes]:
            ended = Event()
            # False if the RPC has ended already.
            if not context.add_callback(ended.set):
                return
            steps = method(request)
            try:
                for step in steps:
                    if isinstance(step, Query):
                        yield from self._run(step)
                    elif ended.wait(step.delay_s):
                        return
            except RefusedRequestError as refused:
                context.abort(refused.code, refused.details)
            finally:
                _close(steps)

        return handle

    def _run(self, query: Query) -> list[bytes]:
        with self._turn:
            answers = start_work(self._stacks(), query.work)
            futures.wait(answers, timeout=ANSWER_TIMEOUT_S)
            return query.finish(*take_results(answers))


class _AioRunner:
    """Runs queries on the loop of an asyncio server, one at a time."""

    def __init__(self, stacks: StacksByLoop) -> None:
        self._stacks: Final = stacks
        self._turn: Final = asyncio.Lock()

    def unary(self, method: UnaryMethod) -> Callable[[Proto, Untyped], Any]:
        async def handle(request: Proto, context: Untyped) -> bytes:
            try:
                return (await self._run(method(request)))[0]
            except RefusedRequestError as refused:
                await context.abort(refused.code, refused.details)
                raise

        return handle

    def stream(self, method: StreamMethod) -> Callable[[Proto, Untyped], Any]:
        async def handle(request: Proto, context: Untyped) -> AsyncIterator[bytes]:
            steps = method(request)
            try:
                for step in steps:
                    if isinstance(step, Query):
                        for message in await self._run(step):
                            yield message
                    else:
                        await _pause(step.delay_s)
            except RefusedRequestError as refused:
                await context.abort(refused.code, refused.details)
            finally:
                _close(steps)

        return handle

    async def _run(self, query: Query) -> list[bytes]:
        async with self._turn:
            answers = start_work(self._stacks(), query.work)
            if answers:
                waited = [asyncio.wrap_future(answer) for answer in answers]
                await asyncio.wait(waited, timeout=ANSWER_TIMEOUT_S)
            return query.finish(*take_results(answers))


def _close(steps: Iterator[Query | Pause]) -> None:
    """Run the `finally` of a generator."""
    close = getattr(steps, "close", None)
    if close is not None:
        close()


async def _pause(delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(delay_s, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


_Answer: TypeAlias = "futures.Future[Any]"


def start_work(
    stacks: Mapping[asyncio.AbstractEventLoop, LoopStack], work: LoopWork[Any]
) -> list[_Answer]:
    """Schedule the work on each loop that is not closed."""
    answers: list[_Answer] = []
    for loop, stack in stacks.items():
        answer: _Answer = futures.Future()
        try:
            loop.call_soon_threadsafe(_run_slice, answer, None, work, stack, loop)
        except RuntimeError:  # The loop is closed.
            continue
        answers.append(answer)
    return answers


def _run_slice(
    answer: _Answer,
    slices: Any,  # noqa: ANN401 - a generator; None in the first turn
    work: LoopWork[Any],
    stack: LoopStack,
    loop: asyncio.AbstractEventLoop,
) -> None:
    # It is cancelled after the timeout.
    if answer.cancelled():
        return
    try:
        slices = slices or work(stack)
        next(slices)
    except StopIteration as end:
        if answer.set_running_or_notify_cancel():
            answer.set_result(end.value)
    except BaseException as error:
        if answer.set_running_or_notify_cancel():
            answer.set_exception(error)
    else:
        loop.call_soon(_run_slice, answer, slices, work, stack, loop)


def take_results(answers: list[_Answer]) -> tuple[list[Any], int]:
    """The results, and the number of loops without one. Raises the exception of any."""
    results: list[Any] = []
    silent = 0
    for answer in answers:
        if answer.cancel():
            silent += 1
            _LOGGER.warning("a loop was silent for %s s, so it is left out", ANSWER_TIMEOUT_S)
        elif not answer.cancelled():
            results.append(answer.result())
    return results, silent
