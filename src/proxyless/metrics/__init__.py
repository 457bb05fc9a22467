"""gRPC's metrics: instruments, and the stats plugins that collect them.

api          Instrument, StatsPlugin
plugins      Metrics: the stats plugins of one channel; the global plugin registry
instruments  gRPC's instruments (A66, A78, A89)
calls        CallRecorder: per-call and per-attempt metrics of one method

A channel without a plugin has NO_METRICS, which is not active: code that would measure is left out
when the channel is created, so that an RPC pays nothing. `proxyless.otel` is the plugin for
OpenTelemetry.
"""

from proxyless.metrics.api import Cancel, Instrument, Kind, Observe, Report, StatsPlugin
from proxyless.metrics.calls import CallRecorder
from proxyless.metrics.plugins import (
    NO_METRICS,
    Metrics,
    choose_plugins,
    deregister_global,
    register_global,
)

__all__ = [
    "NO_METRICS",
    "CallRecorder",
    "Cancel",
    "Instrument",
    "Kind",
    "Metrics",
    "Observe",
    "Report",
    "StatsPlugin",
    "choose_plugins",
    "deregister_global",
    "register_global",
]
