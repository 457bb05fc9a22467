"""Decision of the dependency manager: which resources a target needs, and its XdsConfig.

Specs: A74-04..26, A74-28..40 and A37 (aggregates); decisions D23, D24, D25.

`resolve` is a pure function from the states of all resources to a `Plan`: the resources to watch,
and the outcome. The outcome is a config only if no resource that the routes need is missing; until
then it is None, and the previous config stays in use.

A cluster that is subscribed to, but in no route, never delays a config: while a resource of it is
missing, its entry of the previous config is used (D25).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from proxyless.base import OK, Status, StatusCode, quote
from proxyless.base.frozen import frozen
from proxyless.xds.config.virtual_hosts import find_virtual_host
from proxyless.xds.config.xds_config import (
    ClusterConfig,
    ClusterError,
    ClusterResult,
    XdsConfig,
)
from proxyless.xds.error_texts import (
    NO_ENDPOINT,
    about,
    name_cluster,
    name_dns,
    name_endpoints,
    name_listener,
    name_route_config,
    node_phrase,
    with_node,
)
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    ClusterChoice,
    EdsCluster,
    EndpointResource,
    Listener,
    LogicalDnsCluster,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
    WeightedChoice,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

T = TypeVar("T")

# Clusters in one chain of aggregates, root and leaf included (A74-13).
DEPTH_MAX: Final = 16
# Clusters below one aggregate, and how many of its leaves in error are named in the note.
GRAPH_MAX: Final = 4_096
NOTES_MAX: Final = 5
# Clusters that the routes of one virtual host name.
ROUTED_MAX: Final = 4_096
# Clusters below all aggregates of one config; one below several aggregates counts several times.
AGGREGATED_MAX: Final = 10_000

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
    def does_not_exist(self) -> bool:
        return self.error.code is StatusCode.NOT_FOUND


_MISSING: Final[ResourceState[Any]] = ResourceState()


@dataclass(slots=True)
class ResourceStates:
    """The states of all watched resources, by name."""

    listeners: dict[str, ResourceState[Listener]] = field(default_factory=dict)
    route_configs: dict[str, ResourceState[RouteConfiguration]] = field(default_factory=dict)
    clusters: dict[str, ResourceState[Cluster]] = field(default_factory=dict)
    endpoints: dict[str, ResourceState[EndpointResource]] = field(default_factory=dict)
    dns: dict[DnsName, ResourceState[EndpointResource]] = field(default_factory=dict)


@frozen
class ConfigTarget:
    """The listener and the authority, which selects the virtual host."""

    listener_name: str
    authority: str
    # For error texts.
    node_id: str = ""


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


@dataclass(slots=True)
class Plan:
    """The resources to watch, in the order in which they were found, and the outcome."""

    route_configs: dict[str, None] = field(default_factory=dict)
    clusters: dict[str, None] = field(default_factory=dict)
    endpoints: dict[str, None] = field(default_factory=dict)
    dns: dict[DnsName, None] = field(default_factory=dict)
    # None if `missing` is not empty.
    outcome: XdsConfig | ConfigError | None = None
    missing: dict[Missing, None] = field(default_factory=dict)
    # Results of the subscribed clusters, set if the outcome is not a config.
    subscribed: dict[str, ClusterResult] = field(default_factory=dict)


def resolve(
    target: ConfigTarget,
    states: ResourceStates,
    subscribed: Collection[str] = (),
    previous: XdsConfig | None = None,
) -> Plan:
    """The plan for this target and these subscriptions.

    Unchanged parts of the previous config are reused as the same objects.
    """
    return _Resolution(target, states, subscribed, previous).run()


def routed_clusters(host: VirtualHost) -> dict[str, None]:
    """The clusters that a virtual host's routes name, in order (A74-09)."""
    return dict.fromkeys(name for route in host.routes for name in _clusters_of(route.action))


def _clusters_of(action: object) -> Iterator[str]:
    if not isinstance(action, RouteAction):
        return
    choice = action.choice
    if isinstance(choice, ClusterChoice):
        yield choice.cluster
    elif isinstance(choice, WeightedChoice):
        for entry in choice.clusters:
            yield entry.name


class _Resolution:
    """One run of `resolve`."""

    def __init__(
        self,
        target: ConfigTarget,
        states: ResourceStates,
        subscribed: Collection[str],
        previous: XdsConfig | None,
    ) -> None:
        self._target = target
        self._states = states
        self._subscribed = subscribed
        self._previous: Mapping[str, ClusterResult] = previous.clusters if previous else {}
        self.plan = Plan()
        # Ambient errors of listener and routes, for every cluster's note.
        self._ambient: list[str] = []
        self._missing: dict[Missing, None] = {}
        # Shared by all aggregates.
        self._leaves: dict[str, ClusterConfig | Missing] = {}
        # The number of clusters that aggregates may still have.
        self.aggregated_left = AGGREGATED_MAX

    def run(self) -> Plan:
        found = self._find_virtual_host()
        clusters: dict[str, ClusterResult] = {}
        if isinstance(found, tuple):
            routed = routed_clusters(found[2])
            if len(routed) > ROUTED_MAX:
                found = self._too_many_clusters(found[1].name, len(routed))
                routed = {}
            for name in routed:
                result = self._resolve_cluster(name)
                if result is not None:
                    clusters[name] = result
        # A copy: clusters that are only subscribed to do not delay a config (D25).
        self.plan.missing = dict(self._missing)
        self._add_subscribed(clusters)
        if isinstance(found, tuple) and not self.plan.missing:
            self.plan.outcome = XdsConfig(*found, clusters, self._target.node_id)
            return self.plan
        self.plan.outcome = found if isinstance(found, ConfigError) else None
        names = self._subscribed
        self.plan.subscribed = {name: clusters[name] for name in names if name in clusters}
        return self.plan

    # Listener, route configuration, virtual host

    def _find_virtual_host(
        self,
    ) -> tuple[Listener, RouteConfiguration, VirtualHost] | ConfigError | None:
        name = self._target.listener_name
        state = self._states.listeners.get(name, _MISSING)
        listener = state.resource
        if listener is None:
            return self._missing_or_error(name_listener(name), state)
        if not state.ambient_error.is_ok:
            self._ambient.append(about(name_listener(name), state.ambient_error.details))
        if listener.api_listener is None:
            text = "is not an API listener, wanted one with api_listener"
            return self._config_error(name_listener(name), text)
        routes, name_it = listener.api_listener.routes, name_listener
        if isinstance(routes, str):
            name, name_it = routes, name_route_config
            self.plan.route_configs[name] = None
            route_state = self._states.route_configs.get(name, _MISSING)
            if route_state.resource is None:
                return self._missing_or_error(name_it(name), route_state)
            if not route_state.ambient_error.is_ok:
                self._ambient.append(about(name_it(name), route_state.ambient_error.details))
            routes = route_state.resource
        host = find_virtual_host(routes.virtual_hosts, self._target.authority)
        if host is None:
            text = f"has no virtual host for {quote(self._target.authority)}"
            return self._config_error(name_it(name), text)
        return listener, routes, host

    # Clusters

    def _resolve_cluster(self, name: str) -> ClusterResult | None:
        """The config's entry of this cluster; None if a resource is missing."""
        self.plan.clusters[name] = None
        state = self.cluster_state(name)
        if state.is_missing:
            self._missing[Missing(name_cluster(name))] = None
            return None
        if state.resource is None:
            status = self._status(name_cluster(name), state.error.details)
            return ClusterError(status, state.does_not_exist)
        if isinstance(state.resource.discovery, AggregateCluster):
            return self._resolve_aggregate(name, state.resource)
        entry = self.resolve_leaf(name, state.resource)
        if isinstance(entry, Missing):
            self._missing[entry] = None
            return None
        return self._reuse_previous(name, (entry,))

    def resolve_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        if name not in self._leaves:
            self._leaves[name] = self._make_leaf(name, cluster)
        return self._leaves[name]

    def _make_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        discovery = cluster.discovery
        if isinstance(discovery, EdsCluster):
            eds_name = discovery.service_name or name
            self.plan.endpoints[eds_name] = None
            state = self._states.endpoints.get(eds_name, _MISSING)
        else:
            assert isinstance(discovery, LogicalDnsCluster), "an aggregate is no leaf"
            dns_name = (discovery.host, discovery.port)
            self.plan.dns[dns_name] = None
            state = self._states.dns.get(dns_name, _MISSING)
        if state.is_missing:
            return Missing(_name_endpoints_of(name, cluster), name)
        return ClusterConfig(name, cluster, state.resource, self._note(name, cluster, state))

    def _resolve_aggregate(self, name: str, cluster: Cluster) -> ClusterResult | None:
        walk = _AggregateWalk(self, name)
        walk.visit(name, cluster, depth=1)
        if walk.limit:
            return self._aggregate_error(name, walk.limit)
        if walk.missing:
            self._missing |= walk.missing
            return None
        notes = walk.notes
        if not walk.leaves:
            causes = "; ".join([*notes, walk.loop] if walk.loop else notes)
            text = f"has no leaf cluster: {causes}" if causes else "has no leaf cluster"
            return self._aggregate_error(name, text)
        # "skip it, with a note; error only when no leaf is left" - D24
        note = with_node("; ".join(notes), self._target.node_id) if notes else ""
        aggregate = ClusterConfig(name, cluster, None, note)
        return self._reuse_previous(name, (aggregate, *walk.leaves.values()))

    def cluster_state(self, name: str) -> ResourceState[Cluster]:
        return self._states.clusters.get(name, _MISSING)

    def _reuse_previous(
        self, name: str, entries: tuple[ClusterConfig, ...]
    ) -> tuple[ClusterConfig, ...]:
        """Unchanged entries as the previous objects: policies compare by identity."""
        before = self._previous.get(name)
        if not isinstance(before, tuple):
            return entries
        by_name = {entry.cluster_name: entry for entry in before}
        merged = tuple(
            old if (old := by_name.get(new.cluster_name)) and _is_same(old, new) else new
            for new in entries
        )
        is_unchanged = len(merged) == len(before) and all(map(is_, merged, before))
        return before if is_unchanged else merged

    def _add_subscribed(self, clusters: dict[str, ClusterResult]) -> None:
        for name in self._subscribed:
            if name not in clusters:
                result = self._resolve_cluster(name) or self._previous.get(name)
                if result is not None:
                    clusters[name] = result

    # Texts

    def _note(self, name: str, cluster: Cluster, state: ResourceState[EndpointResource]) -> str:
        """Why the cluster may have no endpoints or old ones; otherwise only the node ID."""
        # Texts are made only if there is something to report: this runs for every update.
        texts = []
        if state.resource is None:
            texts.append(state.error.details)
        else:
            if not state.resource.has_endpoints:
                texts.append(NO_ENDPOINT)
            if not state.ambient_error.is_ok:
                texts.append(state.ambient_error.details)
        notes = [about(_name_endpoints_of(name, cluster), text) for text in texts] if texts else []
        cluster_error = self.cluster_state(name).ambient_error
        if not cluster_error.is_ok:
            notes.append(about(name_cluster(name), cluster_error.details))
        notes += self._ambient
        node_id = self._target.node_id
        return with_node("; ".join(notes), node_id) if notes else node_phrase(node_id)

    def _status(self, context: str, text: str) -> Status:
        """The status of RPCs: resource, cause, node ID."""
        details = with_node(about(context, text), self._target.node_id)
        return Status(StatusCode.UNAVAILABLE, details)

    def _missing_or_error(self, context: str, state: ResourceState[T]) -> ConfigError | None:
        if state.is_missing:
            self._missing[Missing(context)] = None
            return None
        status = self._status(context, state.error.details)
        return ConfigError(context, status, state.does_not_exist)

    def _config_error(self, context: str, text: str) -> ConfigError:
        return ConfigError(context, self._status(context, text))

    def _too_many_clusters(self, route_config: str, count: int) -> ConfigError:
        text = f"has a virtual host that names {count} clusters, wanted at most {ROUTED_MAX}"
        return self._config_error(name_route_config(route_config), text)

    def _aggregate_error(self, name: str, text: str) -> ClusterError:
        return ClusterError(self._status(name_cluster(name), f"aggregate {text}"))


def _name_endpoints_of(name: str, cluster: Cluster) -> str:
    """Subject of texts about the endpoints of a leaf cluster."""
    discovery = cluster.discovery
    if isinstance(discovery, LogicalDnsCluster):
        return name_dns(discovery.host, discovery.port)
    assert isinstance(discovery, EdsCluster), "an aggregate is no leaf"
    return name_endpoints(discovery.service_name or name)


class _AggregateWalk:
    """A walk over one aggregate's graph: depth first, each cluster once (A74-12, A74-13)."""

    def __init__(self, resolution: _Resolution, root: str) -> None:
        self._resolution = resolution
        self._root = root
        self._visited: set[str] = set()
        self.leaves: dict[str, ClusterConfig] = {}
        self.errors: dict[str, Status] = {}
        self.missing: dict[Missing, None] = {}
        # The error text of an exceeded limit; empty if there is none.
        self.limit = ""
        # The clusters from the root to the current one; and the text about the first loop.
        self._path: list[str] = []
        self.loop = ""

    @property
    def notes(self) -> list[str]:
        """The errors of leaves: the first ones, and the number of others."""
        named = islice(self.errors.items(), NOTES_MAX)
        notes = [about(name_cluster(leaf), status.details) for leaf, status in named]
        if len(self.errors) > NOTES_MAX:
            notes.append(f"and {len(self.errors) - NOTES_MAX} more")
        return notes

    def visit(self, name: str, cluster: Cluster, depth: int) -> None:
        self._visited.add(name)
        if depth > DEPTH_MAX:
            self.limit = f"is nested more than {DEPTH_MAX} deep at {name_cluster(name)}"
            return
        if not isinstance(cluster.discovery, AggregateCluster):
            entry = self._resolution.resolve_leaf(name, cluster)
            if isinstance(entry, Missing):
                self.missing[entry] = None
            else:
                self.leaves[name] = entry
            return
        self._path.append(name)
        for child in cluster.discovery.clusters:
            if child in self._path and not self.loop:
                loop = [*self._path[self._path.index(child) :], child]
                self.loop = f"{' > '.join(map(quote, loop))} is a loop"
            if child not in self._visited and not self.limit:
                self._visit_child(child, depth + 1)
        self._path.pop()

    def _visit_child(self, name: str, depth: int) -> None:
        if len(self._visited) > GRAPH_MAX:
            self.limit = f"has more than {GRAPH_MAX} clusters below it at {name_cluster(name)}"
            return
        resolution = self._resolution
        if resolution.aggregated_left == 0:
            self.limit = f"exceeds the {AGGREGATED_MAX} clusters of all aggregates of one config"
            return
        resolution.aggregated_left -= 1
        resolution.plan.clusters[name] = None
        state = resolution.cluster_state(name)
        if state.resource is not None:
            self.visit(name, state.resource, depth)
            return
        self._visited.add(name)
        if state.is_missing:
            self.missing[Missing(name_cluster(name), self._root)] = None
        else:
            self.errors[name] = state.error


def _is_same(old: ClusterConfig, new: ClusterConfig) -> bool:
    """Compares by identity: an unchanged resource that is delivered again is the same object."""
    return (
        old.cluster is new.cluster
        and old.endpoints is new.endpoints
        and old.resolution_note == new.resolution_note
    )
