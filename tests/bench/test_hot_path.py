"""Number of function calls and socket writes of this package per RPC.

The numbers are the same on every machine. The tests use a whole channel (stub, round_robin over
three backends, wire) without sockets: the backends respond in memory. An exceeded budget is not a
bug in itself, but every RPC pays for an added call; raise the budget only deliberately.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, cast

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

import proxyless
from proxyless.assembly import default_policies, default_resolvers
from proxyless.base import Address
from proxyless.channel import Channel, ChannelOptions, LoopStack, SubchannelPool
from proxyless.front import AioChannel
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.otel import OpenTelemetryPlugin
from proxyless.runtime import AsyncioNetwork, LoopClock, seeded_random
from proxyless.transport import Connector
from proxyless.wire import IDENTITY, frames
from proxyless.wire.headers import encode_response_head, encode_trailers

BACKENDS = 3
TARGET = "ipv4:127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
ROUND_ROBIN: dict[str, object] = {"loadBalancingConfig": [{"round_robin": {}}]}
METHOD = "/echo.Echo/Echo"
REQUEST = b"x" * 16
# Enough that rare calls, such as for a window update, count as a fraction.
RPCS = 200

# Loop iterations from a request to its response; requests within them are answered together.
LATENCY_TURNS = 5

# Functions of this package that run for one unary RPC: measured, with a small margin.
CALLS_AT_1_MAX = 49
CALLS_AT_16_MAX = 42
CALLS_WITH_EVERYTHING_MAX = 58
# The same with a stats plugin, 16 in flight: with functions of OpenTelemetry.
CALLS_MEASURED_MAX = 57
CALLS_UNSAMPLED_MAX = 55
WITH_EVERYTHING = {"timeout": 5.0, "metadata": (("authorization", "Bearer token"), ("id", "7"))}


class Backend(asyncio.Transport):
    """An in-memory server in place of a socket, which echoes every request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._client = client
        self._head = encode_response_head()
        self._trailers = encode_trailers(proxyless.base.OK)
        # The window is large enough for all requests, so that flow control has no effect.
        self._answers = bytearray(frames.encode_settings(()))
        self._answers += frames.encode_window_update(0, 1 << 30)
        self._has_preface = False
        self.writes = 0
        loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        data = bytes(data)
        if not self._has_preface:
            self._has_preface = True
            data = data.removeprefix(frames.PREFACE)
        if not self._answers:
            self._loop.call_soon(self._wait, LATENCY_TURNS)
        at = 0
        while at < len(data):
            word, _, stream_id = frames.unpack_header(data, at)
            stop = at + frames.FRAME_HEADER_BYTES + (word >> 8)
            if word & 0xFF == frames.DATA:
                self._answer(stream_id, data[at + frames.FRAME_HEADER_BYTES : stop])
            at = stop

    def is_closing(self) -> bool:
        return False

    def _answer(self, stream_id: int, message: bytes) -> None:
        head, trailers, end_headers = self._head, self._trailers, frames.FLAG_END_HEADERS
        for kind, flags, payload in (
            (frames.HEADERS, end_headers, head),
            (frames.DATA, 0, message),
            (frames.HEADERS, end_headers | frames.FLAG_END_STREAM, trailers),
        ):
            self._answers += frames.pack_header(len(payload) << 8 | kind, flags, stream_id)
            self._answers += payload

    def _wait(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._wait, turns - 1)
        else:
            self._deliver()

    def _deliver(self) -> None:
        answers, self._answers = self._answers, bytearray()
        size = len(answers)
        cast("memoryview", self._client.get_buffer(-1))[:size] = answers
        self._client.buffer_updated(size)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def close(self) -> None:
        self._loop.call_soon(self._client.connection_lost, None)

    abort = close


class Loopback(AsyncioNetwork):
    """A network with a `Backend` at every address."""

    def __init__(self) -> None:
        self.backends: list[Backend] = []

    async def connect(
        self, address: Address, protocol_factory: Callable[[], Any], **_: object
    ) -> tuple[asyncio.Transport, Any]:
        client = protocol_factory()
        backend = Backend(asyncio.get_running_loop(), client)
        self.backends.append(backend)
        client.connection_made(backend)
        return backend, client

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        return

    @property
    def writes(self) -> int:
        return sum(backend.writes for backend in self.backends)


def make_stack(network: Loopback) -> LoopStack:
    clock, random = LoopClock(asyncio.get_running_loop()), seeded_random(1)
    connector = Connector(network=network, clock=clock)
    pool = SubchannelPool(connector, clock=clock, random=random)
    return LoopStack(clock, random, network, connector.deadlines, pool)


@asynccontextmanager
async def open_channel(
    network: Loopback, metrics: Metrics = NO_METRICS
) -> AsyncIterator[AioChannel]:
    """A channel that is connected to all backends."""

    def open_core() -> Channel:
        return Channel(
            TARGET,
            ChannelOptions(service_config=ROUND_ROBIN, metrics=metrics),
            make_stack(network),
            policies=default_policies(),
            resolvers=default_resolvers(),
        )

    async with AioChannel(open_core, encoding=IDENTITY, interceptors=None) as channel:
        await channel.channel_ready()
        unary = channel.unary_unary(METHOD)
        while len(network.backends) < BACKENDS or not all(b.writes > 1 for b in network.backends):
            await unary(REQUEST)
        yield channel


class CallCounter:
    """Counts the calls of functions of these packages during `count`."""

    def __init__(self, *packages: str) -> None:
        self._prefixes = packages or ("proxyless.",)
        self.calls = 0
        self.by_name: dict[str, int] = {}

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        # By module and not by file: functions generated by dataclasses have no file.
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith(self._prefixes):
            self.calls += 1
            name = f"{module} {frame.f_code.co_qualname}"
            self.by_name[name] = self.by_name.get(name, 0) + 1

    async def count(self, work: Awaitable[object]) -> None:
        before = sys.getprofile()
        sys.setprofile(self._on_event)
        try:
            await work
        finally:
            sys.setprofile(before)

    def __str__(self) -> str:
        ordered = sorted(self.by_name.items(), key=lambda item: -item[1])
        return "".join(f"\n{count / RPCS:8.3f} {name}" for name, count in ordered)


async def call_repeatedly(
    unary: grpc.aio.UnaryUnaryMultiCallable, times: int, options: dict[str, Any]
) -> None:
    for _ in range(times):
        assert await unary(REQUEST, **options) == REQUEST


@pytest.mark.parametrize(
    ("in_flight", "options", "calls_max"),
    [
        pytest.param(1, {}, CALLS_AT_1_MAX, id="alone"),
        pytest.param(16, {}, CALLS_AT_16_MAX, id="16 in flight"),
        pytest.param(16, WITH_EVERYTHING, CALLS_WITH_EVERYTHING_MAX, id="timeout and metadata"),
    ],
)
async def test_unary_rpc_makes_few_function_calls(
    in_flight: int, options: dict[str, Any], calls_max: int
) -> None:
    counter, network = CallCounter(), Loopback()
    async with open_channel(network) as channel:
        unary, share = channel.unary_unary(METHOD), RPCS // in_flight + 1
        await unary(REQUEST, **options)
        await counter.count(
            asyncio.gather(*(call_repeatedly(unary, share, options) for _ in range(in_flight)))
        )
    assert counter.calls / (share * in_flight) <= calls_max, str(counter)


def measured() -> OpenTelemetryPlugin:
    return OpenTelemetryPlugin(meter_provider=MeterProvider([InMemoryMetricReader()]))


def unsampled() -> OpenTelemetryPlugin:
    provider = TracerProvider(ParentBasedTraceIdRatio(0.0), shutdown_on_exit=False)
    return OpenTelemetryPlugin(tracer_provider=provider)


@pytest.mark.parametrize(
    ("make_plugin", "calls_max"),
    [
        pytest.param(measured, CALLS_MEASURED_MAX, id="metrics"),
        pytest.param(unsampled, CALLS_UNSAMPLED_MAX, id="trace is not sampled"),
    ],
)
async def test_unary_rpc_with_a_stats_plugin_makes_few_function_calls(
    make_plugin: Callable[[], OpenTelemetryPlugin], calls_max: int
) -> None:
    counter, network = CallCounter("proxyless.", "opentelemetry."), Loopback()
    in_flight, share = 16, RPCS // 16 + 1
    async with open_channel(network, Metrics(TARGET, [make_plugin()])) as channel:
        unary = channel.unary_unary(METHOD)
        await unary(REQUEST)
        await counter.count(
            asyncio.gather(*(call_repeatedly(unary, share, {}) for _ in range(in_flight)))
        )
    assert counter.calls / (share * in_flight) <= calls_max, str(counter)


async def test_rpcs_that_start_together_are_sent_in_one_write_per_connection() -> None:
    network, rounds = Loopback(), 10
    async with open_channel(network) as channel:
        unary, before = channel.unary_unary(METHOD), network.writes
        await asyncio.gather(*(call_repeatedly(unary, rounds, {}) for _ in range(16)))
        # The first call on each connection is sent alone.
        assert network.writes - before <= (rounds + 1) * BACKENDS


async def test_rpc_without_stats_plugins_calls_no_metrics_code() -> None:
    counter, network = CallCounter(), Loopback()
    async with open_channel(network) as channel:
        await counter.count(call_repeatedly(channel.unary_unary(METHOD), RPCS, {}))
    measuring = (
        "proxyless.metrics",
        "proxyless.channel.measured_",
        "proxyless.xds.lb.pick_labels",
    )
    assert [name for name in counter.by_name if name.startswith(measuring)] == []
