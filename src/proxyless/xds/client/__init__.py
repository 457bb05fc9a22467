"""Client of ADS and LRS servers: watches resources and reports load.

Imports point only downward in this list (import-linter, "xds-client-layers").

pool            XdsClients: the clients of one loop, by target
client          XdsClient: registry of watchers
connection      ADS connection to one server; resource timers
lrs, metrics    load reports; instruments of one client
response        decision about one response (pure)
ads             requests of one ADS stream (pure)
authorities     authorities: servers in use, entries of watched resources (pure)
load_counters   load of clusters and localities (pure)
retried_stream  stream that is retried with backoff
cache           state of a watched resource, decoded-resource cache (pure)
codec           messages on the wire; the only module with protobuf
transport       interface of a transport; transports of one client
notifications   notifications of watchers, and their queue
slices          long work in bounded parts, one per turn
api             interface: resource types, watchers, options
"""

from proxyless.xds.client.api import (
    Cancel,
    DecodeContext,
    Decoded,
    ResourceDump,
    ResourceStatus,
    ResourceType,
    XdsClientOptions,
)
from proxyless.xds.client.client import XdsClient
from proxyless.xds.client.pool import XdsClients
from proxyless.xds.client.retried_stream import Tools
from proxyless.xds.client.transport import Stream, StreamListener, Transport

__all__ = [
    "Cancel",
    "DecodeContext",
    "Decoded",
    "ResourceDump",
    "ResourceStatus",
    "ResourceType",
    "Stream",
    "StreamListener",
    "Tools",
    "Transport",
    "XdsClient",
    "XdsClientOptions",
    "XdsClients",
]
