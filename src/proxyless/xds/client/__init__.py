"""ADS and LRS: what a control plane says, for whoever watches.

The decisions are pure and stand apart from the shells that enact them. No gRPC here: streams come
from a `Transport`.

api         what users and the client say to each other: resource types, watchers
transport   what the client needs from whatever carries its streams
client      XdsClient, the shell: who watches what, who is told, once per turn of the loop
pool        XdsClients: which channels share a client
connection  one server: requests, responses, and the time in which a resource has to come
stream      how a stream stays open: retries and backoff
transports  who shares the way to a server
ads         what a server is asked next (pure)
response    what one response changes (pure)
cache       what is known about a resource, and what its watchers hear (pure)
fallback    which server speaks for a name (pure)
load        counters of load (pure); lrs reports them
codec       the messages on the wire; the only one that knows protobuf
"""

from proxyless.xds.client.api import (
    Cancel,
    DecodeContext,
    Decoded,
    ResourceDump,
    ResourceStatus,
    ResourceType,
    ResourceWatcher,
)
from proxyless.xds.client.client import XdsClient, XdsClientOptions
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
