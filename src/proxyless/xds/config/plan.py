"""Input and result of the dependency manager's decision: states of resources, and the plan.

Specs: A74.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from proxyless.base import OK, Status, StatusCode
from proxyless.base.frozen import frozen, mutable
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.error_texts import name_cluster

if TYPE_CHECKING:
    from proxyless.xds.config.endpoint_join import EndpointCollection, JoinedEndpoints
    from proxyless.xds.config.xds_config import ClusterResult, XdsConfig
    from proxyless.xds.resources import (
        Cluster,
        EndpointResource,
        Listener,
        RouteConfiguration,
    )

T = TypeVar("T")

# Host and port of a LOGICAL_DNS cluster.
DnsName = tuple[str, int]


@frozen
class ResourceState(Generic[T]):
    """The last notification about one resource: the resource or an error; neither if missing."""

    resource: T | None = None
    error: Status = OK
    # An error that leaves the resource in use.
    ambient_error: Status = OK

    @property
    def is_missing(self) -> bool:
        return self.resource is None and self.error.is_ok

    @property
    def is_unanswered(self) -> bool:
        """Whether there is no resource, and only because no server has answered."""
        return isinstance(self.error, NoAnswer)

    @property
    def does_not_exist(self) -> bool:
        return self.error.code is StatusCode.NOT_FOUND


MISSING: Final[ResourceState[Any]] = ResourceState()


@mutable
class ResourceStates:
    """The states of all watched resources, by name."""

    listeners: dict[str, ResourceState[Listener]] = field(default_factory=dict)
    route_configs: dict[str, ResourceState[RouteConfiguration]] = field(default_factory=dict)
    clusters: dict[str, ResourceState[Cluster]] = field(default_factory=dict)
    endpoints: dict[str, ResourceState[EndpointResource]] = field(default_factory=dict)
    # Collections of endpoints (LEDS), and EDS resources with the endpoints of theirs.
    collections: dict[str, ResourceState[EndpointCollection]] = field(default_factory=dict)
    joined: dict[str, JoinedEndpoints] = field(default_factory=dict)
    dns: dict[DnsName, ResourceState[EndpointResource]] = field(default_factory=dict)


@frozen
class ConfigTarget:
    """Listener of a channel's target, and the authority, which selects the virtual host."""

    listener_name: str
    authority: str
    # For error texts: the node, the channel's target, and the file that the argument `bootstrap=`
    # of the channel names.
    node_id: str = ""
    target: str = ""
    bootstrap_file: str = ""


@frozen
class ConfigError:
    """The error of the listener or the route configuration that prevents a config."""

    # The resource; the status's text begins with it.
    context: str
    # The status of RPCs, unless the resource does not exist.
    status: Status
    does_not_exist: bool = False


@frozen
class Missing:
    """A missing resource or DNS name that delays a config."""

    # As in error texts: `endpoints "a"`, `dns name "a:80"`.
    subject: str
    # The cluster of the endpoints or DNS name, or the aggregate of the cluster; otherwise empty.
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.subject} of {name_cluster(self.cluster)}" if self.cluster else self.subject


@mutable
class Plan:
    """The resources to watch, in the order in which they were found, and the outcome."""

    route_configs: dict[str, None] = field(default_factory=dict)
    clusters: dict[str, None] = field(default_factory=dict)
    endpoints: dict[str, None] = field(default_factory=dict)
    collections: dict[str, None] = field(default_factory=dict)
    dns: dict[DnsName, None] = field(default_factory=dict)
    # None if only resources of `missing` delay the config.
    outcome: XdsConfig | ConfigError | None = None
    missing: dict[Missing, None] = field(default_factory=dict)
    # Not empty: the routes in force are held, and the outcome is the config in force with the
    # current state of its clusters (D50).
    unanswered: dict[Missing, None] = field(default_factory=dict)
    # Results of the subscribed clusters, set if the outcome is not a config.
    subscribed: dict[str, ClusterResult] = field(default_factory=dict)
