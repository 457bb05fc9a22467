"""Parsers of xDS resources: Envoy's protobuf messages to validated `xds.resources`.

Errors are collected by field path and become one text for the NACK. Invalid input never raises.

listener, route, cluster, endpoint   the resource types LDS, RDS, CDS and EDS
endpoint_collection   members of a collection of endpoints (LEDS)
decoding        serialized bytes to a resource or an error text
proto_fields    fields of protobuf messages: durations, wrappers, Any
part_cache      cache of the parts that did not change since the last version of a resource
limits          limits on lists
route_policies  retry policies (A44) and hash policies (A42)
matchers        paths, headers, strings, fractions (A28, A63)
http_filters    filters of a listener, and their overrides (A39)
plugins         cluster specifier plugins
http_proxy      HTTP CONNECT proxies of endpoints (A86)
tls             TLS of a cluster (A29)
lb_policy       LB policy of a cluster (A52)
"""

from proxyless.xds.parsing.cluster import ClusterType
from proxyless.xds.parsing.endpoint import EndpointType
from proxyless.xds.parsing.endpoint_collection import EndpointCollectionType
from proxyless.xds.parsing.listener import ListenerType, parse_listener
from proxyless.xds.parsing.plugins import PluginParser
from proxyless.xds.parsing.route import (
    RouteConfigurationType,
    RouteContext,
    parse_route_configuration,
)

__all__ = [
    "ClusterType",
    "EndpointCollectionType",
    "EndpointType",
    "ListenerType",
    "PluginParser",
    "RouteConfigurationType",
    "RouteContext",
    "parse_listener",
    "parse_route_configuration",
]
