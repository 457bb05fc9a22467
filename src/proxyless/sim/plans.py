"""What is the mesh meant to look like, generation by generation?

A plan is a small model of the configuration that checkers can reason about; `Snapshot` is what the
control plane makes of it. Each change of the routes is a new generation, whose number travels in
the name of the virtual host, so that a client shows which one it uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.builders import (
    Locality,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    route_config,
    session_filter,
    virtual_host,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.controlplane.snapshot import Snapshot
    from proxyless.protos import Proto

SERVICE: Final = "api"
ROUTES: Final = "api-routes"
LANE_HEADER: Final = "x-sim-lane"
SESSION_COOKIE: Final = "sim-session"
# How long what only sessions need stays connected without them.
SESSION_IDLE_S: Final = 60.0
_GENERATION: Final = "generation-"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster: addresses by priority, some of them draining; or clusters, of an aggregate."""

    priorities: tuple[tuple[str, ...], ...] = ()
    draining: frozenset[str] = frozenset()
    lb_policy: str = "ROUND_ROBIN"
    leaves: tuple[str, ...] = ()

    def to_resources(self, name: str, *, has_sessions: bool, has_load_reports: bool) -> list[Proto]:
        if self.leaves:
            return [aggregate_cluster(name, self.leaves, lb_policy=self.lb_policy)]
        where: dict[int | Locality, list[Proto]] = {
            Locality(f"zone-{number}", priority=number): [self._to_endpoint(each) for each in found]
            for number, found in enumerate(self.priorities)
        }
        cluster = eds_cluster(name, lb_policy=self.lb_policy)
        if has_sessions:
            keep_sessions(cluster, idle_timeout_s=SESSION_IDLE_S)
        if has_load_reports:
            cluster.lrs_server.self.SetInParent()
        return [cluster, endpoints(name, where)]

    def _to_endpoint(self, address: str) -> Proto:
        return lb_endpoint(address, health="DRAINING" if address in self.draining else "HEALTHY")

    @property
    def live_priorities(self) -> tuple[frozenset[str], ...]:
        """Where RPCs may go, the preferred ones first."""
        return tuple(frozenset(found) - self.draining for found in self.priorities)


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """Everything that `xds:///api` needs."""

    generation: int = 1
    # Clusters with their weights, by lane; every other RPC is in the lane "".
    lanes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clusters: Mapping[str, ClusterPlan] = field(default_factory=dict)
    retries: int = 0
    has_sessions: bool = False
    has_load_reports: bool = False

    @property
    def routed(self) -> frozenset[str]:
        """The clusters that routes name."""
        return frozenset(name for weights in self.lanes.values() for name in weights)

    def rerouted(self, **lanes: Mapping[str, int]) -> MeshPlan:
        """The next generation, in which these lanes go elsewhere."""
        lanes = {"": lanes.pop("default"), **lanes} if "default" in lanes else lanes
        return replace(self, generation=self.generation + 1, lanes={**self.lanes, **lanes})

    def with_clusters(self, **clusters: ClusterPlan) -> MeshPlan:
        return replace(self, clusters={**self.clusters, **clusters})

    def pruned(self) -> MeshPlan:
        """Without the clusters that no route leads to."""
        needed = set(self.routed)
        needed |= {leaf for name in self.routed for leaf in self.clusters[name].leaves}
        kept = {name: plan for name, plan in self.clusters.items() if name in needed}
        return replace(self, clusters=kept)

    def to_resources(self) -> list[Proto]:
        lanes = sorted(self.lanes, reverse=True)  # The one without a header comes last.
        routes = [self._to_route(lane) for lane in lanes]
        host = virtual_host(*routes, name=f"{_GENERATION}{self.generation}")
        filters = [session_filter(SESSION_COOKIE)] if self.has_sessions else []
        resources = [listener(SERVICE, ROUTES, filters=filters), route_config(ROUTES, host)]
        for name, plan in self.clusters.items():
            resources += plan.to_resources(
                name, has_sessions=self.has_sessions, has_load_reports=self.has_load_reports
            )
        return resources

    def to_snapshot(self, before: Snapshot) -> Snapshot:
        """The one that follows another: what has not changed keeps its version."""
        return before.replaced(self.to_resources(), partial=True)

    def _to_route(self, lane: str) -> Proto:
        made = route(headers={LANE_HEADER: lane} if lane else None, weighted=self.lanes[lane])
        if self.retries:
            made.route.retry_policy.retry_on = "unavailable"
            made.route.retry_policy.num_retries.value = self.retries
        return made


def generation_of(virtual_host_name: str) -> int:
    """Which generation a client's virtual host is of; 0 if it says nothing about that."""
    number = virtual_host_name.removeprefix(_GENERATION)
    return int(number) if number.isdigit() else 0
