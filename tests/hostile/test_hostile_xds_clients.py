"""Clients of the embedded control plane that would fill its memory: load reports and streams.

NACKs, nodes and names are in `test_hostile_texts`.
"""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from proxyless.controlplane import CLUSTER, ControlPlane, service, simple_mesh
from proxyless.controlplane.service import LOAD_REPORT_BYTES_MAX, LOAD_REPORTS_MAX
from proxyless.protos import Proto, message_class

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
REPORT = "envoy.service.load_stats.v3.LoadStatsRequest"
REQUEST = "envoy.service.discovery.v3.DiscoveryRequest"


def report(size_bytes: int) -> Proto:
    made = message_class(REPORT)()
    made.cluster_stats.add(cluster_name="c" * size_bytes)
    return made


@pytest.fixture
def control_plane() -> ControlPlane:
    return ControlPlane(simple_mesh("api", {"a": ["127.0.0.1:1"]}))


async def test_kept_load_reports_are_bounded(control_plane: ControlPlane) -> None:
    """Unbounded, 1,000 reports of 4 MB would be kept."""
    async with control_plane, grpc.aio.insecure_channel(control_plane.address) as channel:
        stream = channel.stream_stream(LRS)()
        for number in range(20):
            size_bytes = 1_000_000 if number < 10 else 3_000_000
            await stream.write(report(size_bytes).SerializeToString())
        # Larger than all that may be kept, it is kept alone.
        await stream.write(report(4_190_000).SerializeToString())
        await stream.write(report(LOAD_REPORT_BYTES_MAX - 100).SerializeToString())
        for _ in range(LOAD_REPORTS_MAX + 10):
            await stream.write(report(1).SerializeToString())
        await stream.done_writing()
        async for _ in stream:
            pass
        kept = control_plane.load_reports
        assert len(kept) <= LOAD_REPORTS_MAX
        assert sum(each.ByteSize() for each in kept) <= LOAD_REPORT_BYTES_MAX
        # The application may take reports away.
        kept.clear()
        stream = channel.stream_stream(LRS)()
        for size_bytes in (2_000_000, 2_000_000, 1_000_000):
            await stream.write(report(size_bytes).SerializeToString())
        await stream.done_writing()
        async for _ in stream:
            pass
        assert [each.ByteSize() > 1_500_000 for each in kept] == [True, False]


async def test_number_of_streams_is_bounded(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STREAMS_MAX", 3)
    async with control_plane, grpc.aio.insecure_channel(control_plane.address) as channel:
        streams = [channel.stream_stream(ADS)() for _ in range(3)]
        request = message_class(REQUEST)(type_url=CLUSTER, node={"id": "n"}).SerializeToString()
        for stream in streams:
            await stream.write(request)
            assert await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_stream(ADS)().read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        # The others stay open, and one that ends makes room.
        streams[0].cancel()
        await control_plane.wait_for_streams(2)
        again = channel.stream_stream(ADS)()
        await again.write(request)
        assert await again.read()
        for stream in (*streams[1:], again):
            stream.cancel()
