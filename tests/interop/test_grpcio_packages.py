"""Client stubs of grpcio's own packages on our channel."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from tests.interop.drop_in import STACKS, Untyped, collect, outcome_of, stop_server
from tests.worlds.transports import PATIENCE_S

GREETER = "proxyless.test.helloworld.Greeter"
STATUSES = health_pb2.HealthCheckResponse


class Services:
    """A server with health and reflection."""

    def __init__(self) -> None:
        self.health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        names = (GREETER, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await stop_server(self._server)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    services = Services()
    await services.start()
    yield services
    await services.stop()


@pytest.fixture(params=STACKS)
async def channel(request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Untyped]:
    """A channel of each stack."""
    async with STACKS[request.param].insecure_channel(services.target) as channel:
        yield channel


# Health


async def test_health_is_checked(services: Services, channel: Untyped) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    await services.health.set(GREETER, STATUSES.NOT_SERVING)
    checks = [
        await outcome_of(stub.Check(health_pb2.HealthCheckRequest(service=name)))
        for name in ("", GREETER, "no.Such")
    ]
    assert checks[0] == ("returned", STATUSES(status=STATUSES.SERVING))
    assert checks[1] == ("returned", STATUSES(status=STATUSES.NOT_SERVING))
    assert checks[2][:2] == ("AioRpcError", grpc.StatusCode.NOT_FOUND)


async def test_health_is_watched(services: Services, channel: Untyped) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=GREETER), timeout=PATIENCE_S)
    seen = [(await watch.read()).status]
    for status in (STATUSES.SERVING, STATUSES.NOT_SERVING, STATUSES.SERVING):
        await services.health.set(GREETER, status)
        seen.append((await watch.read()).status)
    watch.cancel()
    assert seen == [
        STATUSES.SERVICE_UNKNOWN,
        STATUSES.SERVING,
        STATUSES.NOT_SERVING,
        STATUSES.SERVING,
    ]
    assert await outcome_of(watch.read()) == ("CancelledError",)


# Reflection


async def test_services_are_listed(channel: Untyped) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    [response] = await collect(stub.ServerReflectionInfo(iter([request])))
    names = {service.name for service in response.list_services_response.service}
    assert names == {GREETER, health.SERVICE_NAME, reflection.SERVICE_NAME}


async def test_reflection_requests_are_answered_in_order(channel: Untyped) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    info = stub.ServerReflectionInfo()
    async with asyncio.timeout(PATIENCE_S):
        request = reflection_pb2.ServerReflectionRequest
        await info.write(request(file_containing_symbol=health.SERVICE_NAME))
        found = await info.read()
        await info.write(request(file_by_filename="no/such.proto"))
        missing = await info.read()
        await info.done_writing()
        assert await info.read() is grpc.aio.EOF
    assert len(found.file_descriptor_response.file_descriptor_proto) == 1
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert await info.code() is grpc.StatusCode.OK
