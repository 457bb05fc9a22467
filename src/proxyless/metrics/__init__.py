"""What is measured, and who is told: gRPC's metrics, whatever collects them.

api          Instrument, StatsPlugin: what a measurement is, and what collects it
plugins      Metrics: the plugins of one channel; and those that every channel has
instruments  gRPC's own instruments, by their names (A66, A78)
calls        CallRecorder: what plugins are told about the RPCs of one method

A channel without a plugin has NO_METRICS, which is not active: who measures asks that when things
are put together, so that an RPC pays nothing. `proxyless.otel` is the plugin for OpenTelemetry.
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
