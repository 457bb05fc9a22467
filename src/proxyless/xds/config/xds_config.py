"""What is a complete xDS configuration?

Specs: A74 (XdsConfig and its watcher). The shape is the seed's: a map from the clusters that routes
name, or that somebody subscribed to, to a list. Of a plain cluster the list has one entry; of an
aggregate, the aggregate itself and then its leaves, the preferred one first (D23).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.base import Status
    from proxyless.xds.resources import (
        Cluster,
        EndpointResource,
        Listener,
        RouteConfiguration,
        VirtualHost,
    )


@frozen
class ClusterConfig:
    """One cluster and its endpoints."""

    cluster_name: str
    cluster: Cluster
    # None for an aggregate, and if there was an error: then the note says which.
    endpoints: EndpointResource | None = None
    # Where the endpoints came from or what is wrong with them, for error texts (A74-39).
    resolution_note: str = ""


@frozen
class ClusterError:
    """Why there is nothing for a cluster. The status is one that an RPC may end with."""

    status: Status
    # The control plane says that there is no such cluster: its RPCs are dropped (A31-41).
    does_not_exist: bool = False


# What is known about a cluster: it, and the leaves if it is an aggregate; or why nothing is.
ClusterResult = tuple[ClusterConfig, ...] | ClusterError


@frozen(eq=False)
class XdsConfig:
    """Everything an RPC of one target needs, from one moment. Never changes (A74-26)."""

    listener: Listener
    # Also if it came inside the listener.
    route_config: RouteConfiguration
    # An element of the route configuration's (A74-21).
    virtual_host: VirtualHost
    clusters: dict[str, ClusterResult]
    # Who asked, for error texts.
    node_id: str = ""
    # Leaves that have no key of their own; made at the first question.
    _leaves: dict[str, ClusterConfig] = field(default_factory=dict, repr=False)

    def with_clusters(self, clusters: dict[str, ClusterResult]) -> XdsConfig:
        """The same listener and routes with other clusters."""
        return XdsConfig(
            self.listener, self.route_config, self.virtual_host, clusters, self.node_id
        )

    def find(self, name: str) -> ClusterConfig | ClusterError | None:
        """What is known about this cluster, also if it is only a leaf of an aggregate."""
        result = self.clusters.get(name)
        if isinstance(result, ClusterError):
            return result
        if result is not None:
            return result[0]
        if not self._leaves:
            # Clusters that routes name come first, and are never out of date (D25): they win.
            self._leaves.update(
                (entry.cluster_name, entry)
                for entries in reversed(self.clusters.values())
                if not isinstance(entries, ClusterError)
                for entry in entries
            )
        return self._leaves.get(name)


class XdsConfigWatcher(Protocol):
    """Who wants configs. Driven by the dependency manager."""

    def on_update(self, config: XdsConfig) -> None:
        """Everything that is needed is there."""
        ...

    def on_error(self, context: str, status: Status, held: XdsConfig | None) -> None:
        """The listener or the route configuration cannot be had; the context says which.

        The status is one that RPCs may end with: its text begins with the context. `held` is for
        RPCs that were routed before: the last config, with what is known now about the clusters
        that are subscribed to; None if there was no config. Called again whenever it changes.
        """
        ...

    def on_does_not_exist(self, context: str, status: Status, held: XdsConfig | None) -> None:
        """The listener or the route configuration does not exist; the rest as for `on_error`."""
        ...


class ClusterSubscription(Protocol):
    """A wish to know a cluster that no route may name."""

    def release(self) -> None:
        """It is not needed any more. Idempotent (A74-44)."""
        ...


class ClusterSubscriptions(Protocol):
    """What policies and selectors see of the dependency manager (A74-42)."""

    def subscribe(self, name: str) -> ClusterSubscription:
        """Have this cluster in configs, as soon as something is known about it."""
        ...
