"""Stats plugin for OpenTelemetry: metrics and traces of channels.

plugin       OpenTelemetryPlugin: registers, and records gRPC's metrics (A66, A78, A79, A89)
batches      measurements of RPCs, kept until a metric reader collects
tracing      spans of calls, attempts and delays (A72, A121)
sampling     the sampler's decision, before there is a span
propagation  trace contexts in metadata, GrpcTraceBinPropagator (A72)
"""

try:
    import opentelemetry.trace  # noqa: F401
except ImportError as error:
    text = "proxyless.otel needs opentelemetry-api: pip install 'proxyless[otel]'"
    raise ImportError(text) from error

from proxyless.otel.plugin import OpenTelemetryPlugin
from proxyless.otel.propagation import GrpcTraceBinPropagator

__all__ = ["GrpcTraceBinPropagator", "OpenTelemetryPlugin"]
