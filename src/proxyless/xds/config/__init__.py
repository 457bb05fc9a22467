"""XdsDependencyManager and XdsConfig: all resources of one target, complete and consistent.

Specs: A74.

xds_config          XdsConfig: an immutable snapshot of listener, routes, clusters and endpoints
plan                input and result of the decision: states of resources, and the plan
dependencies        the decision (pure): needed and missing resources, and the config
resolution_notes    why a cluster has no endpoints, or old ones (pure)
endpoint_join       EDS resources with the endpoints of their collections (pure)
dependency_manager  XdsDependencyManager: watches the needed resources and publishes configs
virtual_hosts       the virtual host for an authority, and the clusters of its routes
attributes          attributes of a resolver's result and of endpoints
"""

from proxyless.xds.config.xds_config import (
    ClusterConfig,
    ClusterError,
    ClusterResult,
    ClusterSubscription,
    ClusterSubscriptions,
    XdsConfig,
    XdsConfigWatcher,
)

__all__ = [
    "ClusterConfig",
    "ClusterError",
    "ClusterResult",
    "ClusterSubscription",
    "ClusterSubscriptions",
    "XdsConfig",
    "XdsConfigWatcher",
]
