"""Backends report their load, with RPCs and out of band, and clients follow: on real sockets.

The backends are grpcio's servers, with grpcio's own reports.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

import proxyless.aio
from proxyless.front import AioChannel
from proxyless.protos import message_class
from tests.worlds.transports import until

ON_BOTH_LOOPS = True

REPORT = message_class("xds.data.orca.v3.OrcaLoadReport")
REQUEST = message_class("xds.service.orca.v3.OrcaLoadReportRequest")
# No blackout period.
QUICK = {"blackoutPeriod": "0s", "weightUpdatePeriod": "0.1s"}


class Backend:
    """Answers with its name, and reports a load."""

    def __init__(self, name: str, *, reports_out_of_band: bool) -> None:
        self.name = name
        self._reports_out_of_band = reports_out_of_band
        self.address = "127.0.0.1:0"
        # Weights in per-call and out-of-band reports; None: no report.
        self.weight_with_rpcs: float | None = None
        self.weight_out_of_band: float | None = None
        # Counts of out-of-band streams.
        self.intervals_s: list[float] = []
        # The open ones.
        self.live_s: list[float] = []
        self._changed = threading.Condition()
        self._server: Any = None

    def start(self) -> None:
        """Listen, the second time at the same address."""
        self._server = grpc.server(ThreadPoolExecutor(8))
        services = {"test.Service": {"Who": grpc.unary_unary_rpc_method_handler(self._who)}}
        if self._reports_out_of_band:
            services["xds.service.orca.v3.OpenRcaService"] = {
                "StreamCoreMetrics": grpc.unary_stream_rpc_method_handler(
                    self._report,
                    request_deserializer=REQUEST.FromString,
                    response_serializer=REPORT.SerializeToString,
                )
            }
        self._server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(name, methods)
                for name, methods in services.items()
            )
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port(self.address)}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def weigh_out_of_band(self, weight: float) -> None:
        with self._changed:
            self.weight_out_of_band = weight
            self._changed.notify_all()

    # Handlers, on threads of the server

    def _who(self, _: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpc has no types
        if self.weight_with_rpcs is not None:
            report = encode(self.weight_with_rpcs).SerializeToString()
            context.set_trailing_metadata((("endpoint-load-metrics-bin", report),))
        return self.name.encode()

    def _report(self, request: Any, context: Any) -> Iterator[object]:  # noqa: ANN401
        interval = request.report_interval
        interval_s = interval.seconds + interval.nanos / 1e9
        with self._changed:
            self.intervals_s.append(interval_s)
            self.live_s.append(interval_s)
        # False if it was cancelled before this thread had its turn.
        if not context.add_callback(partial(self._on_stream_end, interval_s)):
            self._on_stream_end(interval_s)
        sent = None
        while context.is_active():
            with self._changed:
                while context.is_active() and self.weight_out_of_band == sent:
                    self._changed.wait()
                sent = self.weight_out_of_band
            if sent is not None:
                yield encode(sent)

    def _on_stream_end(self, interval_s: float) -> None:
        with self._changed:
            self.live_s.remove(interval_s)
            self._changed.notify_all()


def encode(weight: float) -> Any:  # noqa: ANN401 - a class made at run time
    return REPORT(rps_fractional=weight, cpu_utilization=1.0)


class Mesh:
    """Three backends, and channels to all of them."""

    def __init__(self, *, reports_out_of_band: bool) -> None:
        self.backends = [Backend(name, reports_out_of_band=reports_out_of_band) for name in "abc"]
        for backend in self.backends:
            backend.start()
        self._target = f"ipv4:{','.join(backend.address for backend in self.backends)}"

    @asynccontextmanager
    async def channel(self, **config: object) -> AsyncIterator[AioChannel]:
        policy = {"weighted_round_robin": {**QUICK, **config}}
        options = [
            ("grpc.service_config", json.dumps({"loadBalancingConfig": [policy]})),
            ("grpc.initial_reconnect_backoff_ms", 100),
        ]
        async with proxyless.aio.insecure_channel(self._target, options) as channel:
            await channel.channel_ready()
            yield channel

    @property
    def streams(self) -> list[int]:
        return [len(each.live_s) for each in self.backends]


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    mesh = Mesh(reports_out_of_band=True)
    yield mesh
    for backend in mesh.backends:
        backend.stop()


async def shares(channel: AioChannel, rpcs: int = 6) -> Counter[str]:
    """The backends that answer this many RPCs, sent one after the other."""
    who = channel.unary_unary("/test.Service/Who")
    return Counter([(await who(b"")).decode() for _ in range(rpcs)])


async def expect_shares(channel: AioChannel, *weights: int) -> None:
    """Wait until RPCs are shared in this way."""
    # A Counter returns 0 for missing keys.
    wanted = Counter(dict(zip("abc", weights, strict=True)))
    seen: Sequence[Counter[str]] = []
    for _ in range(2_000):
        seen = [*seen[-9:], await shares(channel, sum(weights))]
        if seen[-3:] == [wanted] * 3:
            return
    raise AssertionError(f"RPCs are shared {seen}, wanted {wanted}")


@pytest.mark.rerun("weights expire and are computed on real time")
async def test_rpcs_follow_per_call_reports(mesh: Mesh) -> None:
    for weight, backend in enumerate(mesh.backends, start=1):
        backend.weight_with_rpcs = 100.0 * weight
    async with mesh.channel() as channel:
        await expect_shares(channel, 1, 2, 3)
        for weight, backend in zip((3, 1, 1), mesh.backends, strict=True):
            backend.weight_with_rpcs = 1e-3 * weight
        await expect_shares(channel, 3, 1, 1)
        assert mesh.streams == [0, 0, 0]


@pytest.mark.rerun("weights expire and are computed on real time")
async def test_rpcs_follow_out_of_band_reports(mesh: Mesh) -> None:
    for weight, backend in enumerate(mesh.backends, start=1):
        backend.weigh_out_of_band(weight)
        backend.weight_with_rpcs = 4 - weight
    async with mesh.channel(enableOobLoadReport=True, oobReportingPeriod="2.5s") as channel:
        await expect_shares(channel, 1, 2, 3)
        mesh.backends[0].weigh_out_of_band(4)
        await expect_shares(channel, 4, 2, 3)
        assert [each.intervals_s for each in mesh.backends] == [[2.5]] * 3
        assert mesh.streams == [1, 1, 1]
    await until(lambda: mesh.streams == [0, 0, 0], "the streams to end with the channel")


@pytest.mark.rerun("weights expire and are computed on real time")
async def test_out_of_band_stream_is_opened_again_when_a_backend_returns(mesh: Mesh) -> None:
    for weight, backend in enumerate(mesh.backends, start=1):
        backend.weigh_out_of_band(weight)
    async with mesh.channel(enableOobLoadReport=True) as channel:
        await expect_shares(channel, 1, 2, 3)
        lost = mesh.backends[2]
        lost.stop()
        await until(lambda: not lost.live_s, "the stream to end with the server")
        await expect_shares(channel, 1, 2, 0)
        lost.weigh_out_of_band(5)
        lost.start()
        await expect_shares(channel, 1, 2, 5)
        assert lost.intervals_s == [10, 10]


async def test_channels_that_share_a_connection_share_the_stream(mesh: Mesh) -> None:
    async with AsyncExitStack() as stack:
        for period in ("10s", "3s", "7s"):
            await stack.enter_async_context(
                mesh.channel(enableOobLoadReport=True, oobReportingPeriod=period)
            )
        await until(
            lambda: [each.live_s for each in mesh.backends] == [[3]] * 3,
            "one stream for each backend, with the shortest interval",
        )
    await until(lambda: mesh.streams == [0, 0, 0], "the streams to end with the channels")


async def test_backends_without_reports_get_equal_shares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mesh = Mesh(reports_out_of_band=False)
    with caplog.at_level(logging.ERROR, "proxyless.channel"):
        async with mesh.channel(enableOobLoadReport=True) as channel:
            await expect_shares(channel, 2, 2, 2)
            await until(lambda: len(caplog.records) >= 3, "all backends to say no")
            await shares(channel, 300)
    assert len(caplog.records) == 3
    assert all("does not report its load" in record.message for record in caplog.records)
    for backend in mesh.backends:
        backend.stop()
