"""Embedded xDS control plane for tests and small meshes: ADS, state of the world, version 3.

Its clients may be this package, grpcio or Envoy.

resource          a serialized resource, and its references to others
snapshot          Snapshot: an immutable set of resources
subscription      the resources that a client subscribes to, and those of the next response
ads               state machine of an ADS stream, without I/O: nonces, ACK and NACK, order
stream            message loop of an ADS stream
service           ControlPlane, on grpcio's asyncio server; the only module that imports grpcio
change_condition  condition for tasks that wait for clients
files             FileSource: a snapshot from a directory of YAML and JSON files
documents         parser of such a file; proto_json parses its resources
yaml_documents    YAML with limits, for documents; the only module that imports PyYAML
builders          functions that build resources
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
