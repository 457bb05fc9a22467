"""Mesh: clusters, endpoints and routes as values, and their resources.

The target of all clients is `xds:///fuzz`. There are a few EDS clusters (leaves) and one aggregate
cluster of them; the default route has one cluster or several by weight, and RPCs with the header
`tier: gold` may have a route of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane import (
    Locality,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
)
from proxyless.controlplane.builders import pack
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SERVICE: Final = "fuzz"
TARGET: Final = f"xds:///{SERVICE}"
AGGREGATE: Final = "all"
HASH_HEADER: Final = "user"
GOLD: Final = {"tier": "gold"}

# LB policies that grpcio accepts as well. The first two are values of `lb_policy`; the others are
# in `load_balancing_policy`, below wrr_locality or without it.
POLICIES: Final = (
    "ROUND_ROBIN",
    "RING_HASH",
    "wrr_locality/pick_first",
    "wrr_locality/round_robin",
    "pick_first",
    "round_robin",
)
_MESSAGES: Final = {
    "pick_first": "pick_first.v3.PickFirst",
    "round_robin": "round_robin.v3.RoundRobin",
    "wrr_locality": "wrr_locality.v3.WrrLocality",
}


@frozen
class Group:
    """The endpoints of one locality in one priority. Backends are numbers."""

    zone: str
    priority: int
    weight: int
    backends: tuple[int, ...]
    # Endpoints with the health status DRAINING, which get no RPCs.
    draining: frozenset[int] = frozenset()

    @property
    def in_use(self) -> tuple[int, ...]:
        return tuple(each for each in self.backends if each not in self.draining)


@frozen
class Leaf:
    """An EDS cluster and its endpoints."""

    name: str
    policy: str
    groups: tuple[Group, ...]

    @property
    def in_use(self) -> tuple[int, ...]:
        return tuple(each for group in self.groups for each in group.in_use)


@frozen
class Mesh:
    """The configuration that the control plane serves at one moment."""

    leaves: tuple[Leaf, ...]
    # Names of leaves in the order of failover.
    aggregate: tuple[str, ...]
    # Clusters of the default route with their weights.
    default: tuple[tuple[str, int], ...]
    # The cluster of RPCs with the header, if they have a route of their own.
    gold: str = ""
    # Whether RPCs are hashed by a header; ring_hash hashes at random otherwise.
    is_hashed: bool = False
    # Removed resources: the listener, or clusters that are still routed to.
    has_listener: bool = True
    lost: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        return not self.lost

    @property
    def targets(self) -> set[str]:
        """The clusters that RPCs are routed to."""
        return {name for name, _ in self.default} | ({self.gold} if self.gold else set())

    def leaf(self, name: str) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.name == name)

    def leaves_of(self, cluster: str) -> tuple[Leaf, ...]:
        """The leaf of this name, or all leaves of the aggregate."""
        names = self.aggregate if cluster == AGGREGATE else (cluster,)
        return tuple(map(self.leaf, names))


def number_priorities(groups: Iterable[Group]) -> tuple[Group, ...]:
    """The same order of priorities without gaps, which clients reject, and without empty groups."""
    kept = [group for group in groups if group.backends]
    used = sorted({group.priority for group in kept})
    return tuple(
        Group(each.zone, used.index(each.priority), each.weight, each.backends, each.draining)
        for each in kept
    )


# Resources


def to_resources(mesh: Mesh, addresses: Sequence[str]) -> list[Proto]:
    """All resources of a mesh; backend `n` is at `addresses[n]`."""
    return [*_clusters(mesh), *_assignments(mesh, addresses), *_routing(mesh)]


def _routing(mesh: Mesh) -> Iterator[Proto]:
    if mesh.has_listener:
        yield listener(SERVICE, "routes")
    routes = [route(headers=GOLD, cluster=mesh.gold)] if mesh.gold else []
    (name, _), *others = mesh.default
    routes.append(route(weighted=dict(mesh.default)) if others else route(cluster=name))
    for each in routes if mesh.is_hashed else ():
        each.route.hash_policy.add().header.header_name = HASH_HEADER
    yield route_config("routes", *routes)


def _clusters(mesh: Mesh) -> Iterator[Proto]:
    for leaf in mesh.leaves:
        if leaf.name not in mesh.lost:
            yield _leaf_cluster(leaf)
    if AGGREGATE not in mesh.lost:
        yield aggregate_cluster(AGGREGATE, mesh.aggregate)


def _leaf_cluster(leaf: Leaf) -> Proto:
    if leaf.policy.isupper():
        return eds_cluster(leaf.name, lb_policy=leaf.policy)
    result = eds_cluster(leaf.name)
    _add_policy(result.load_balancing_policy, leaf.policy)
    return result


def _add_policy(into: Proto, path: str) -> None:
    """Fill a LoadBalancingPolicy with the policy of a path such as `wrr_locality/pick_first`."""
    name, _, below = path.partition("/")
    config = message_class(f"envoy.extensions.load_balancing_policies.{_MESSAGES[name]}")()
    if below:
        _add_policy(config.endpoint_picking_policy, below)
    entry = into.policies.add().typed_extension_config
    entry.name = name
    pack(config, entry.typed_config)


def _assignments(mesh: Mesh, addresses: Sequence[str]) -> Iterator[Proto]:
    for leaf in mesh.leaves:
        where: dict[int | Locality, list[Proto]] = {
            Locality(group.zone, priority=group.priority, weight=group.weight): [
                lb_endpoint(addresses[each], health=_health(group, each)) for each in group.backends
            ]
            for group in leaf.groups
        }
        yield endpoints(leaf.name, where)


def _health(group: Group, backend: int) -> str:
    return "DRAINING" if backend in group.draining else "HEALTHY"
