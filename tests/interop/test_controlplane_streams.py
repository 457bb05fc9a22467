"""ADS streams of our control plane: errors, faults, restarts.

The client is a bare stream on grpcio's channel, so that it can send invalid requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from proxyless.base import Trace, hits
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    ControlPlane,
    ServiceOptions,
    Snapshot,
    endpoints,
    simple_mesh,
)
from proxyless.controlplane.ads import REQUEST_BYTES_MAX
from proxyless.protos import Proto, message_class
from tests.certificates import CertificateAuthority
from tests.interop.drop_in import Untyped
from tests.worlds.transports import PATIENCE_S

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
REQUEST = "envoy.service.discovery.v3.DiscoveryRequest"
RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
MESH = simple_mesh("api", {"a": ["127.0.0.1:1"]})


class Stream:
    """One ADS stream."""

    def __init__(self, call: Untyped) -> None:
        self.call = call

    async def ask(self, type_url: str, *names: str, nonce: str = "") -> None:
        request = message_class(REQUEST)(
            type_url=type_url, resource_names=names, response_nonce=nonce
        )
        request.node.id = "node-1"
        await self.call.write(request)

    async def read(self) -> Proto:
        async with asyncio.timeout(PATIENCE_S):
            response = await self.call.read()
        assert response is not grpc.aio.EOF, await self.call.details()
        return response

    async def close(self) -> None:
        """End it as a client should, unless it has ended: a cancelled call leaves a task behind."""
        if not self.call.done():
            await self.call.done_writing()
            await self.outcome()

    async def outcome(self) -> tuple[grpc.StatusCode, str]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.call.code(), await self.call.details()


def open_stream(channel: Untyped, method: str = "StreamAggregatedResources") -> Stream:
    multi_callable = channel.stream_stream(
        ADS + method,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=message_class(RESPONSE).FromString,
    )
    return Stream(multi_callable(timeout=PATIENCE_S))


@asynccontextmanager
async def stream_to(control_plane: ControlPlane) -> AsyncIterator[Stream]:
    async with grpc.aio.insecure_channel(control_plane.address) as channel:
        stream = open_stream(channel)
        yield stream
        await stream.close()


@pytest.fixture
async def control_plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(MESH) as control_plane:
        yield control_plane


# Conversations


async def test_stream_gets_resources_and_their_changes(control_plane: ControlPlane) -> None:
    async with stream_to(control_plane) as stream:
        await stream.ask(ENDPOINTS, "a")
        first = await stream.read()
        await stream.ask(ENDPOINTS, "a", nonce=first.nonce)
        await control_plane.wait_for_ack(ENDPOINTS, "1", node_id="node-1")
        control_plane.set_snapshot(MESH.with_(endpoints("a", [])))
        assert (await stream.read()).version_info == "2"
        with pytest.raises(TimeoutError, match="waited 0 s for an ACK of endpoints version '2'"):
            await control_plane.wait_for_ack(ENDPOINTS, timeout_s=0)


async def test_a_stream_that_the_client_ends_ends_well(control_plane: ControlPlane) -> None:
    async with stream_to(control_plane) as stream:
        await stream.ask(CLUSTER)
        await stream.read()
        await stream.call.done_writing()
        assert await stream.outcome() == (grpc.StatusCode.OK, "")
        await control_plane.wait_for_streams(0)


async def test_a_delay_holds_each_response_back(control_plane: ControlPlane) -> None:
    control_plane.delay(0.05)
    loop = asyncio.get_running_loop()
    async with stream_to(control_plane) as stream:
        started = loop.time()
        await stream.ask(CLUSTER)
        await stream.ask(ENDPOINTS, "a")
        await stream.read()
        await stream.read()
        assert loop.time() - started >= 0.099


async def test_streams_are_traced() -> None:
    trace = Trace()
    async with ControlPlane(MESH, options=ServiceOptions(trace=trace)) as control_plane:
        with hits(trace, "controlplane.stream_opened"), hits(trace, "controlplane.stream_closed"):
            async with stream_to(control_plane) as stream:
                await stream.ask(CLUSTER)
                await stream.read()
            await control_plane.wait_for_streams(0)


async def test_load_reports_are_kept_and_answered_with_an_interval() -> None:
    kind = "envoy.service.load_stats.v3.LoadStats"
    options = ServiceOptions(load_report_interval_s=2.5)
    async with (
        ControlPlane(MESH, options=options) as control_plane,
        grpc.aio.insecure_channel(control_plane.address) as channel,
    ):
        call = channel.stream_stream(
            LRS,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(f"{kind}Response").FromString,
        )(timeout=PATIENCE_S)
        await call.write(message_class(f"{kind}Request")())
        answer = await call.read()
        assert answer.send_all_clusters
        assert answer.load_reporting_interval.ToMilliseconds() == 2500
        report = message_class(f"{kind}Request")()
        report.cluster_stats.add(cluster_name="a")
        await call.write(report)
        assert await control_plane.wait_for_load_report() == report
        await Stream(call).close()


# Refusals


async def test_a_request_without_a_type_ends_the_stream(control_plane: ControlPlane) -> None:
    async with stream_to(control_plane) as stream:
        await stream.ask("")
        assert await stream.outcome() == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "request has no type_url",
        )


async def test_a_request_that_is_too_large_ends_the_stream(control_plane: ControlPlane) -> None:
    async with stream_to(control_plane) as stream:
        await stream.ask(CLUSTER, "n" * (REQUEST_BYTES_MAX + 1))
        assert (await stream.outcome())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_broken_stream_ends_with_unavailable(control_plane: ControlPlane) -> None:
    async with stream_to(control_plane) as stream:
        await stream.ask(CLUSTER)
        await stream.read()
        control_plane.break_streams()
        assert await stream.outcome() == (grpc.StatusCode.UNAVAILABLE, "broken on purpose")


# Addresses and restarts


async def test_a_port_that_is_taken_is_an_error(control_plane: ControlPlane) -> None:
    with pytest.raises(OSError, match="cannot listen at"):
        await ControlPlane(MESH, control_plane.address).start()


async def test_control_plane_is_started_once_and_stop_is_idempotent() -> None:
    control_plane = ControlPlane(MESH)
    assert control_plane.port == 0
    await control_plane.stop()
    await control_plane.start()
    with pytest.raises(RuntimeError, match="running already"):
        await control_plane.start()
    await control_plane.stop()
    await control_plane.stop()


async def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    async with (
        ControlPlane(MESH, f"unix:{tmp_path / 's'}") as control_plane,
        stream_to(control_plane) as stream,
    ):
        await stream.ask(CLUSTER)
        assert (await stream.read()).type_url == CLUSTER
        assert control_plane.bootstrap()["xds_servers"][0]["server_uri"] == control_plane.address


async def test_server_with_tls_credentials_serves_resources(
    authority: CertificateAuthority,
) -> None:
    certificate, key = authority.issue(["127.0.0.1"])
    options = ServiceOptions(credentials=grpc.ssl_server_credentials([(key, certificate)]))
    async with ControlPlane(MESH, options=options) as control_plane:
        trusting = grpc.ssl_channel_credentials(authority.certificate_pem)
        async with grpc.aio.secure_channel(control_plane.address, trusting) as channel:
            stream = open_stream(channel)
            await stream.ask(CLUSTER)
            assert (await stream.read()).type_url == CLUSTER
            await stream.close()


async def test_a_source_per_node_has_no_snapshot_for_all() -> None:
    control_plane = ControlPlane(lambda node: Snapshot.of((), version=node.id))
    with pytest.raises(RuntimeError, match="a snapshot per node"):
        _ = control_plane.snapshot
