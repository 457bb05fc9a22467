"""Client of ADS and LRS servers: watches resources and reports load.

Imports point only downward in this list (import-linter, "xds-client-layers").

pool            XdsClients: the clients of one loop, by target
client          XdsClient: registry of watchers
last_good       saved resources of an earlier process, used until the control plane answers
config_store    file of saved resources; config_file: its format
connection      ADS connection to one server
lrs, metrics    load reports; instruments of one client
collection_response   decision about one response with members of collections (pure)
early_deletions deletions on a stream that has not sent what names the resources
server_log      texts about one server, each logged once
response        decision about one response (pure)
ads, delta      requests of one ADS stream, by variant of the protocol (pure)
authorities     authorities: servers in use, entries of watched resources (pure)
load_counters   load of clusters and localities (pure)
resource_timers timers of resources that were requested and have not arrived
retried_stream  stream that is retried with backoff
cache           state of a watched resource, decoded-resource cache (pure)
collection      members of a watched collection (pure)
lrs_codec, codec messages of LRS and ADS on the wire
transport       interface of a transport; transports of one client
notifications   notifications of watchers, and their queue
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
