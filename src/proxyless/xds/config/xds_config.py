"""XdsConfig: an immutable snapshot of all resources of one target; and its watcher.

Specs: A74. `clusters` has a key for each cluster of a route or a subscription. Its value is a tuple
of one entry; for an aggregate, of the aggregate and then its leaves, the preferred one first (D23).
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
    # None for an aggregate, and if there was an error, which is in the note.
    endpoints: EndpointResource | None = None
    # Errors of the endpoints, and the node ID, for error texts (A74-39).
    resolution_note: str = ""


@frozen
class ClusterError:
    """The error of a cluster. RPCs end with this status."""

    status: Status
    # RPCs of a cluster that does not exist are dropped (A31-41).
    does_not_exist: bool = False


ClusterResult = tuple[ClusterConfig, ...] | ClusterError


@frozen(eq=False)
class XdsConfig:
    """All resources that RPCs of one target need, from one point in time (A74-26)."""

    listener: Listener
    # From RDS, or inline in the listener.
    route_config: RouteConfiguration
    # One of the route configuration's (A74-21).
    virtual_host: VirtualHost
    clusters: dict[str, ClusterResult]
    # For error texts.
    node_id: str = ""
    # The clusters that the routes name, in order; for the next config with the same routes.
    routed: dict[str, None] = field(default_factory=dict, repr=False)
    # All entries by cluster, filled by the first `find` of a name that is no key of `clusters`.
    _entries: dict[str, ClusterConfig] = field(default_factory=dict, repr=False)

    def with_clusters(self, clusters: dict[str, ClusterResult]) -> XdsConfig:
        return XdsConfig(
            self.listener,
            self.route_config,
            self.virtual_host,
            clusters,
            self.node_id,
            self.routed,
        )

    def find(self, name: str) -> ClusterConfig | ClusterError | None:
        """The entry of this cluster, even if it is only a leaf of an aggregate."""
        result = self.clusters.get(name)
        if isinstance(result, ClusterError):
            return result
        if result is not None:
            return result[0]
        if not self._entries:
            # Reversed: clusters of routes come first, are never out of date (D25), and must win.
            self._entries.update(
                (entry.cluster_name, entry)
                for entries in reversed(self.clusters.values())
                if not isinstance(entries, ClusterError)
                for entry in entries
            )
        return self._entries.get(name)


class XdsConfigWatcher(Protocol):
    """Called by the dependency manager."""

    def on_update(self, config: XdsConfig) -> None: ...

    def on_error(self, context: str, status: Status, held: XdsConfig | None) -> None:
        """The listener or the route configuration is in error; the context names it.

        The status is that of RPCs: its text begins with the context. `held` is for RPCs that were
        routed before: the last config, with the current state of the subscribed clusters; None if
        there was no config. Called again whenever it changes.
        """
        ...

    def on_does_not_exist(self, context: str, status: Status, held: XdsConfig | None) -> None:
        """The listener or the route configuration does not exist; arguments as in `on_error`."""
        ...


class ClusterSubscription(Protocol):
    """Keeps a cluster in configs that no route may name."""

    def release(self) -> None:
        """Idempotent (A74-44)."""
        ...


class ClusterSubscriptions(Protocol):
    """The dependency manager, as policies and selectors call it (A74-42)."""

    def subscribe(self, name: str) -> ClusterSubscription:
        """Include this cluster in configs as soon as its resource, or an error, is there."""
        ...
