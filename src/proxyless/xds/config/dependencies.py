"""Decision of the dependency manager: which resources a target needs, and its XdsConfig.

Specs: A74-04..26, A74-28..40 and A37 (aggregates); LE (collections); decisions D23, D24, D25, D50.

`resolve` is a pure function from the states of all resources to a `Plan`: the resources to watch,
and the outcome. The outcome is a config only if no resource that the routes need is missing; until
then it is None, and the previous config stays in use.

A cluster that is subscribed to, but in no route, never delays a config: while a resource of it is
missing, its entry of the previous config is used (D25).

A control plane that is away does not end traffic. While RPCs are routed by one config, and the next
one lacks a resource only because no server answers, the routes in force are held; their clusters
continue to change (D50).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import OK, Status, StatusCode, quote
from proxyless.xds.config.plan import (
    MISSING,
    ConfigError,
    ConfigTarget,
    Missing,
    Plan,
    ResourceState,
    ResourceStates,
)
from proxyless.xds.config.resolution_notes import describe_endpoints, name_endpoints_of
from proxyless.xds.config.virtual_hosts import (
    find_virtual_host,
    limited_clusters,
    routed_clusters,
)
from proxyless.xds.config.xds_config import (
    ClusterConfig,
    ClusterError,
    ClusterResult,
    XdsConfig,
)
from proxyless.xds.error_texts import (
    about,
    name_cluster,
    name_listener,
    name_route_config,
    node_phrase,
    with_node,
)
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    EdsCluster,
    Listener,
    LogicalDnsCluster,
    RouteConfiguration,
    VirtualHost,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

T = TypeVar("T")

# Clusters in one chain of aggregates, root and leaf included (A74-13).
DEPTH_MAX: Final = 16
# Clusters below one aggregate, and how many of its leaves in error are named in the note.
GRAPH_MAX: Final = 4_096
NOTES_MAX: Final = 5
# Clusters below all aggregates of one config; one below several aggregates counts several times.
AGGREGATED_MAX: Final = 10_000


def resolve(
    target: ConfigTarget,
    states: ResourceStates,
    subscribed: Collection[str] = (),
    previous: XdsConfig | None = None,
    *,
    may_hold: bool = False,
) -> Plan:
    """The plan for this target and these subscriptions.

    Unchanged parts of the previous config are reused as the same objects. `may_hold`: RPCs are
    routed by the previous config, and it stays in force while no server answers (D50).
    """
    in_force = previous if may_hold else None
    return _Resolution(target, states, subscribed, previous, in_force).run()


class _Resolution:
    """One run of `resolve`."""

    def __init__(
        self,
        target: ConfigTarget,
        states: ResourceStates,
        subscribed: Collection[str],
        previous: XdsConfig | None,
        in_force: XdsConfig | None,
    ) -> None:
        self._target = target
        self._states = states
        self._subscribed = subscribed
        self._previous = previous
        self._previous_clusters: Mapping[str, ClusterResult] = previous.clusters if previous else {}
        self._node_phrase = node_phrase(target.node_id)
        self.plan = Plan()
        # Ambient errors of listener and routes, for every cluster's note.
        self._ambient: dict[str, Status] = {}
        self._missing: dict[Missing, None] = {}
        # The config that may be held, and the reasons to hold it.
        self._in_force = in_force
        self._unanswered: dict[Missing, None] = {}
        # Whether a cluster that is not in that config is a reason; None if not computed yet.
        self._may_new_cluster_hold: bool | None = None
        # Leaves, shared by all aggregates; and those whose endpoints no server has answered.
        self._leaves: dict[str, ClusterConfig | Missing] = {}
        self._silent_leaves: dict[str, Missing] = {}
        # The number of clusters that aggregates may still have.
        self.aggregated_left = AGGREGATED_MAX

    def run(self) -> Plan:
        found = self._find_virtual_host()
        clusters: dict[str, ClusterResult] = {}
        routed: dict[str, None] = {}
        if isinstance(found, tuple):
            limited = self._find_routed(found[2])
            if isinstance(limited, str):
                found = self._config_error(name_route_config(found[1].name), limited)
            else:
                routed = limited
            for name in routed:
                result = self._resolve_cluster(name)
                if result is not None:
                    clusters[name] = result
        # Copies: clusters that are only subscribed to do not delay a config (D25).
        self.plan.missing, self.plan.unanswered = dict(self._missing), dict(self._unanswered)
        self._may_new_cluster_hold = False
        if self._in_force is not None and self._unanswered:
            return self._hold(self._in_force)
        self._add_subscribed(clusters)
        if isinstance(found, tuple) and not self.plan.missing:
            self.plan.outcome = XdsConfig(*found, clusters, self._target.node_id, routed)
            return self.plan
        self.plan.outcome = found if isinstance(found, ConfigError) else None
        names = self._subscribed
        self.plan.subscribed = {name: clusters[name] for name in names if name in clusters}
        return self.plan

    def _find_routed(self, host: VirtualHost) -> dict[str, None] | str:
        """`limited_clusters`, reused: most updates do not change the routes, which may be many."""
        previous = self._previous
        if previous is not None and previous.virtual_host is host and previous.routed:
            return previous.routed
        return limited_clusters(host)

    def _hold(self, config: XdsConfig) -> Plan:
        """The config in force, with the current state of its clusters.

        A cluster that was deleted, or whose endpoints were, is used as before: its deletion belongs
        to the change that waits (A74-18).
        """
        clusters: dict[str, ClusterResult] = {}
        for name in config.routed or routed_clusters(config.virtual_host):
            found = self._resolve_cluster(name)
            is_found = isinstance(found, tuple) and any(each.endpoints for each in found)
            clusters[name] = found if found and is_found else self._keep(name, config)
        self._add_subscribed(clusters)
        self.plan.outcome = config.with_clusters(clusters)
        return self.plan

    def _keep(self, name: str, config: XdsConfig) -> ClusterResult:
        """The entry in force of a cluster whose new one waits. Its endpoints still change."""
        before = config.clusters[name]
        if isinstance(before, ClusterError):
            return before
        return self._reuse_previous(name, tuple(map(self._keep_leaf, before)))

    def _keep_leaf(self, entry: ClusterConfig) -> ClusterConfig:
        if isinstance(entry.cluster.discovery, AggregateCluster):
            return entry
        leaf = self._make_leaf(entry.cluster_name, entry.cluster)
        return entry if isinstance(leaf, Missing) or leaf.endpoints is None else leaf

    def _may_hold(self, cluster: str) -> bool:
        """Whether this cluster, without an answer, holds the config in force.

        It does not if it is in error in that config, too: holding it would help no RPC.
        """
        if self._in_force is None:
            return False
        before = self._in_force.clusters.get(cluster)
        if before is not None:
            return _has_endpoints(before)
        if self._may_new_cluster_hold is None:
            # No RPC would be helped by a config without any endpoint.
            found = self._in_force.clusters.values()
            self._may_new_cluster_hold = any(map(_has_endpoints, found))
        return self._may_new_cluster_hold

    # Listener, route configuration, virtual host

    def _find_virtual_host(
        self,
    ) -> tuple[Listener, RouteConfiguration, VirtualHost] | ConfigError | None:
        """The listener, its routes and the virtual host; or an error; None while one is awaited."""
        name = self._target.listener_name
        state = self._states.listeners.get(name, MISSING)
        listener = state.resource
        if listener is None:
            return self._missing_or_error(name_listener(name), state)
        if not state.ambient_error.is_ok:
            self._ambient[name_listener(name)] = state.ambient_error
        if listener.api_listener is None:
            text = "is not an API listener, wanted one with api_listener"
            return self._config_error(name_listener(name), text)
        routes, name_it = listener.api_listener.routes, name_listener
        if isinstance(routes, str):
            name, name_it = routes, name_route_config
            self.plan.route_configs[name] = None
            route_state = self._states.route_configs.get(name, MISSING)
            if route_state.resource is None:
                return self._missing_or_error(name_it(name), route_state)
            if not route_state.ambient_error.is_ok:
                self._ambient[name_it(name)] = route_state.ambient_error
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
        return self._find_unchanged(name, state) or self._resolve_state(name, state)

    def _resolve_state(self, name: str, state: ResourceState[Cluster]) -> ClusterResult | None:
        if state.is_missing:
            self._missing[Missing(name_cluster(name))] = None
            return None
        if state.resource is None:
            return self._cluster_error(name, state)
        if isinstance(state.resource.discovery, AggregateCluster):
            return self._resolve_aggregate(name, state.resource)
        entry = self.resolve_leaf(name, state.resource)
        if isinstance(entry, Missing):
            self._missing[entry] = None
            return None
        if name in self._silent_leaves and self._may_hold(name):
            self._unanswered[self._silent_leaves[name]] = None
            return None
        return self._reuse_previous(name, (entry,))

    def _find_unchanged(
        self, name: str, state: ResourceState[Cluster]
    ) -> tuple[ClusterConfig, ...] | None:
        """The previous entry of an EDS cluster, if it is the same and there is no error.

        The result is that of `_resolve_state`, in a fifth of the time: an update changes one
        cluster of a thousand.
        """
        before = self._previous_clusters.get(name)
        if not isinstance(before, tuple) or len(before) > 1 or self._ambient:
            return None
        entry, cluster = before[0], state.resource
        if cluster is not entry.cluster or state.ambient_error is not OK:
            return None
        discovery = entry.cluster.discovery
        if not isinstance(discovery, EdsCluster) or entry.resolution_note != self._node_phrase:
            return None
        eds_name = discovery.service_name or name
        endpoints = self._states.endpoints.get(eds_name, MISSING)
        if endpoints.resource is not entry.endpoints or endpoints.ambient_error is not OK:
            return None
        self.plan.endpoints[eds_name] = None
        return before

    def _cluster_error(self, name: str, state: ResourceState[Cluster]) -> ClusterError | None:
        if state.is_unanswered and self._may_hold(name):
            self._unanswered[Missing(name_cluster(name))] = None
            return None
        status = self._status(name_cluster(name), state.error.details)
        return ClusterError(status, state.does_not_exist)

    def resolve_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        if name not in self._leaves:
            self._leaves[name] = self._make_leaf(name, cluster)
        return self._leaves[name]

    def _make_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        discovery = cluster.discovery
        if isinstance(discovery, EdsCluster):
            eds_name = discovery.service_name or name
            self.plan.endpoints[eds_name] = None
            state = self._states.endpoints.get(eds_name, MISSING)
        else:
            assert isinstance(discovery, LogicalDnsCluster), "an aggregate is not a leaf"
            dns_name = (discovery.host, discovery.port)
            self.plan.dns[dns_name] = None
            state = self._states.dns.get(dns_name, MISSING)
        if state.is_missing:
            return Missing(name_endpoints_of(name, cluster), name)
        if state.is_unanswered:
            self._silent_leaves[name] = Missing(name_endpoints_of(name, cluster), name)
        errors: Mapping[str, Status] = {}
        if state.resource is not None and state.resource.collections:
            self.plan.collections |= dict.fromkeys(state.resource.collections)
            from proxyless.xds.config.endpoint_join import join_collections  # noqa: PLC0415

            found = join_collections(self._states, state.resource)
            if found.missing:
                return Missing(found.missing, name)
            if found.unanswered:
                self._silent_leaves[name] = Missing(found.unanswered, name)
            state, errors = replace(state, resource=found.resource), found.errors
        cluster_error = self.cluster_state(name).ambient_error
        ambient = {name_cluster(name): cluster_error, **self._ambient, **errors}
        note = describe_endpoints(name_endpoints_of(name, cluster), state, ambient)
        note = with_node(note, self._target.node_id) if note else self._node_phrase
        return ClusterConfig(name, cluster, state.resource, note)

    def _resolve_aggregate(self, name: str, cluster: Cluster) -> ClusterResult | None:
        walk = _AggregateWalk(self, name)
        walk.visit(name, cluster, depth=1)
        if walk.limit:
            return self._aggregate_error(name, walk.limit)
        if walk.missing:
            self._missing |= walk.missing
            return None
        if self._may_hold(name) and (unanswered := self._unanswered_of(walk)):
            self._unanswered |= unanswered
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

    def _unanswered_of(self, walk: _AggregateWalk) -> dict[Missing, None]:
        """What no server has answered. Nothing if a leaf has endpoints: an idle backup has none."""
        leaves, silent = walk.leaves, self._silent_leaves
        unanswered = walk.unanswered | {silent[name]: None for name in leaves if name in silent}
        found = (each.endpoints for name, each in leaves.items() if name not in silent)
        return {} if any(each and each.has_endpoints for each in found) else unanswered

    def cluster_state(self, name: str) -> ResourceState[Cluster]:
        return self._states.clusters.get(name, MISSING)

    def _reuse_previous(
        self, name: str, entries: tuple[ClusterConfig, ...]
    ) -> tuple[ClusterConfig, ...]:
        """Unchanged entries as the previous objects: policies compare by identity."""
        before = self._previous_clusters.get(name)
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
                result = self._resolve_cluster(name) or self._previous_clusters.get(name)
                if result is not None:
                    clusters[name] = result

    # Texts

    def _status(self, context: str, text: str) -> Status:
        """The status of RPCs: resource, cause, node ID."""
        details = with_node(about(context, text), self._target.node_id)
        return Status(StatusCode.UNAVAILABLE, details)

    def _missing_or_error(self, context: str, state: ResourceState[T]) -> ConfigError | None:
        if state.is_missing:
            self._missing[Missing(context)] = None
            return None
        if state.is_unanswered and self._in_force is not None:
            self._unanswered[Missing(context)] = None
            return None
        status = self._status(context, state.error.details)
        return ConfigError(context, status, state.does_not_exist)

    def _config_error(self, context: str, text: str) -> ConfigError:
        return ConfigError(context, self._status(context, text))

    def _aggregate_error(self, name: str, text: str) -> ClusterError:
        return ClusterError(self._status(name_cluster(name), f"aggregate {text}"))


class _AggregateWalk:
    """A walk over one aggregate's graph: depth first, each cluster once (A74-12, A74-13)."""

    def __init__(self, resolution: _Resolution, root: str) -> None:
        self._resolution = resolution
        self._root = root
        self._visited: set[str] = set()
        self.leaves: dict[str, ClusterConfig] = {}
        self.errors: dict[str, Status] = {}
        self.missing: dict[Missing, None] = {}
        # Clusters below it that no server has answered; they are in `errors`, too.
        self.unanswered: dict[Missing, None] = {}
        # The error text of an exceeded limit; empty if there is none.
        self.limit = ""
        # The clusters from the root to the current one; and the text about the first loop.
        self._path: list[str] = []
        self.loop = ""

    @property
    def notes(self) -> list[str]:
        """The errors of leaves: the first ones, and the number of others."""
        # An outage of a server affects many leaves, and is named once.
        names: dict[str, list[str]] = {}
        for leaf, status in islice(self.errors.items(), NOTES_MAX):
            names.setdefault(status.details, []).append(name_cluster(leaf))
        notes = [about(", ".join(leaves), details) for details, leaves in names.items()]
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
            if state.is_unanswered:
                self.unanswered[Missing(name_cluster(name), self._root)] = None


def _has_endpoints(result: ClusterResult) -> bool:
    """Whether there is any endpoint. A draining one counts: it takes RPCs with a session."""
    return not isinstance(result, ClusterError) and any(
        locality.endpoints
        for each in result
        if each.endpoints is not None
        for priority in each.endpoints.priorities
        for locality in priority
    )


def _is_same(old: ClusterConfig, new: ClusterConfig) -> bool:
    """Whether the entries are equal, by identity: an unchanged resource is the same object."""
    return (
        old.cluster is new.cluster
        and old.endpoints is new.endpoints
        and old.resolution_note == new.resolution_note
    )
