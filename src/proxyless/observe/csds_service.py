"""CSDS service for grpcio's asyncio and blocking servers.

Specs: A40 (CSDS on an admin port).

It uses generic handlers, so it needs no generated code. The clients of a process may be on several
event loops, and each is dumped on its own loop. A loop that does not respond in time is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent import futures
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from proxyless.observe.csds import RESPONSE, ClientView, encode_status
from proxyless.protos import Proto, message_class
from proxyless.xds.view import XdsClients, dump_clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

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
        "response_serializer": message_class(RESPONSE).SerializeToString,
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

    def fetch(self, request: Proto, context: Untyped) -> Proto:
        if request.node_matchers:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, _MATCHERS_REFUSED)
        answers = _request_views(self._clients_by_loop())
        futures.wait(answers, timeout=ANSWER_TIMEOUT_S)
        return _answer(request, answers)

    def stream(self, requests: Iterator[Proto], context: Untyped) -> Iterator[Proto]:
        for request in requests:
            yield self.fetch(request, context)


class _AioService:
    """Handlers for an asyncio server. Called on its loop."""

    def __init__(self, clients_by_loop: ClientsByLoop) -> None:
        self._clients_by_loop: Final = clients_by_loop

    async def fetch(self, request: Proto, context: Untyped) -> Proto:
        if request.node_matchers:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _MATCHERS_REFUSED)
        answers = _request_views(self._clients_by_loop())
        if answers:
            waited = [asyncio.wrap_future(answer) for answer in answers]
            await asyncio.wait(waited, timeout=ANSWER_TIMEOUT_S)
        return _answer(request, answers)

    async def stream(
        self, requests: AsyncIterator[Proto], context: Untyped
    ) -> AsyncIterator[Proto]:
        async for request in requests:
            yield await self.fetch(request, context)


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
    # The future is cancelled after the timeout.
    if answer.set_running_or_notify_cancel():
        answer.set_result(view_clients(clients, loop.time()))


def view_clients(clients: XdsClients, now_s: float) -> list[ClientView]:
    """State of the clients of one loop. Called on that loop, with its time."""
    epoch_offset_s = datetime.now(UTC).timestamp() - now_s
    return [ClientView(*dump, epoch_offset_s) for dump in dump_clients(clients)]


def _answer(request: Proto, answers: list[_Answer]) -> Proto:
    views: list[ClientView] = []
    for answer in answers:
        if answer.done() and not answer.cancelled():
            views += answer.result()
        else:
            answer.cancel()
            _LOGGER.warning("a loop was silent for %s s, so CSDS leaves it out", ANSWER_TIMEOUT_S)
    return encode_status(views, has_contents=not request.exclude_resource_contents)
