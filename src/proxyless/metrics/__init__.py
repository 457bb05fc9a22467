"""gRPC's metrics: instruments, and the stats plugins that collect them.

api          Instrument, StatsPlugin
plugins      Metrics: the stats plugins of one channel; the global plugin registry
instruments  gRPC's instruments (A66, A78, A89, A91, A94, A96, A108), and our own
calls        CallRecorder: per-call and per-attempt metrics of one method
call_labels  custom_label: a label that the application chooses per RPC (A108)
tracers      interfaces of stats plugins that trace calls

A channel without a plugin has NO_METRICS, which is not active: code that would measure is left out
when the channel is created, so that an RPC pays nothing. `proxyless.otel` is the plugin for
OpenTelemetry.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.metrics.api import Cancel, Instrument, Kind, Observe, Report, StatsPlugin
from proxyless.metrics.plugins import (
    NO_METRICS,
    Metrics,
    choose_own_plugins,
    choose_plugins,
    deregister_global,
    register_global,
)

if TYPE_CHECKING:
    from proxyless.metrics.call_labels import custom_label
    from proxyless.metrics.calls import CallRecorder
else:
    # Used by channels with a stats plugin.
    __getattr__ = lazy_exports(__name__, {"CallRecorder": "calls", "custom_label": "call_labels"})

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
    "choose_own_plugins",
    "choose_plugins",
    "custom_label",
    "deregister_global",
    "register_global",
]
