"""Is what a control plane sent valid, and what does it say?

Envoy's messages in, frozen `resources` out. What is wrong is collected by field path and becomes
one text for the NACK; nothing here raises because of what came in, and every list has a bound.

proto_fields    fields of protobuf messages: durations, wrappers, Any, bounded lists
decoding        bytes to a resource or a text: the outer layer of each type of resource
parts           what did not change since the last version of a resource
limits          how large a resource may be
listener        LDS: ListenerType, parse_listener
route           RDS: RouteConfigurationType, parse_route_configuration
route_policies  when an RPC of a route is sent again (A44), what its hash is made of (A42)
matchers        paths, headers, texts, fractions (A28, A63)
http_filters    a listener's chain, and overrides of it (A39)
plugins         cluster specifier plugins
http_proxy      HTTP CONNECT proxies of endpoints (A86)
cluster         CDS, with tls (A29) and lb_policy (A52)
endpoint        EDS

Each type of resource has two layers: a pure function over a decoded message, and a class that the
xDS client calls. What parsers share is `proto_fields`, and `xds.resources.regex`.
"""

from proxyless.xds.parsing.cluster import ClusterType
from proxyless.xds.parsing.endpoint import EndpointType
from proxyless.xds.parsing.listener import ListenerType, parse_listener
from proxyless.xds.parsing.plugins import PluginParser
from proxyless.xds.parsing.route import (
    RouteConfigurationType,
    RouteContext,
    parse_route_configuration,
)

__all__ = [
    "ClusterType",
    "EndpointType",
    "ListenerType",
    "PluginParser",
    "RouteConfigurationType",
    "RouteContext",
    "parse_listener",
    "parse_route_configuration",
]
