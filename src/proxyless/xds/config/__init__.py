"""What is needed to route RPCs of one target, and is all of it there?

Specs: A74 (XdsDependencyManager).

- `xds_config` is the answer: one immutable snapshot of listener, routes, clusters and endpoints.
- `dependencies` is the pure decision: from what is known, what is needed, and what the config is.
- `manager` is the shell: it keeps watches and DNS resolvers equal to what is needed.
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
