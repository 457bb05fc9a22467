"""Embedded xDS control plane for tests and small meshes: ADS version 3, both variants.

Its clients may be this package, grpcio or Envoy.

resource          a serialized resource, and its references to others
snapshot          Snapshot: an immutable set of resources
subscription      the resources that a client subscribes to, and those of the next response
type_state        state of one resource type on an ADS stream: subscription, last response, answer
ads               state machine of an ADS stream, without I/O: nonces, ACK and NACK, order
delta             the same for the incremental variant
answers           answers of clients: verdicts, NACKs; and withheld resources
stream            message loop of an ADS stream
service           ControlPlane, on grpcio's asyncio server; only it and server_tls import grpcio
change_condition  condition for tasks that wait for clients
missing           names that a client requests and the snapshot does not have
bind_errors       reason why an address cannot be bound
server_tls        server credentials from files, which are read again when they change
file_transport    transport of the xDS client to resources in files, without a server
files             FileSource: a snapshot from YAML and JSON files
documents         parser of such a file; proto_json parses its resources
yaml_documents    YAML with limits, for documents; the only module that imports PyYAML
positions         line and column of a value in such a file
short_form        the short form of a mesh in such a file
builders          functions that build resources
route_builders    functions that set retries, faults and hashes of routes
cluster_builders  functions that set policies, outlier detection and TLS of clusters
for_envoy         resources for Envoy, from those for gRPC clients
"""

from proxyless.controlplane.ads import AdsStream
from proxyless.controlplane.answers import NOTHING_WITHHELD, Nack, RequestRefused, Verdict, Withheld
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
from proxyless.controlplane.cluster_builders import (
    Ejection,
    FailurePercentage,
    SuccessRate,
    circuit_breaker,
    lb_policy,
    least_request,
    outlier_detection,
    ring_hash,
    tls,
)
from proxyless.controlplane.files import FileSource, ThreadOffload
from proxyless.controlplane.resource import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    Resource,
)
from proxyless.controlplane.route_builders import (
    fault,
    fault_filter,
    hash_on,
    match_header,
    retry,
    service_resources,
    without_session,
)
from proxyless.controlplane.service import ControlPlane, NackedError, ServiceOptions
from proxyless.controlplane.snapshot import Snapshot

__all__ = [
    "CLUSTER",
    "ENDPOINTS",
    "LB_ENDPOINT",
    "LISTENER",
    "NOTHING_WITHHELD",
    "ROUTE_CONFIG",
    "AdsStream",
    "ControlPlane",
    "Ejection",
    "FailurePercentage",
    "FileSource",
    "Locality",
    "Nack",
    "NackedError",
    "RequestRefused",
    "Resource",
    "ServiceOptions",
    "Snapshot",
    "SuccessRate",
    "ThreadOffload",
    "Verdict",
    "Withheld",
    "aggregate_cluster",
    "circuit_breaker",
    "dns_cluster",
    "eds_cluster",
    "endpoints",
    "fault",
    "fault_filter",
    "hash_on",
    "http_connection_manager",
    "http_filter",
    "keep_sessions",
    "lb_endpoint",
    "lb_policy",
    "least_request",
    "listener",
    "match_header",
    "outlier_detection",
    "retry",
    "ring_hash",
    "route",
    "route_config",
    "router_filter",
    "service_resources",
    "session_filter",
    "simple_mesh",
    "socket_listener",
    "tls",
    "use_http2",
    "virtual_host",
    "without_session",
]
