"""Client of ADS and LRS servers: watches resources and reports load.

Decisions are pure, apart from the shells that apply them. No gRPC here: streams come from a
`Transport`. Imports point only downward in this list (import-linter, "xds-client-layers").

pool           XdsClients: the clients of one loop, by target
client         XdsClient: registry of watchers; applies outcomes, timeouts and outages
connection     ADS connection to one server; resource timers
lrs, metrics   load reports to one server; instruments of one client
response       decision about one response (pure)
ads            requests of one ADS stream (pure)
fallback       authorities, their servers in use and their entries (pure)
load           load counters (pure)
stream         stream that is retried with backoff
cache          state of a watched resource, decoded-resource cache (pure)
codec          messages on the wire; the only module with protobuf
transport      interface of a transport; transports of one client
notifications  notifications of watchers, queue that runs once per turn of the loop
api            interface to users: resource types, watchers, options
"""

from proxyless.xds.client.api import (
    Cancel,
    DecodeContext,
    Decoded,
    ResourceDump,
    ResourceStatus,
    ResourceType,
    ResourceWatcher,
    XdsClientOptions,
)
from proxyless.xds.client.client import XdsClient
from proxyless.xds.client.load import ClusterLoad, LocalityLoad
from proxyless.xds.client.pool import XdsClients
from proxyless.xds.client.stream import Tools
from proxyless.xds.client.transport import Stream, StreamListener, Transport, TransportFactory

__all__ = [
    "Cancel",
    "ClusterLoad",
    "DecodeContext",
    "Decoded",
    "LocalityLoad",
    "ResourceDump",
    "ResourceStatus",
    "ResourceType",
    "ResourceWatcher",
    "Stream",
    "StreamListener",
    "Tools",
    "Transport",
    "TransportFactory",
    "XdsClient",
    "XdsClientOptions",
    "XdsClients",
]
