"""CSDS service for grpcio's asyncio and blocking servers.

Specs: A40 (CSDS on an admin port).

It uses generic handlers, so it needs no generated code. The clients of a process may be on several
event loops, and each is dumped on its own loop. A loop that does not respond in time is left out.

Large dumps and many requests do not block a loop: a dump is done in slices of bounded work, one
dump at a time, and requests that arrive before it has begun share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent import futures
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio

from proxyless.observe.csds import SLICE_RESOURCES, ClientView, encode_in_slices
from proxyless.protos import Proto, message_class
from proxyless.runtime.work_queue import finish
from proxyless.xds.view import XdsClients, dump_clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from proxyless.xds.view import ResourceDump

T = TypeVar("T")

# grpcio's objects have no types.
Untyped: TypeAlias = Any

# Returns the xDS clients of the process by the loop on which they run.
ClientsByLoop: TypeAlias = Callable[[], Mapping[asyncio.AbstractEventLoop, XdsClients]]

CSDS_SERVICE: Final = "envoy.service.status.v3.ClientStatusDiscoveryService"
REQUEST: Final = "envoy.service.status.v3.ClientStatusRequest"

# A loop that is busy for longer is stuck, or belongs to the parent of a fork.
ANSWER_TIMEOUT_S: Final = 2.0

_MATCHERS_REFUSED: Final = "node_matchers are not supported, wanted none"
_LOGGER: Final = logging.getLogger("proxyless.observe")


def add_csds_servicer(server: Untyped, clients_by_loop: ClientsByLoop) -> None:
    """Add the service to a grpcio server of either kind that has not been started."""
    is_async = isinstance(server, grpc.aio.Server)
    service = _AioService(clients_by_loop) if is_async else _SyncService(clients_by_loop)
    codec = {
        "request_deserializer": message_class(REQUEST).FromString,
        "response_serializer": None,  # Responses are serialized already.
    }
    handlers = {
        "FetchClientStatus": grpc.unary_unary_rpc_method_handler(service.fetch, **codec),
        "StreamClientStatus": grpc.stream_stream_rpc_method_handler(service.stream, **codec),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(CSDS_SERVICE, handlers),))


class _SyncService:
    """Handlers for a blocking server. Called in its threads."""

    def __init__(self, clients_by_loop: ClientsByLoop) -> None:
        self._clients_by_loop: Final = clients_by_loop
        self._turn: Final = Lock()
        # Dumps that have not begun, by whether they have contents.
        self._lock: Final = Lock()
        self._waiting: dict[bool, futures.Future[bytes]] = {}

    def fetch(self, request: Proto, context: Untyped) -> bytes:
        if request.node_matchers:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, _MATCHERS_REFUSED)
        has_contents = not request.exclude_resource_contents
        with self._lock:
            shared = self._waiting.get(has_contents)
            response = self._waiting.setdefault(has_contents, futures.Future())
        if shared is None:
            with self._turn:
                with self._lock:
                    del self._waiting[has_contents]
                self._dump_into(response, has_contents)
        return response.result()

    def stream(self, requests: Iterator[Proto], context: Untyped) -> Iterator[bytes]:
        for request in requests:
            yield self.fetch(request, context)

    def _dump_into(self, response: futures.Future[bytes], has_contents: bool) -> None:
        try:
            answers = _request_views(self._clients_by_loop())
            futures.wait(answers, timeout=ANSWER_TIMEOUT_S)
            slices = encode_in_slices(_take_views(answers), has_contents=has_contents)
            response.set_result(finish(slices))
        except BaseException as error:  # All requests that share it fail.
            response.set_exception(error)


class _AioService:
    """Handlers for an asyncio server. Called on its loop."""

    def __init__(self, clients_by_loop: ClientsByLoop) -> None:
        self._clients_by_loop: Final = clients_by_loop
        self._turn: Final = asyncio.Lock()
        # Dumps that have not begun, by whether they have contents.
        self._waiting: dict[bool, asyncio.Future[bytes]] = {}

    async def fetch(self, request: Proto, context: Untyped) -> bytes:
        if request.node_matchers:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _MATCHERS_REFUSED)
        has_contents = not request.exclude_resource_contents
        response = self._waiting.get(has_contents)
        if response is None:
            response = asyncio.ensure_future(self._dump(has_contents))
            self._waiting[has_contents] = response
        # Others may share it, so the end of this RPC does not cancel it.
        return await asyncio.shield(response)

    async def stream(
        self, requests: AsyncIterator[Proto], context: Untyped
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self.fetch(request, context)

    async def _dump(self, has_contents: bool) -> bytes:
        async with self._turn:
            del self._waiting[has_contents]
            answers = _request_views(self._clients_by_loop())
            if answers:
                waited = [asyncio.wrap_future(answer) for answer in answers]
                await asyncio.wait(waited, timeout=ANSWER_TIMEOUT_S)
            slices = encode_in_slices(_take_views(answers), has_contents=has_contents)
            return await _run_in_turns(slices)


_Answer: TypeAlias = "futures.Future[list[ClientView]]"


def _request_views(
    clients_by_loop: Mapping[asyncio.AbstractEventLoop, XdsClients],
) -> list[_Answer]:
    """Schedule a dump of the clients on each loop that is not closed."""
    answers: list[_Answer] = []
    for loop, clients in clients_by_loop.items():
        answer: _Answer = futures.Future()
        try:
            loop.call_soon_threadsafe(_view_into, answer, clients, loop)
        except RuntimeError:  # The loop is closed.
            continue
        answers.append(answer)
    return answers


def _view_into(answer: _Answer, clients: XdsClients, loop: asyncio.AbstractEventLoop) -> None:
    def on_views(views: list[ClientView]) -> None:
        # The future is cancelled after the timeout.
        if answer.set_running_or_notify_cancel():
            answer.set_result(views)

    slices = view_in_slices(clients, loop.time())

    def run_slice() -> None:
        try:
            next(slices)
        except StopIteration as end:
            on_views(end.value)
        else:
            loop.call_soon(run_slice)

    if not answer.cancelled():
        run_slice()


async def _run_in_turns(slices: Generator[None, None, T]) -> T:
    """The result of work in slices, each in a turn of the loop."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def view_clients(clients: XdsClients, now_s: float) -> list[ClientView]:
    """State of the clients of one loop. Called on that loop, with its time."""
    return finish(view_in_slices(clients, now_s))


def view_in_slices(clients: XdsClients, now_s: float) -> Generator[None, None, list[ClientView]]:
    """Like `view_clients`. Yields between slices, which may run in different turns of the loop."""
    epoch_offset_s = datetime.now(UTC).timestamp() - now_s
    views: list[ClientView] = []
    count = 0
    for scope, node, dumps in dump_clients(clients):
        resources: list[ResourceDump] = []
        for dump in dumps:
            resources.append(dump)
            count += 1
            if count % SLICE_RESOURCES == 0:
                yield
        views.append(ClientView(scope, node, resources, epoch_offset_s))
    return views


def _take_views(answers: list[_Answer]) -> list[ClientView]:
    views: list[ClientView] = []
    for answer in answers:
        if answer.done() and not answer.cancelled():
            views += answer.result()
        else:
            answer.cancel()
            _LOGGER.warning("a loop was silent for %s s, so CSDS leaves it out", ANSWER_TIMEOUT_S)
    return views
