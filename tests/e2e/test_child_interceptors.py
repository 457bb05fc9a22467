"""Interceptors of the channel to the control plane (A110), on real sockets."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.transports import PATIENCE_S

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
UNARY = "/shop.Cart/Add"
Untyped = Any
REQUEST: ContextVar[str] = ContextVar("REQUEST", default="none")


class RecordingInterceptor(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Records methods, and the number of requests."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.requests = 0
        self.contexts: list[str] = []

    async def intercept_stream_stream(
        self,
        continuation: Untyped,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Untyped,
    ) -> Untyped:
        method = client_call_details.method
        self.contexts.append(REQUEST.get())
        self.methods.append(method if isinstance(method, str) else method.decode())

        async def count() -> Untyped:
            async for request in request_iterator:
                self.requests += 1
                yield request

        return await continuation(client_call_details, count())


class BrokenInterceptor(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Raises."""

    async def intercept_stream_stream(self, *_: Untyped) -> Untyped:
        raise LookupError("no token")


def mesh(backend: NamedBackend) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", [route(cluster=backend.name)]),
            eds_cluster(backend.name),
            endpoints(backend.name, [backend.address]),
        ]
    )


@pytest.mark.spec("A110-05")
async def test_interceptors_get_the_streams_to_the_control_plane_and_no_other_rpcs() -> None:
    interceptor = RecordingInterceptor()
    registries = proxyless.Registries().extended(child_interceptors=[interceptor])
    async with (
        backends("one", "two") as (one, two),
        ControlPlane(mesh(one)) as plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=plane.bootstrap(), registries=registries
        ) as channel,
    ):
        unary = channel.unary_unary(UNARY)
        assert await unary(b"", timeout=PATIENCE_S) == b"one"
        plane.set_snapshot(mesh(two))
        async with asyncio.timeout(PATIENCE_S):
            while await unary(b"", timeout=PATIENCE_S) != b"two":
                pass
    assert interceptor.methods == [ADS]
    # At least a subscription and an ACK of each of three types.
    assert interceptor.requests >= 6


async def test_interceptors_do_not_run_in_the_context_of_the_first_rpc() -> None:
    interceptor = RecordingInterceptor()
    registries = proxyless.Registries().extended(child_interceptors=[interceptor])
    REQUEST.set("first")
    async with (
        backends("one") as (one,),
        ControlPlane(mesh(one)) as plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=plane.bootstrap(), registries=registries
        ) as channel,
    ):
        assert await channel.unary_unary(UNARY)(b"", timeout=PATIENCE_S) == b"one"
    assert interceptor.contexts == ["none"]


@pytest.mark.spec("A110-05")
async def test_rpcs_have_the_error_of_an_interceptor_that_raises() -> None:
    registries = proxyless.Registries().extended(child_interceptors=[BrokenInterceptor()])
    async with (
        backends("one") as (one,),
        ControlPlane(mesh(one)) as plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=plane.bootstrap(), registries=registries
        ) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="no token") as raised:
            await channel.unary_unary(UNARY)(b"", timeout=PATIENCE_S)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_an_interceptor_of_no_known_kind_is_rejected_when_the_channel_is_created() -> None:
    registries = proxyless.Registries().extended(child_interceptors=[object()])
    with pytest.raises(ValueError, match="is of no known kind"):
        proxyless.aio.insecure_channel("xds:///api", registries=registries)
