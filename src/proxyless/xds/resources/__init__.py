"""Validated xDS resources: frozen values without protobuf, created by `xds.parsing`.

listener, route, cluster, endpoint   LDS, RDS, CDS and EDS
filter    HTTP filters and their overrides
matcher   matchers of paths, headers and strings; matching compiles them to functions
regex     RE2 expressions with a memory limit
"""

from proxyless.xds.resources.cluster import (
    AggregateCluster,
    CertificateInstance,
    Cluster,
    Discovery,
    EdsCluster,
    LbConfig,
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
    "LbConfig",
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
