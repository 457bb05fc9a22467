"""XdsDependencyManager and XdsConfig: all resources of one target, complete and consistent.

Specs: A74.

xds_config     XdsConfig: an immutable snapshot of listener, routes, clusters and endpoints
dependencies   the decision: what is needed, what is missing, and what the config is (pure)
manager        XdsDependencyManager: keeps watches and DNS resolvers equal to what is needed
virtual_hosts  the virtual host for an authority
attributes     attributes of a resolver's result and of endpoints
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
