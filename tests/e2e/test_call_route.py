"""Where calls of generated stubs went, in a mesh on real sockets: both APIs, all kinds of calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless import CallRoute, call_route
from proxyless.base import Locality
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.demo import greeter_pb2, greeter_pb2_grpc
from tests.interop.drop_in import stop_server
from tests.worlds.grpcio_peers import WHERE, NamedBackend, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Locality("", "zone-0", "")


def mesh(backend: NamedBackend) -> Snapshot:
    """An aggregate with one leaf."""
    return Snapshot.of(
        [
            listener("api", [route(cluster="all")]),
            aggregate_cluster("all", ["leaf"]),
            eds_cluster("leaf"),
            endpoints("leaf", [backend.address]),
        ]
    )


class Passing(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Blocking interceptor that changes nothing."""

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: object, request: object
    ) -> object:
        return continuation(details, request)


class Awaiting(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Interceptor that returns the response in place of the call."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: object, request: object
    ) -> object:
        return await (await continuation(details, request))


async def test_asyncio_calls_of_every_kind_have_their_route() -> None:
    async with backends("b") as (backend,), ControlPlane(mesh(backend)) as plane:
        wanted = CallRoute(backend.address, "leaf", HERE, 1, 1)
        bootstrap = plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            unary = channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            assert call_route(unary) == CallRoute(waits_for="resolving")
            await unary
            assert call_route(unary) == wanted
            stream = channel.unary_stream(WHERE)(b"", timeout=PATIENCE_S)
            assert [each async for each in stream] == [b"b"]
            assert call_route(stream) == wanted
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await channel.stream_unary("/test.Mesh/Where")(timeout=0.01)
            assert call_route(failed.value) == wanted
            facts = proxyless.explain_error(failed.value).facts
            assert (facts["address"], facts["attempts"]) == (backend.address, 1)
        async with proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=bootstrap, interceptors=[Awaiting()]
        ) as channel:
            intercepted = channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            assert call_route(intercepted) == CallRoute()
            await intercepted
            assert call_route(intercepted) == wanted


def call_blocking(bootstrap: dict[str, Any]) -> list[CallRoute]:
    """The routes of calls of every kind."""
    with proxyless.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        unary = channel.unary_unary(WHERE)
        _, finished = unary.with_call(b"", timeout=PATIENCE_S)
        future = unary.future(b"", timeout=PATIENCE_S)
        future.result()
        stream = channel.unary_stream(WHERE)(b"", timeout=PATIENCE_S)
        assert list(stream) == [b"b"]
        intercepted = grpc.intercept_channel(channel, Passing()).unary_unary(WHERE)
        _, wrapped = intercepted.with_call(b"", timeout=PATIENCE_S)
        return [call_route(each) for each in (finished, future, stream, wrapped)]


async def test_blocking_calls_of_every_kind_have_their_route() -> None:
    async with backends("b") as (backend,), ControlPlane(mesh(backend)) as plane:
        routes = await asyncio.to_thread(call_blocking, plane.bootstrap())
        assert routes == [CallRoute(backend.address, "leaf", HERE, 1, 1)] * 4


async def test_a_new_config_is_another_generation() -> None:
    async with backends("b", "c") as (first, second), ControlPlane(mesh(first)) as plane:
        async with proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=plane.bootstrap()
        ) as channel:
            before = channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            await before
            plane.set_snapshot(mesh(second))
            while await (after := channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)) != b"c":
                pass
        assert call_route(before) == CallRoute(first.address, "leaf", HERE, 1, 1)
        assert call_route(after).address == second.address
        assert call_route(after).config_generation > 1


async def test_calls_of_unmodified_generated_stubs_have_their_route() -> None:
    class Greeter(greeter_pb2_grpc.GreeterServicer):  # type: ignore[misc]
        async def Greet(self, _request: Any, _context: Any) -> Any:  # noqa: ANN401, N802
            return greeter_pb2.GreetReply()

    server = grpc.aio.server()
    greeter_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with proxyless.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = greeter_pb2_grpc.GreeterStub(channel).Greet(greeter_pb2.GreetRequest())
        await call
        assert str(call_route(call)) == (
            f"address=127.0.0.1:{port} cluster=- locality=- attempts=1 config_generation=1"
        )
    await stop_server(server)
