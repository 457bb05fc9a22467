"""Collector of spans over OTLP, and a grpcio server that OpenTelemetry's own package traces.

The server is a process of its own:

    python -m tests.worlds.otlp COLLECTOR

It writes its address, and exports its spans when its standard input is closed.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.grpc import server_interceptor
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXPORT = "opentelemetry.proto.collector.trace.v1.TraceService"


class CollectedSpan(NamedTuple):
    """A span as it came over OTLP."""

    name: str
    scope: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes


class Collector:
    """Collector's part of OTLP: keeps the spans of all requests."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.address = ""

    def export(self, request: Any, _context: Any) -> Any:  # noqa: ANN401 - generated classes
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [
                    CollectedSpan(
                        span.name,
                        scope.scope.name,
                        span.trace_id,
                        span.span_id,
                        span.parent_span_id,
                    )
                    for span in scope.spans
                ]
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> list[CollectedSpan]:
        return [each for each in self.spans if each.name == name]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a port of this machine."""
    found = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    export = grpc.unary_unary_rpc_method_handler(
        found.export,
        trace_service_pb2.ExportTraceServiceRequest.FromString,
        trace_service_pb2.ExportTraceServiceResponse.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler(_EXPORT, {"Export": export})
    server.add_generic_rpc_handlers([handlers])
    found.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield found
    finally:
        server.stop(None).wait()


def exporting_provider(address: str) -> TracerProvider:
    """A tracer provider that exports to this collector."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"http://{address}", insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def main(address: str) -> None:
    provider = exporting_provider(address)
    server = grpc.server(
        ThreadPoolExecutor(2), interceptors=[server_interceptor(tracer_provider=provider)]
    )
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    handlers = grpc.method_handlers_generic_handler("shop.Cart", {"Add": echo})
    server.add_generic_rpc_handlers([handlers])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop(None).wait()
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
