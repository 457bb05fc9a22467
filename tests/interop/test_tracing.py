"""Traces beside OpenTelemetry's own package: its servers, its client interceptors, OTLP."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from opentelemetry.instrumentation.grpc import (
    GrpcInstrumentorClient,
    aio_client_interceptors,
    client_interceptor,
)
from opentelemetry.instrumentation.grpc.grpcext import intercept_channel

import proxyless
from proxyless.otel import GrpcTraceBinPropagator, OpenTelemetryPlugin
from proxyless.otel.propagation import parse_trace_bin
from tests.interop.h2_server import H2Server, answer_with
from tests.worlds.otlp import collector, exporting_provider
from tests.worlds.traces import RecordedTraces
from tests.worlds.transports import PATIENCE_S, raw_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ADD = "/shop.Cart/Add"
CALL, ATTEMPT = "Sent.shop.Cart.Add", "Attempt.shop.Cart.Add"


@contextmanager
def traced_server(collector_address: str) -> Iterator[str]:
    """The address of a server in a process of its own, which has exported its spans at the end."""
    argv = [sys.executable, "-m", "tests.worlds.otlp", collector_address]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate(timeout=PATIENCE_S)


@contextmanager
def echo_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server, and the metadata of its RPCs."""
    received: list[dict[str, Any]] = []

    def echo(request: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpcio's
        received.append(dict(context.invocation_metadata()))
        return request

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(echo)
    handlers = grpc.method_handlers_generic_handler("shop.Cart", {"Add": handler})
    server.add_generic_rpc_handlers([handlers])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


def registries(plugin: OpenTelemetryPlugin) -> proxyless.Registries:
    return proxyless.Registries().extended(metrics=[plugin])


def blocking_channel(address: str, plugin: OpenTelemetryPlugin) -> Any:  # noqa: ANN401
    return proxyless.insecure_channel(address, registries=registries(plugin))


@pytest.mark.spec("A72-09")
def test_spans_of_two_processes_are_one_trace_in_the_collector() -> None:
    with collector() as collected:
        provider = exporting_provider(collected.address)
        plugin = OpenTelemetryPlugin(tracer_provider=provider)
        with (
            traced_server(collected.address) as address,
            blocking_channel(address, plugin) as channel,
            provider.get_tracer("app").start_as_current_span("checkout"),
        ):
            assert channel.unary_unary(ADD)(b"item", timeout=PATIENCE_S) == b"item"
        provider.shutdown()
        (app,), (call,), (attempt,) = map(collected.named, ("checkout", CALL, ATTEMPT))
        (served,) = [each for each in collected.spans if each.scope.endswith("grpc")]
    assert {each.trace_id for each in collected.spans} == {app.trace_id}
    assert (call.parent_id, attempt.parent_id, served.parent_id) == (
        app.span_id,
        call.span_id,
        attempt.span_id,
    )
    assert {call.scope, attempt.scope} == {"proxyless"}


@pytest.mark.spec("A72-11")
async def test_grpc_trace_bin_is_sent_as_bytes() -> None:
    # Not grpcio's server, which does not show this header to applications.
    head = ((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5"))
    server, traces = (
        H2Server(answer_with(*head)),
        RecordedTraces(text_map_propagator=GrpcTraceBinPropagator()),
    )
    async with (
        raw_server(server) as address,
        proxyless.aio.insecure_channel(
            str(address), registries=registries(traces.plugin)
        ) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(ADD)(b"item", timeout=PATIENCE_S)
    (headers,) = server.headers
    value = headers[b"grpc-trace-bin"]
    sent = parse_trace_bin(b64decode(value + b"=" * (-len(value) % 4)))
    span = traces.named(ATTEMPT).context
    assert sent is not None
    assert (sent.trace_id, sent.span_id) == (span.trace_id, span.span_id)
    assert b"traceparent" not in headers


@pytest.mark.spec("A72-01")
def test_each_thread_has_its_own_parent() -> None:
    traces = RecordedTraces()
    with (
        echo_server() as (address, _),
        blocking_channel(address, traces.plugin) as channel,
        ThreadPoolExecutor(4) as threads,
    ):
        add = channel.unary_unary(ADD)

        def call(name: str) -> None:
            with traces.parent(name):
                add(b"item", timeout=PATIENCE_S)
                add.future(b"item", timeout=PATIENCE_S).result()

        list(threads.map(call, "abcd"))
    parents = {each.context.span_id: each.name for each in traces.spans if len(each.name) == 1}
    found = [each.parent for each in traces.spans if each.name == CALL]
    assert sorted(parents[each.span_id] for each in found if each is not None) == sorted("abcd" * 2)


@pytest.mark.spec("A72-01")
async def test_a_span_of_an_asyncio_interceptor_is_the_parent() -> None:
    traces = RecordedTraces()

    class Spanning(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(
            self,
            continuation: Any,  # noqa: ANN401 - grpcio's
            details: Any,  # noqa: ANN401
            request: bytes,
        ) -> Any:  # noqa: ANN401
            with traces.parent("interceptor"):
                return await continuation(details, request)

    with echo_server() as (address, _):
        async with proxyless.aio.insecure_channel(
            address, registries=registries(traces.plugin), interceptors=[Spanning()]
        ) as channel:
            with traces.parent("app"):
                await channel.unary_unary(ADD)(b"item", timeout=PATIENCE_S)
    outer, inner = traces.named("app").context, traces.named("interceptor")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.span_id
    parent = traces.named(CALL).parent
    assert parent is not None
    assert parent.span_id == inner.context.span_id


def test_the_blocking_client_interceptor_of_opentelemetry_does_not_double_spans() -> None:
    traces = RecordedTraces()
    theirs = client_interceptor(tracer_provider=traces.provider)
    with (
        echo_server() as (address, received),
        blocking_channel(address, traces.plugin) as channel,
    ):
        intercepted: Any = intercept_channel(channel, theirs)
        intercepted.unary_unary(ADD)(b"item", timeout=PATIENCE_S)
    check_shared_trace(traces, received)


def test_instrumentation_of_grpcios_channels_traces_ours_only_with_its_interceptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tracing agents replace `grpc.insecure_channel` in the same way."""
    traces = RecordedTraces()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: traces.provider)
    instrumentor = GrpcInstrumentorClient()
    instrumentor.instrument()
    counts = []
    try:
        with (
            echo_server() as (target, _),
            grpc.insecure_channel(target) as theirs,
            proxyless.insecure_channel(target) as ours,
        ):
            for channel in (theirs, ours, intercept_channel(ours, client_interceptor())):
                before = len(traces.spans)
                assert channel.unary_unary(ADD)(b"x", timeout=PATIENCE_S) == b"x"
                counts.append(len(traces.spans) - before)
    finally:
        instrumentor.uninstrument()
    assert counts == [1, 0, 1]


async def test_the_asyncio_client_interceptors_of_opentelemetry_do_not_double_spans() -> None:
    traces = RecordedTraces()
    theirs = aio_client_interceptors(tracer_provider=traces.provider)
    with echo_server() as (address, received):
        async with proxyless.aio.insecure_channel(
            address, registries=registries(traces.plugin), interceptors=theirs
        ) as channel:
            await channel.unary_unary(ADD)(b"item", timeout=PATIENCE_S)
    check_shared_trace(traces, received)


def check_shared_trace(traces: RecordedTraces, received: list[dict[str, Any]]) -> None:
    """The interceptor's span is the call's, and the server gets the context of our attempt."""
    call, attempt = traces.named(ADD), traces.named(ATTEMPT)
    assert sorted(traces.names) == sorted([ADD, ATTEMPT])
    assert attempt.parent is not None
    assert attempt.parent.span_id == call.context.span_id
    (metadata,) = received
    assert metadata["traceparent"].split("-")[2] == f"{attempt.context.span_id:016x}"


def test_a_request_that_cannot_be_serialized_ends_its_span() -> None:
    traces = RecordedTraces()
    with (
        echo_server() as (address, _),
        blocking_channel(address, traces.plugin) as channel,
    ):
        add = channel.unary_unary(ADD, request_serializer=lambda request: request.missing)
        with pytest.raises(grpc.RpcError):
            add(b"item")
    description = traces.named(CALL).status.description
    assert description is not None
    assert description.startswith("INTERNAL, request serializer raised AttributeError")
