"""Lint of a whole mesh: findings about resources that are valid, and do not fit together.

Specs: A37 and A75 (aggregates), A42 (hashes), A50 (outlier detection), A55 (sessions), A31.

A missing resource is reported by the caller, which has the references of each resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base.frozen import frozen
from proxyless.observe import parsed_fields
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.xds.view import collection_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Full name of the message type, and name.
ResourceKey: TypeAlias = tuple[str, str]
# Number of the resource, and a finding about it.
MeshFinding: TypeAlias = "tuple[int, Finding]"

_COOKIE_STATE: Final = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"
_ENDPOINTS: Final = parsed_fields.CLUSTER_LOAD_ASSIGNMENT
_RING_HASH_TYPE: Final = "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash"
_MANAGER: Final = f'api_listener.api_listener["{parsed_fields.MANAGER}"]'
_INLINE: Final = f"{_MANAGER}.route_config."
# Defaults of Envoy's API.
_MINIMUM_HOSTS: Final = 5
_CERTAIN: Final = 100
_WARNING: Final = Severity.WARNING


@frozen
class LintedResource:
    """A resource with the references to others that it has."""

    key: ResourceKey
    message: Proto
    references: tuple[ResourceKey, ...] = ()


def lint_mesh(
    resources: Sequence[LintedResource], audiences: frozenset[Audience] = frozenset()
) -> list[MeshFinding]:
    """Findings about a mesh for proxyless and these audiences, with the number of the resource."""
    mesh = _LintedMesh(resources)
    found = [
        *mesh.find_unused(),
        *mesh.find_loops(),
        *mesh.find_listener_mistakes(),
        *mesh.find_hash_mistakes(),
        *mesh.find_small_clusters(),
        *mesh.find_shared_leaves(),
    ]
    shown = {Audience.PROXYLESS, *audiences}
    return [each for each in found if each[1].audience in shown]


class _LintedMesh:
    """The resources by key, and what can be computed from them."""

    def __init__(self, resources: Sequence[LintedResource]) -> None:
        self._resources: Final = resources
        self._numbers: Final = {each.key: number for number, each in enumerate(resources)}

    def _of_type(self, name: str) -> Iterator[tuple[int, LintedResource]]:
        for number, resource in enumerate(self._resources):
            if resource.key[0] == name:
                yield number, resource

    def _reached_from(self, keys: Sequence[ResourceKey]) -> set[ResourceKey]:
        """These resources, and all that they lead to."""
        reached: set[ResourceKey] = set()
        to_visit = list(keys)
        while to_visit:
            key = to_visit.pop()
            if key not in reached and key in self._numbers:
                reached.add(key)
                to_visit += self._resources[self._numbers[key]].references
        return reached

    def find_unused(self) -> Iterator[MeshFinding]:
        listeners = [each.key for _, each in self._of_type(parsed_fields.LISTENER)]
        if not listeners:  # The files are a part of a mesh.
            return
        reached = self._reached_from(listeners)
        referenced = {key for each in self._resources for key in each.references}
        collections = {
            locality.leds_cluster_locality_config.leds_collection_name
            for _, each in self._of_type(_ENDPOINTS)
            for locality in each.message.endpoints
        }
        for number, resource in enumerate(self._resources):
            kind, name = resource.key
            if kind == parsed_fields.LB_ENDPOINT and collection_of(name) in collections:
                continue
            # Endpoints of an unused cluster are not reported as well.
            is_of_cluster = resource.key[0] == _ENDPOINTS and resource.key in referenced
            if resource.key not in reached and not is_of_cluster:
                text = "is not used: no listener leads to it"
                yield number, _warning("", text, "unused")

    def find_loops(self) -> Iterator[MeshFinding]:
        for number, resource in self._of_type(parsed_fields.CLUSTER):
            if resource.key in self._reached_from_all_of(resource):
                text = "contains itself, by way of its clusters"
                finding = Finding(Severity.ERROR, "cluster_type", text, rule="aggregate-loop")
                yield number, finding

    def _reached_from_all_of(self, resource: LintedResource) -> set[ResourceKey]:
        clusters = [each for each in resource.references if each[0] == parsed_fields.CLUSTER]
        return self._reached_from(clusters)

    # Listeners

    def find_listener_mistakes(self) -> Iterator[MeshFinding]:
        for number, resource in self._of_type(parsed_fields.LISTENER):
            manager = _unpack(resource.message.api_listener.api_listener, parsed_fields.MANAGER)
            if manager is None:
                continue
            configs = list(self._find_route_configs(number, resource, manager))
            if not configs:
                continue
            for finding in _check_session_path(manager, [each for _, _, each in configs]):
                yield number, finding
            names = {each.name for each in manager.http_filters}
            for owner, prefix, config in configs:
                for finding in _check_filter_configs(config, names, prefix):
                    yield owner, finding

    def _find_route_configs(
        self, number: int, resource: LintedResource, manager: Proto
    ) -> Iterator[tuple[int, str, Proto]]:
        """The route configs, each with the number of its resource and its path there."""
        if manager.HasField("route_config"):
            yield number, _INLINE, manager.route_config
        for key in resource.references:
            if key[0] == parsed_fields.ROUTE_CONFIG and key in self._numbers:
                other = self._numbers[key]
                yield other, "", self._resources[other].message

    def _list_route_configs(self) -> Iterator[tuple[int, str, Proto]]:
        """All route configs, also those inside listeners, as `_find_route_configs` has them."""
        for number, resource in self._of_type(parsed_fields.ROUTE_CONFIG):
            yield number, "", resource.message
        for number, resource in self._of_type(parsed_fields.LISTENER):
            manager = _unpack(resource.message.api_listener.api_listener, parsed_fields.MANAGER)
            if manager is not None and manager.HasField("route_config"):
                yield number, _INLINE, manager.route_config

    # Clusters

    def find_hash_mistakes(self) -> Iterator[MeshFinding]:
        hashing = {
            each.key[1]
            for _, each in self._of_type(parsed_fields.CLUSTER)
            if _uses_ring_hash(each.message)
        }
        for number, prefix, config in self._list_route_configs():
            for path, action in _list_actions(config, prefix):
                leaves = self._reached_from(
                    [(parsed_fields.CLUSTER, name) for name in _clusters_of(action)]
                )
                names = sorted({name for _, name in leaves} & hashing)
                if names and not action.hash_policy:
                    text = f"is empty, and cluster {names[0]!r:.200} uses ring_hash: each RPC goes"
                    text += " to a random endpoint"
                    yield number, _warning(f"{path}.hash_policy", text, "unhashed")
                elif action.hash_policy and leaves and not names:
                    text = "is not used: no cluster of the route has the policy ring_hash"
                    yield number, _warning(f"{path}.hash_policy", text, "unused-hash")

    def find_shared_leaves(self) -> Iterator[MeshFinding]:
        """Clusters of aggregates that grpcio 1.85 leaves out, as a route names them."""
        routed = {
            name
            for _, _, config in self._list_route_configs()
            for _, action in _list_actions(config, "")
            for name in _clusters_of(action)
        }
        for number, resource in self._of_type(parsed_fields.CLUSTER):
            leaves = [name for kind, name in resource.references if kind == parsed_fields.CLUSTER]
            for index, name in enumerate(leaves):
                if name in routed:
                    path = f"cluster_type.typed_config.clusters[{index}]"
                    text = f"is {name!r:.200}, which a route names, too: it is left out, so"
                    text += " there is no failover to it"
                    yield number, Finding(_WARNING, path, text, Audience.GRPCIO, "shared-leaf")

    def find_small_clusters(self) -> Iterator[MeshFinding]:
        for number, resource in self._of_type(parsed_fields.CLUSTER):
            detection = resource.message.outlier_detection
            endpoints = [key for key in resource.references if key[0] == _ENDPOINTS]
            if not resource.message.HasField("outlier_detection") or not endpoints:
                continue
            if endpoints[0] not in self._numbers:
                continue
            group = self._resources[self._numbers[endpoints[0]]].message
            if any(each.HasField("leds_cluster_locality_config") for each in group.endpoints):
                continue
            total = sum(len(each.lb_endpoints) for each in group.endpoints)
            needed = min(_minimum_hosts(detection), default=0)
            if total < needed:
                text = f"never ejects: it needs {needed} endpoints, and there"
                text += f" {'is' if total == 1 else 'are'} {total}"
                yield number, _warning("outlier_detection", text, "few-endpoints")


def _warning(path: str, text: str, rule: str) -> Finding:
    return Finding(_WARNING, path, text, rule=rule)


# Sessions and filters


def _check_session_path(manager: Proto, configs: Sequence[Proto]) -> Iterator[Finding]:
    for number, http_filter in enumerate(manager.http_filters):
        session = _unpack(http_filter.typed_config, parsed_fields.STATEFUL_SESSION)
        state = session and _unpack(session.session_state.typed_config, _COOKIE_STATE)
        path = "" if state is None else state.cookie.path
        matches = [
            route.match
            for config in configs
            for host in config.virtual_hosts
            for route in host.routes
        ]
        if not path or any(_can_match(each, path) for each in matches):
            continue
        where = (
            f'{_MANAGER}.http_filters[{number}].typed_config["{parsed_fields.STATEFUL_SESSION}"]'
        )
        text = f"has a cookie for the path {path!r:.200}, and no route has such a path"
        yield _warning(where, text, "session-path")


def _can_match(match: Proto, cookie_path: str) -> bool:
    kind = match.WhichOneof("path_specifier")
    if kind == "prefix":
        return bool(match.prefix.startswith(cookie_path) or cookie_path.startswith(match.prefix))
    return kind != "path" or bool(match.path.startswith(cookie_path))


def _check_filter_configs(config: Proto, names: set[str], prefix: str) -> Iterator[Finding]:
    for path, owner in _list_configured(config):
        for name in sorted(set(owner.typed_per_filter_config) - names):
            where = f'{prefix}{path}typed_per_filter_config["{name}"]'
            text = f"is not used: the listener has no filter {name!r:.200}"
            yield _warning(where, text, "unused-filter-config")


def _list_configured(config: Proto) -> Iterator[tuple[str, Proto]]:
    """Virtual hosts and routes, with their paths."""
    for i, host in enumerate(config.virtual_hosts):
        yield f"virtual_hosts[{i}].", host
        for j, route in enumerate(host.routes):
            yield f"virtual_hosts[{i}].routes[{j}].", route


# Hashes and clusters


def _list_actions(config: Proto, prefix: str) -> Iterator[tuple[str, Proto]]:
    for i, host in enumerate(config.virtual_hosts):
        for j, route in enumerate(host.routes):
            if route.HasField("route"):
                yield f"{prefix}virtual_hosts[{i}].routes[{j}].route", route.route


def _clusters_of(action: Proto) -> Iterator[str]:
    if action.HasField("cluster"):
        yield action.cluster
    for each in action.weighted_clusters.clusters:
        yield each.name


def _uses_ring_hash(cluster: Proto) -> bool:
    if not cluster.HasField("load_balancing_policy"):
        return bool(cluster.lb_policy == cluster.RING_HASH)
    urls = [
        each.typed_extension_config.typed_config.type_url
        for each in cluster.load_balancing_policy.policies
    ]
    return any(url.endswith(f"/{_RING_HASH_TYPE}") for url in urls)


def _minimum_hosts(detection: Proto) -> Iterator[int]:
    """The number of endpoints that each algorithm in use needs."""
    defaults: Mapping[str, int] = {"success_rate": _CERTAIN, "failure_percentage": 0}
    for algorithm, default in defaults.items():
        enforcing = f"enforcing_{algorithm}"
        is_set = detection.HasField(enforcing)
        if (getattr(detection, enforcing).value if is_set else default) > 0:
            field = f"{algorithm}_minimum_hosts"
            is_set = detection.HasField(field)
            yield getattr(detection, field).value if is_set else _MINIMUM_HOSTS


def _unpack(packed: Proto, name: str) -> Proto | None:
    if packed.type_url.rpartition("/")[2] != name:
        return None
    try:
        return message_class(name).FromString(packed.value)
    except DECODE_ERRORS:  # The parsers report it.
        return None
