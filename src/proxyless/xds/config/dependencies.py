"""What is needed, and what is the config, given what is known?

Specs: A74-04..26, A74-28..40 and A37 (aggregates); decisions D23, D24, D25.

One pure function, `resolve`, from everything that watches and DNS have said so far to a `Plan`: the
resources that must be watched for that, and the outcome. The outcome is a config only if nothing
that routes name is missing; until then it is None, and whoever has an older config goes on with it.

A cluster that no route names, but that somebody subscribed to, never holds a config back: while
something of it is missing, what the previous config said about it stands (D25).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

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
# Clusters below one aggregate, and how many of those that are in error its note names.
GRAPH_MAX: Final = 10_000
NOTES_MAX: Final = 5

# Host and port of a LOGICAL_DNS cluster.
DnsName = tuple[str, int]


@frozen
class Answer(Generic[T]):
    """What is known about one resource. Without a resource, the error says why."""

    resource: T | None = None
    error: Status = OK
    # Trouble that leaves the resource in use.
    ambient_error: Status = OK

    @property
    def is_missing(self) -> bool:
        return self.resource is None and self.error.is_ok

    @property
    def does_not_exist(self) -> bool:
        return self.error.code is StatusCode.NOT_FOUND


@dataclass(slots=True)
class Known:
    """Everything that was said so far, by name of resource."""

    listener: Answer[Listener] = field(default_factory=Answer)
    route_configs: dict[str, Answer[RouteConfiguration]] = field(default_factory=dict)
    clusters: dict[str, Answer[Cluster]] = field(default_factory=dict)
    endpoints: dict[str, Answer[EndpointResource]] = field(default_factory=dict)
    dns: dict[DnsName, Answer[EndpointResource]] = field(default_factory=dict)


@frozen
class Wanted:
    """Whose config it is."""

    listener_name: str
    # Which virtual host is asked for.
    authority: str
    # For error texts.
    node_id: str = ""


@frozen
class Trouble:
    """There is no config, because of the listener or the route configuration."""

    # Which resource it is about: what the status's text begins with.
    context: str
    # One that RPCs may end with, unless the resource does not exist.
    status: Status
    does_not_exist: bool = False


@frozen
class Missing:
    """A resource or a DNS name without an answer, for which a config is withheld."""

    # As every text about it begins: `endpoints "a"`, `dns name "a:80"`.
    subject: str
    # The cluster that needs it: whose endpoints it has, or the aggregate above. Empty for others.
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.subject} of {name_cluster(self.cluster)}" if self.cluster else self.subject


@dataclass(slots=True)
class Plan:
    """What has to be watched, in the order in which it was found, and what came out."""

    route_configs: dict[str, None] = field(default_factory=dict)
    clusters: dict[str, None] = field(default_factory=dict)
    endpoints: dict[str, None] = field(default_factory=dict)
    dns: dict[DnsName, None] = field(default_factory=dict)
    # None: something is missing, and this is what.
    outcome: XdsConfig | Trouble | None = None
    missing: dict[Missing, None] = field(default_factory=dict)
    # Without a config: what is known about the clusters that are subscribed to.
    subscribed: dict[str, ClusterResult] = field(default_factory=dict)


def resolve(
    wanted: Wanted,
    known: Known,
    subscribed: Collection[str] = (),
    previous: XdsConfig | None = None,
) -> Plan:
    """What is needed for this listener and these subscriptions, and the config if all is there.

    Parts of the previous config that did not change are taken over as the same objects.
    """
    return _Resolution(wanted, known, subscribed, previous).run()


def routed_clusters(host: VirtualHost) -> dict[str, None]:
    """The clusters that a virtual host's routes name, each once, in their order (A74-09)."""
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
        wanted: Wanted,
        known: Known,
        subscribed: Collection[str],
        previous: XdsConfig | None,
    ) -> None:
        self._wanted = wanted
        self._known = known
        self._subscribed = subscribed
        self._previous: Mapping[str, ClusterResult] = previous.clusters if previous else {}
        self.plan = Plan()
        # Trouble with listener and routes that stay in use, for every cluster's note.
        self._ambient: list[str] = []
        # What has no answer yet, of what was looked at so far.
        self._missing: dict[Missing, None] = {}
        # Clusters that are no aggregates, as far as they were looked at.
        self._leaves: dict[str, ClusterConfig | Missing] = {}

    def run(self) -> Plan:
        found = self._find_virtual_host()
        clusters: dict[str, ClusterResult] = {}
        if isinstance(found, tuple):
            for name in routed_clusters(found[2]):
                result = self._resolve_cluster(name)
                if result is not None:
                    clusters[name] = result
        # Before the clusters that are only subscribed to: those hold nothing back (D25).
        self.plan.missing = dict(self._missing)
        self._add_subscribed(clusters)
        if isinstance(found, tuple) and not self.plan.missing:
            self.plan.outcome = XdsConfig(*found, clusters, self._wanted.node_id)
            return self.plan
        self.plan.outcome = found if isinstance(found, Trouble) else None
        names = self._subscribed
        self.plan.subscribed = {name: clusters[name] for name in names if name in clusters}
        return self.plan

    # Listener, route configuration, virtual host

    def _find_virtual_host(
        self,
    ) -> tuple[Listener, RouteConfiguration, VirtualHost] | Trouble | None:
        answer = self._known.listener
        context = name_listener(self._wanted.listener_name)
        if answer.resource is None:
            return self._trouble(context, answer)
        self._note_ambient(context, answer)
        listener = answer.resource
        if listener.api_listener is None:
            text = "is not an API listener, wanted one with api_listener"
            return self._trouble_text(context, text)
        routes = listener.api_listener.routes
        if isinstance(routes, RouteConfiguration):
            return self._choose_host(listener, routes, context)
        context = name_route_config(routes)
        self.plan.route_configs[routes] = None
        route_answer: Answer[RouteConfiguration] = self._known.route_configs.get(routes, Answer())
        if route_answer.resource is None:
            return self._trouble(context, route_answer)
        self._note_ambient(context, route_answer)
        return self._choose_host(listener, route_answer.resource, context)

    def _choose_host(
        self, listener: Listener, routes: RouteConfiguration, context: str
    ) -> tuple[Listener, RouteConfiguration, VirtualHost] | Trouble:
        host = find_virtual_host(routes.virtual_hosts, self._wanted.authority)
        if host is None:
            text = f"has no virtual host for {quote(self._wanted.authority)}"
            return self._trouble_text(context, text)
        return listener, routes, host

    # Clusters

    def _resolve_cluster(self, name: str) -> ClusterResult | None:
        """What the config says about this cluster; None if something is missing."""
        self.plan.clusters[name] = None
        answer = self.cluster_answer(name)
        if answer.is_missing:
            self._missing[Missing(name_cluster(name))] = None
            return None
        if answer.resource is None:
            return self._cluster_error(name, answer.error)
        if isinstance(answer.resource.discovery, AggregateCluster):
            return self._resolve_aggregate(name, answer.resource)
        entry = self.resolve_leaf(name, answer.resource)
        if isinstance(entry, Missing):
            self._missing[entry] = None
            return None
        return self._kept(name, (entry,))

    def resolve_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        """One entry for all clusters that lead to this one, or what it has no endpoints from."""
        if name not in self._leaves:
            self._leaves[name] = self._make_leaf(name, cluster)
        return self._leaves[name]

    def _make_leaf(self, name: str, cluster: Cluster) -> ClusterConfig | Missing:
        discovery = cluster.discovery
        answer: Answer[EndpointResource]
        if isinstance(discovery, EdsCluster):
            eds_name = discovery.service_name or name
            self.plan.endpoints[eds_name] = None
            answer = self._known.endpoints.get(eds_name, Answer())
            context = name_endpoints(eds_name)
        else:
            assert isinstance(discovery, LogicalDnsCluster), "an aggregate is no leaf"
            dns_name = (discovery.host, discovery.port)
            self.plan.dns[dns_name] = None
            answer = self._known.dns.get(dns_name, Answer())
            context = name_dns(discovery.host, discovery.port)
        if answer.is_missing:
            return Missing(context, name)
        note = self._note(name, context, answer)
        return ClusterConfig(name, cluster, answer.resource, note)

    def _resolve_aggregate(self, name: str, cluster: Cluster) -> ClusterResult | None:
        walk = _Walk(self, name)
        walk.visit(name, cluster, depth=1)
        if walk.limit:
            return self._aggregate_error(name, walk.limit)
        if walk.missing:
            self._missing |= walk.missing
            return None
        notes = walk.notes
        if not walk.leaves:
            said = [*notes, walk.loop] if walk.loop else notes
            why = f": {'; '.join(said)}" if said else ""
            return self._aggregate_error(name, f"has no leaf cluster{why}")
        # "skip it, with a note; error only when no leaf is left" - D24
        aggregate = ClusterConfig(name, cluster, None, self._join_notes(notes))
        return self._kept(name, (aggregate, *walk.leaves.values()))

    def cluster_answer(self, name: str) -> Answer[Cluster]:
        return self._known.clusters.get(name, Answer())

    def _kept(self, name: str, entries: tuple[ClusterConfig, ...]) -> tuple[ClusterConfig, ...]:
        """The same objects as before where nothing changed, so that policies see it cheaply."""
        before = self._previous.get(name)
        if not isinstance(before, tuple):
            return entries
        kept = {entry.cluster_name: entry for entry in before}
        merged = tuple(
            old if (old := kept.get(new.cluster_name)) is not None and _is_same(old, new) else new
            for new in entries
        )
        is_unchanged = len(merged) == len(before) and all(map(_is_identical, merged, before))
        return before if is_unchanged else merged

    def _add_subscribed(self, clusters: dict[str, ClusterResult]) -> None:
        for name in self._subscribed:
            if name in self.plan.clusters and name in clusters:
                continue
            result = self._resolve_cluster(name) or self._previous.get(name)
            if result is not None:
                clusters[name] = result

    # Texts

    def _note_ambient(self, context: str, answer: Answer[T]) -> None:
        if not answer.ambient_error.is_ok:
            self._ambient.append(about(context, answer.ambient_error.details))

    def _note(self, name: str, context: str, answer: Answer[EndpointResource]) -> str:
        """Why this cluster may have no or old endpoints; who asked, if there is nothing to say."""
        notes = []
        if answer.resource is None:
            notes.append(about(context, answer.error.details))
        elif not answer.resource.has_endpoints:
            notes.append(about(context, NO_ENDPOINT))
        if answer.resource is not None and not answer.ambient_error.is_ok:
            notes.append(about(context, answer.ambient_error.details))
        cluster = self.cluster_answer(name)
        if not cluster.ambient_error.is_ok:
            notes.append(about(name_cluster(name), cluster.ambient_error.details))
        notes.extend(self._ambient)
        return self._join_notes(notes) if notes else node_phrase(self._wanted.node_id)

    def _join_notes(self, notes: list[str]) -> str:
        return with_node("; ".join(notes), self._wanted.node_id) if notes else ""

    def _status(self, context: str, text: str) -> Status:
        """What RPCs end with, and what is logged: which resource, why, who we are."""
        whole = with_node(about(context, text), self._wanted.node_id)
        return Status(StatusCode.UNAVAILABLE, whole)

    def _trouble(self, context: str, answer: Answer[T]) -> Trouble | None:
        """Why there is no resource; None if it has not come yet."""
        if answer.is_missing:
            self._missing[Missing(context)] = None
            return None
        status = self._status(context, answer.error.details)
        return Trouble(context, status, answer.does_not_exist)

    def _trouble_text(self, context: str, text: str) -> Trouble:
        return Trouble(context, self._status(context, text))

    def _cluster_error(self, name: str, error: Status) -> ClusterError:
        status = self._status(name_cluster(name), error.details)
        return ClusterError(status, error.code is StatusCode.NOT_FOUND)

    def _aggregate_error(self, name: str, what: str) -> ClusterError:
        return ClusterError(self._status(name_cluster(name), f"aggregate {what}"))


class _Walk:
    """One aggregate's graph: depth first, in listed order, each cluster once (A74-12, A74-13)."""

    def __init__(self, resolution: _Resolution, root: str) -> None:
        self._resolution = resolution
        self._root = root
        self._seen: set[str] = set()
        self.leaves: dict[str, ClusterConfig] = {}
        self.errors: dict[str, Status] = {}
        self.missing: dict[Missing, None] = {}
        # Which limit the graph exceeds, and where; empty if it does not.
        self.limit = ""
        # The clusters from the root to the one that is visited; and the first loop, in words.
        self._path: list[str] = []
        self.loop = ""

    @property
    def notes(self) -> list[str]:
        """What is wrong with the leaves in error, as far as anybody can read it."""
        named = islice(self.errors.items(), NOTES_MAX)
        notes = [about(name_cluster(leaf), status.details) for leaf, status in named]
        if len(self.errors) > NOTES_MAX:
            notes.append(f"and {len(self.errors) - NOTES_MAX} more")
        return notes

    def visit(self, name: str, cluster: Cluster, depth: int) -> None:
        self._seen.add(name)
        if depth > DEPTH_MAX:
            self.limit = f"is nested more than {DEPTH_MAX} deep at {name_cluster(name)}"
            return
        if not isinstance(cluster.discovery, AggregateCluster):
            self._add_leaf(name, cluster)
            return
        self._path.append(name)
        for child in cluster.discovery.clusters:
            if child in self._path and not self.loop:
                loop = [*self._path[self._path.index(child) :], child]
                self.loop = f"{' > '.join(map(quote, loop))} is a loop"
            if child not in self._seen and not self.limit:
                self._visit_child(child, depth + 1)
        self._path.pop()

    def _visit_child(self, name: str, depth: int) -> None:
        if len(self._seen) > GRAPH_MAX:
            self.limit = f"has more than {GRAPH_MAX} clusters below it at {name_cluster(name)}"
            return
        resolution = self._resolution
        resolution.plan.clusters[name] = None
        answer = resolution.cluster_answer(name)
        if answer.resource is not None:
            self.visit(name, answer.resource, depth)
            return
        self._seen.add(name)
        if answer.is_missing:
            self.missing[Missing(name_cluster(name), self._root)] = None
        else:
            self.errors[name] = answer.error

    def _add_leaf(self, name: str, cluster: Cluster) -> None:
        entry = self._resolution.resolve_leaf(name, cluster)
        if isinstance(entry, Missing):
            self.missing[entry] = None
        else:
            self.leaves[name] = entry


def _is_same(old: ClusterConfig, new: ClusterConfig) -> bool:
    """By identity: a resource that is delivered again unchanged is the same object."""
    return (
        old.cluster is new.cluster
        and old.endpoints is new.endpoints
        and old.resolution_note == new.resolution_note
    )


def _is_identical(left: object, right: object) -> bool:
    return left is right
