"""RPCs for comparing the metrics of our client with those of `grpcio-observability`.

Imports only grpcio and OpenTelemetry's SDK, nothing of this package.

`grpcio-observability` requires the version of grpcio that it was built with, so it cannot be
installed in this environment. Its metrics are recorded in an environment that has it and
`opentelemetry-sdk`:

    python -m tests.worlds.observed_rpcs tests/fixtures/metrics/grpcio_observability.json
"""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
)

Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint

SERVICE = "metrics.Probe"
RECORDED = Path(__file__).parent.parent / "fixtures" / "metrics" / "grpcio_observability.json"

# The number of attempts of an RPC that the server rejects.
REFUSED = 2
# Retries without a noticeable delay.
RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": SERVICE, "method": "Refused"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.001s",
                "maxBackoff": "0.001s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
NO_PROXY = ("grpc.enable_http_proxy", 0)
OPTIONS = [("grpc.service_config", json.dumps(RETRIES)), NO_PROXY]
# A compressed message has another size, which depends on the library.
PLAIN = b"x" * 3000


# Server


def _respond(request: bytes, _context: grpc.ServicerContext) -> bytes:
    return request[: len(request) // 2]


def _respond_thrice(request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from (request, request[:1], b"")


def _join(requests: Iterator[bytes], _context: grpc.ServicerContext) -> bytes:
    return b"".join(requests)


def _echo_each(requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from requests


def _fail(_request: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")
    raise AssertionError("abort raises")


def _reject(request: bytes, context: grpc.ServicerContext) -> bytes:
    metadata = dict(context.invocation_metadata())
    if int(metadata.get("grpc-previous-rpc-attempts", 0)) < REFUSED:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
    return request


def _compress(request: bytes, context: grpc.ServicerContext) -> bytes:
    context.set_compression(grpc.Compression.Gzip)
    return request


def _abort_stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    yield b"12345"
    context.abort(grpc.StatusCode.DATA_LOSS, "as asked")


@contextmanager
def running_server() -> Iterator[int]:
    """Run a grpcio server; yield its port."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(_respond),
        "Generic": grpc.unary_unary_rpc_method_handler(_respond),
        "Downstream": grpc.unary_stream_rpc_method_handler(_respond_thrice),
        "Upstream": grpc.stream_unary_rpc_method_handler(_join),
        "Both": grpc.stream_stream_rpc_method_handler(_echo_each),
        "Failing": grpc.unary_unary_rpc_method_handler(_fail),
        "Refused": grpc.unary_unary_rpc_method_handler(_reject),
        "Squeezed": grpc.unary_unary_rpc_method_handler(_compress),
        "Broken": grpc.unary_stream_rpc_method_handler(_abort_stream),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


# RPCs


def call_blocking(channel: grpc.Channel) -> None:
    """Send one RPC of each kind on a channel with grpcio's blocking API."""

    def stub(kind: str, name: str, *, registered: bool = True) -> grpc.UnaryUnaryMultiCallable:
        return getattr(channel, kind)(f"/{SERVICE}/{name}", _registered_method=registered)

    stub("unary_unary", "Unary")(PLAIN)
    stub("unary_unary", "Unary")(b"")
    stub("unary_unary", "Generic", registered=False)(b"1234")
    list(stub("unary_stream", "Downstream")(b"abc"))
    stub("stream_unary", "Upstream")(iter([b"1", b"22", b"333"]))
    list(stub("stream_stream", "Both")(iter([b"4444", b"55555"])))
    for kind, name in (("unary_unary", "Failing"), ("unary_unary", "Missing")):
        try:
            stub(kind, name)(b"fail")
        except grpc.RpcError:
            continue
        raise AssertionError(f"{name} has not failed")
    try:
        list(stub("unary_stream", "Broken")(b"fail"))
    except grpc.RpcError:
        return
    raise AssertionError("Broken has not failed")


def target_of(port: int) -> str:
    """Return a target with scheme: grpcio's plugin does not canonicalize it as A66 demands."""
    return f"dns:///127.0.0.1:{port}"


# Metrics


def new_provider() -> tuple[MeterProvider, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    return MeterProvider([reader]), reader


def read_metrics(reader: InMemoryMetricReader) -> dict[str, Metric]:
    """Return all metrics by name."""
    data = reader.get_metrics_data()
    found = data.resource_metrics if data is not None else []
    return {
        metric.name: metric
        for resource in found
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def summarize(reader: InMemoryMetricReader, port: int) -> dict[str, Any]:
    """Return the metrics without times and the port, which differ between runs."""
    return {
        name: {
            "unit": metric.unit,
            "points": sorted(
                (
                    _summarize_point(metric.unit or "", point, port)
                    for point in metric.data.data_points
                ),
                key=str,
            ),
        }
        for name, metric in sorted(read_metrics(reader).items())
    }


def _summarize_point(unit: str, point: Point, port: int) -> dict[str, Any]:
    labels = {
        key: str(value).replace(str(port), "PORT")
        for key, value in sorted((point.attributes or {}).items())
    }
    if isinstance(point, NumberDataPoint):
        return {"labels": labels, "value": point.value}
    whole: dict[str, Any] = {"labels": labels, "count": point.count}
    if unit != "s":
        whole |= {"sum": point.sum, "min": point.min, "max": point.max}
    return whole


def record_grpcio(write: Callable[[str], object]) -> None:
    """Record the metrics of grpcio's client and plugin."""
    grpc_observability: Any = import_module("grpc_observability")  # Not in this environment.

    provider, reader = new_provider()
    plugin = grpc_observability.OpenTelemetryPlugin(meter_provider=provider)
    with running_server() as port:
        plugin.register_global()
        # Without retries: a call that is retried never ends with this plugin (1.85.0).
        with grpc.insecure_channel(target_of(port), options=[NO_PROXY]) as channel:
            call_blocking(channel)
        # It waits until all measurements are exported.
        plugin.deregister_global()
        found = summarize(reader, port)
    found = {name: metric for name, metric in found.items() if name.startswith("grpc.client.")}
    recorded = {"recorded_with": f"grpcio-observability {grpc.__version__}", "metrics": found}
    write(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record_grpcio(Path(sys.argv[1]).write_text)
