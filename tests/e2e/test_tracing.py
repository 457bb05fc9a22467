"""Traces of RPCs on real sockets, recorded by OpenTelemetry's SDK (A72, A121)."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    session_filter,
    virtual_host,
)
from proxyless.otel import OpenTelemetryPlugin
from proxyless.otel.tracing import OPTIONAL_ATTRIBUTES
from tests.worlds.grpcio_peers import WHERE, NamedBackend, backends
from tests.worlds.observed_rpcs import read_metrics
from tests.worlds.traces import RecordedTraces
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# A72's span of a call and of an attempt, without a delay.
CALL = "Sent.test.Mesh.Where [OK]"
ATTEMPT = "Attempt.test.Mesh.Where"
FIRST = "previous-rpc-attempts=0 transparent-retry=False"
SENT = "* Outbound message sequence-number=0 message-size=4"
RECEIVED = "* Inbound message sequence-number=0 message-size=1"
PICKED = "* Delayed LB pick complete"
RESOLVED = "* Delayed name resolution complete"


class UnreliableBackend(NamedBackend):
    """Backend that rejects the first RPCs, or leaves them without a response."""

    def __init__(self, *, rejected: int = 0, unanswered: int = 0) -> None:
        super().__init__("b")
        self.rejected = rejected
        self.unanswered = unanswered

    async def _answer(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpcio's
        if self.rejected:
            self.rejected -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy\nlater")
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.Event().wait()
        return await super()._answer(request, context)


@asynccontextmanager
async def started(backend: NamedBackend) -> AsyncIterator[NamedBackend]:
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


def channel_to(target: str, traces: RecordedTraces, **options: Any) -> Any:  # noqa: ANN401
    registries = proxyless.Registries().extended(metrics=[traces.plugin])
    return proxyless.aio.insecure_channel(target, registries=registries, **options)


def policy(**settings: object) -> list[tuple[str, object]]:
    config = {"methodConfig": [{"name": [{}], **settings}]}
    return [("grpc.service_config", json.dumps(config))]


def mesh(backend: NamedBackend, **settings: Any) -> Snapshot:  # noqa: ANN401
    drops = settings.pop("drops", None)
    return Snapshot.of(
        [
            listener("api", "routes", **settings),
            route_config("routes", virtual_host(route(cluster=backend.name), domains=["*"])),
            eds_cluster(backend.name),
            endpoints(backend.name, [backend.address], drops=drops),
        ]
    )


@pytest.mark.spec("A72-03", "A72-05", "A72-07")
async def test_a_call_with_two_retries_has_three_attempts() -> None:
    traces = RecordedTraces()
    retries = policy(
        retryPolicy={
            "maxAttempts": 4,
            "initialBackoff": "0.001s",
            "maxBackoff": "0.001s",
            "backoffMultiplier": 1,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
    )
    async with (
        started(UnreliableBackend(rejected=2)) as backend,
        channel_to(backend.address, traces, options=retries) as channel,
    ):
        with traces.parent():
            assert await channel.unary_unary(WHERE)(b"item", timeout=PATIENCE_S) == b"b"
    busy = "[ERROR 'UNAVAILABLE, busy later']"
    assert traces.tree() == [
        "app [UNSET]",
        f"  {CALL}",
        f"    {RESOLVED}",
        f"    {ATTEMPT} {busy} {FIRST}",
        f"      {PICKED}",
        f"      {SENT}",
        f"    {ATTEMPT} {busy} previous-rpc-attempts=1 transparent-retry=False",
        f"      {SENT}",
        f"    {ATTEMPT} [OK] previous-rpc-attempts=2 transparent-retry=False",
        f"      {SENT}",
        f"      {RECEIVED}",
    ]


@pytest.mark.spec("A72-04")
async def test_a_hedged_call_has_concurrent_attempts_of_which_one_is_cancelled() -> None:
    traces = RecordedTraces()
    hedging = policy(hedgingPolicy={"maxAttempts": 2, "hedgingDelay": "0.01s"})
    async with (
        started(UnreliableBackend(unanswered=1)) as backend,
        channel_to(backend.address, traces, options=hedging) as channel,
    ):
        # An attempt that waits for the connection would have the next one beside it.
        await channel.channel_ready()
        await channel.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
    cancelled = "[ERROR 'CANCELLED, Locally cancelled by application!']"
    assert traces.tree() == [
        CALL,
        f"  {ATTEMPT} {cancelled} {FIRST}",
        f"    {SENT}",
        f"  {ATTEMPT} [OK] previous-rpc-attempts=1 transparent-retry=False",
        f"    {SENT}",
        f"    {RECEIVED}",
    ]
    first, second = (each for each in traces.spans if each.name == ATTEMPT)
    assert (first.start_time or 0) < (second.end_time or 0)
    assert (second.start_time or 0) < (first.end_time or 0)


@pytest.mark.spec("A72-02", "A121-01", "A121-03")
async def test_a_call_that_waits_for_the_listener_has_a_span_of_the_delay() -> None:
    traces = RecordedTraces(trace_delays=True)
    async with (
        backends("b") as (backend,),
        ControlPlane(Snapshot.of([], partial=True)) as plane,
        channel_to("xds:///api", traces, bootstrap=plane.bootstrap()) as channel,
    ):
        call = channel.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
        is_waiting = "waits: listener"
        await until(lambda: is_waiting in channel.explain(WHERE).text, "RPC waits for the listener")
        plane.set_snapshot(mesh(backend))
        await call
    delays = "* Delay state transition grpc.delay_type"
    unconnected = "no endpoint of priority 0 is connected yet"
    tree = traces.tree()
    reason = tree.pop(3)
    assert reason.startswith(f'    {delays}=resolving grpc.delay_reason=listener "api": not here')
    assert tree == [
        CALL,
        f"  {RESOLVED}",
        "  Call Delay [UNSET] grpc.delay_type=resolving",
        f"  {ATTEMPT} [OK] {FIRST}",
        f"    {PICKED}",
        f"    {SENT}",
        f"    {RECEIVED}",
        "    Attempt Delay [UNSET] grpc.delay_type=p0:connecting",
        f"      {delays}=p0:connecting grpc.delay_reason={unconnected}",
    ]


async def test_a_call_of_a_session_has_our_attributes_if_they_are_enabled() -> None:
    traces = RecordedTraces(span_attributes=OPTIONAL_ATTRIBUTES)
    async with backends("b") as (backend,):
        snapshot = mesh(backend, filters=[session_filter("cart")])
        async with (
            ControlPlane(snapshot) as plane,
            channel_to("xds:///api", traces, bootstrap=plane.bootstrap()) as channel,
            channel.session() as session,
        ):
            await session.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
            await session.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
    ours = (
        'proxyless.cluster=b proxyless.locality={region="", zone="zone-0", sub_zone=""} '
        f"proxyless.backend_address={backend.address} proxyless.config_generation=1"
    )
    attempt = [f"  {ATTEMPT} [OK] {FIRST} {ours}", f"    {SENT}", f"    {RECEIVED}"]
    assert traces.tree() == [
        f"{CALL} proxyless.session=True",
        f"  {RESOLVED}",
        attempt[0],
        f"    {PICKED}",
        *attempt[1:],
        f"{CALL} proxyless.session=True",
        *attempt,
    ]


async def test_a_dropped_call_has_the_cause_as_attribute() -> None:
    traces = RecordedTraces(span_attributes=["proxyless.drop_cause"])
    async with (
        backends("b") as (backend,),
        ControlPlane(mesh(backend, drops={"overload": 1.0})) as plane,
        channel_to("xds:///api", traces, bootstrap=plane.bootstrap(node_id="n")) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
    cause = 'cluster "b": EDS-configured drop: overload (node id "n")'
    status = f"[ERROR {f'UNAVAILABLE, {cause}'!r}]"
    assert traces.tree() == [
        f"Sent.test.Mesh.Where {status} proxyless.drop_cause={cause}",
        f"  {RESOLVED}",
        f"  {ATTEMPT} {status} {FIRST}",
    ]


@pytest.mark.spec("A121-05")
async def test_delays_of_a_mesh_are_measured_if_they_are_enabled() -> None:
    reader = InMemoryMetricReader()
    plugin = OpenTelemetryPlugin(
        meter_provider=MeterProvider([reader]), enable_metrics=["grpc.client.*.delay.duration"]
    )
    async with (
        backends("b") as (backend,),
        ControlPlane(mesh(backend)) as plane,
        proxyless.aio.insecure_channel(
            "xds:///api",
            bootstrap=plane.bootstrap(),
            registries=proxyless.Registries().extended(metrics=[plugin]),
        ) as channel,
    ):
        for _ in range(3):
            await channel.unary_unary(WHERE)(b"item", timeout=PATIENCE_S)
    metrics = read_metrics(reader)
    for name, kind in (("call", "resolving"), ("attempt", "p0:connecting")):
        (point,) = metrics[f"grpc.client.{name}.delay.duration"].data.data_points
        labels = {"grpc.target": "xds:///api", "grpc.delay_type": kind}
        # Only the first RPC waited.
        assert isinstance(point, HistogramDataPoint)
        assert (point.attributes, point.count) == (labels, 1)
