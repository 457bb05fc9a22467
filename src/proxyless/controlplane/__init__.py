"""An embedded xDS control plane, for tests, for small meshes, and for any xDS client.

It speaks ADS, state of the world, version 3, to our own client, to grpcio's and to Envoy.

resource      one resource: its bytes, and which others it names
snapshot      Snapshot: what is served at one moment; immutable, complete unless it says otherwise
subscription  which resources a client wants, and what it has still to be told
ads           one ADS stream as a state machine without I/O: nonces, ACK and NACK, order
stream        what keeps a core and a client's stream busy
service       ControlPlane: the edge, on grpcio's asyncio server; the only module that knows grpcio
progress      waiting for what clients do
files         FileSource: a directory of YAML and JSON files as a snapshot, reloaded when it changes
documents     the text of such a file, as resources, with every error by its place
builders      resources in a line or two
"""

from proxyless.controlplane.ads import (
    NOTHING_WITHHELD,
    AdsStream,
    Nack,
    RequestRefused,
    Verdict,
    Withheld,
)
from proxyless.controlplane.builders import (
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    http_connection_manager,
    http_filter,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    route_config,
    router_filter,
    session_filter,
    simple_mesh,
    socket_listener,
    use_http2,
    virtual_host,
)
from proxyless.controlplane.files import FileSource, ThreadOffload
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Resource
from proxyless.controlplane.service import ControlPlane, NackedError, ServiceOptions
from proxyless.controlplane.snapshot import Snapshot

__all__ = [
    "CLUSTER",
    "ENDPOINTS",
    "LISTENER",
    "NOTHING_WITHHELD",
    "ROUTE_CONFIG",
    "AdsStream",
    "ControlPlane",
    "FileSource",
    "Locality",
    "Nack",
    "NackedError",
    "RequestRefused",
    "Resource",
    "ServiceOptions",
    "Snapshot",
    "ThreadOffload",
    "Verdict",
    "Withheld",
    "aggregate_cluster",
    "dns_cluster",
    "eds_cluster",
    "endpoints",
    "http_connection_manager",
    "http_filter",
    "keep_sessions",
    "lb_endpoint",
    "listener",
    "route",
    "route_config",
    "router_filter",
    "session_filter",
    "simple_mesh",
    "socket_listener",
    "use_http2",
    "virtual_host",
]
