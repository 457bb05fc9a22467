"""What does a control plane say, once it is known to be right?

Frozen values without protobuf, one file per type of resource: `listener`, `route`, `cluster`,
`endpoint`, and `filter` and `matcher` for what they share. Whoever holds one knows that it is
valid: `parsing` made it. Times are seconds, names are the specification's.
"""

from proxyless.xds.resources.cluster import (
    AggregateCluster,
    CertificateInstance,
    Cluster,
    Discovery,
    EdsCluster,
    LogicalDnsCluster,
    OutlierDetection,
    SanMatcher,
    UpstreamTls,
)
from proxyless.xds.resources.endpoint import (
    DropCategory,
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
)
from proxyless.xds.resources.filter import HttpFilter
from proxyless.xds.resources.listener import HttpConnectionManager, Listener
from proxyless.xds.resources.matcher import Fraction, HeaderMatcher, PathMatcher, StringMatcher
from proxyless.xds.resources.route import (
    ClusterChoice,
    ClusterSpecifierPlugin,
    HashPolicy,
    NonForwardingAction,
    PluginChoice,
    RetryOnPolicy,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
    WeightedChoice,
    WeightedCluster,
)

__all__ = [
    "AggregateCluster",
    "CertificateInstance",
    "Cluster",
    "ClusterChoice",
    "ClusterSpecifierPlugin",
    "Discovery",
    "DropCategory",
    "EdsCluster",
    "EndpointInfo",
    "EndpointResource",
    "Fraction",
    "HashPolicy",
    "HeaderMatcher",
    "HealthStatus",
    "HttpConnectionManager",
    "HttpFilter",
    "Listener",
    "LocalityEndpoints",
    "LogicalDnsCluster",
    "NonForwardingAction",
    "OutlierDetection",
    "PathMatcher",
    "PluginChoice",
    "RetryOnPolicy",
    "Route",
    "RouteAction",
    "RouteConfiguration",
    "SanMatcher",
    "StringMatcher",
    "UpstreamTls",
    "VirtualHost",
    "WeightedChoice",
    "WeightedCluster",
]
