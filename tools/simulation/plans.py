"""Planned configuration of the mesh, generation by generation.

A plan is a small model of the configuration, for checkers; the control plane serves a `Snapshot` of
it. Each change of the routes is a new generation. Its number is in the name of the virtual host, so
records show which generation a client uses.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.base.frozen import frozen
from proxyless.controlplane.builders import (
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    http_filter,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    route_config,
    session_filter,
    virtual_host,
)
from proxyless.controlplane.resource import Resource
from proxyless.protos import message_class
from proxyless.sim.backends import PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.controlplane.snapshot import Snapshot
    from proxyless.protos import Proto

SERVICE: Final = "api"
ROUTES: Final = "api-routes"
# Of collections of endpoints.
AUTHORITY: Final = "mesh"
LANE_HEADER: Final = "x-sim-lane"
SESSION_COOKIE: Final = "sim-session"
# Time for which connections of idle sessions are kept.
SESSION_IDLE_S: Final = 60.0
DROP_CATEGORY: Final = "too much"
# Outlier detection: endpoints that fail most of their RPCs are ejected for a short time.
EJECTION_INTERVAL_S: Final = 5.0
EJECTION_MAX_S: Final = 20.0
# The fault filter, in percent of the RPCs.
DELAY_S: Final = 0.3
DELAY_PERCENT: Final = 5
ABORT_PERCENT: Final = 2
_GENERATION: Final = "generation-"


def collection_name(cluster: str, place: int | Locality) -> str:
    zone = place.zone if isinstance(place, Locality) else str(place)
    return f"xdstp://{AUTHORITY}/envoy.config.endpoint.v3.LbEndpoint/{cluster}/{zone}/*"


@frozen
class ClusterPlan:
    """One cluster: EDS with addresses by priority, LOGICAL_DNS, or an aggregate."""

    priorities: tuple[tuple[str, ...], ...] = ()
    draining: frozenset[str] = frozenset()
    lb_policy: str = "ROUND_ROBIN"
    # Of an aggregate.
    leaves: tuple[str, ...] = ()
    # Of a LOGICAL_DNS cluster.
    dns_name: str = ""
    # Number of localities in each priority.
    localities: int = 1
    # Share of dropped RPCs.
    drop_share: float = 0.0
    # Limit of the circuit breaker; 0 for gRPC's default.
    max_requests: int = 0
    has_outlier_detection: bool = False
    # Each locality has a collection of endpoints (LEDS).
    has_collections: bool = False

    def to_resources(self, name: str, *, has_sessions: bool, has_load_reports: bool) -> list[Proto]:
        if self.leaves:
            return [aggregate_cluster(name, self.leaves, lb_policy=self.lb_policy)]
        if self.dns_name:
            cluster = dns_cluster(name, self.dns_name, PORT, lb_policy=self.lb_policy)
        else:
            cluster = eds_cluster(name, lb_policy=self.lb_policy)
        if has_sessions:
            keep_sessions(cluster, idle_timeout_s=SESSION_IDLE_S)
        if has_load_reports:
            cluster.lrs_server.self.SetInParent()
        if self.max_requests:
            cluster.circuit_breakers.thresholds.add().max_requests.value = self.max_requests
        if self.has_outlier_detection:
            _detect_outliers(cluster)
        if self.dns_name:
            return [cluster]
        drops = {DROP_CATEGORY: self.drop_share} if self.drop_share else None
        by_locality = self._by_locality()
        if not self.has_collections:
            return [cluster, endpoints(name, by_locality, drops=drops)]
        names: dict[int | Locality, str] = {
            place: collection_name(name, place) for place in by_locality
        }
        members = [
            Resource.of(each, f"{names[place][:-1]}{number}")
            for place, found in by_locality.items()
            for number, each in enumerate(found)
        ]
        return [cluster, endpoints(name, names, drops=drops), *members]

    def collections(self, name: str) -> set[str]:
        """Names of all collections of this cluster."""
        return {collection_name(name, place) for place in self._by_locality()}

    def _by_locality(self) -> dict[int | Locality, list[Proto]]:
        """Endpoints of each priority in turn to its localities, the last one the heaviest."""
        found: dict[int | Locality, list[Proto]] = {}
        for priority, addresses in enumerate(self.priorities):
            for number in range(min(self.localities, len(addresses))):
                zone = f"zone-{priority}" + (f"-{number}" if number else "")
                locality = Locality(zone, priority=priority, weight=1 + 2 * number)
                mine = addresses[number :: self.localities]
                found[locality] = [self._to_endpoint(each) for each in mine]
        return found

    def _to_endpoint(self, address: str) -> Proto:
        return lb_endpoint(address, health="DRAINING" if address in self.draining else "HEALTHY")

    @property
    def has_eds(self) -> bool:
        return not self.leaves and not self.dns_name

    @property
    def live_priorities(self) -> tuple[frozenset[str], ...]:
        """Addresses that are not draining, by priority."""
        return tuple(frozenset(found) - self.draining for found in self.priorities)


@frozen
class MeshPlan:
    """All resources of `xds:///api`."""

    generation: int = 1
    # Clusters with their weights, by lane; RPCs without the lane header are in the lane "".
    lanes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clusters: Mapping[str, ClusterPlan] = field(default_factory=dict)
    retries: int = 0
    has_sessions: bool = False
    has_load_reports: bool = False
    has_injected_faults: bool = False

    @property
    def routed(self) -> frozenset[str]:
        """Clusters of all routes."""
        return frozenset(name for weights in self.lanes.values() for name in weights)

    def rerouted(self, **lanes: Mapping[str, int]) -> MeshPlan:
        """The next generation, with other clusters for these lanes."""
        lanes = {"": lanes.pop("default"), **lanes} if "default" in lanes else lanes
        return replace(self, generation=self.generation + 1, lanes={**self.lanes, **lanes})

    def with_clusters(self, **clusters: ClusterPlan) -> MeshPlan:
        return replace(self, clusters={**self.clusters, **clusters})

    def pruned(self) -> MeshPlan:
        """The plan without clusters that no route uses."""
        needed = set(self.routed)
        needed |= {leaf for name in self.routed for leaf in self.clusters[name].leaves}
        kept = {name: plan for name, plan in self.clusters.items() if name in needed}
        return replace(self, clusters=kept)

    def to_resources(self) -> list[Proto]:
        lanes = sorted(self.lanes, reverse=True)  # The one without a header comes last.
        routes = [self._to_route(lane) for lane in lanes]
        host = virtual_host(*routes, name=f"{_GENERATION}{self.generation}")
        filters = [session_filter(SESSION_COOKIE)] if self.has_sessions else []
        if self.has_injected_faults:
            filters.append(_fault_filter())
        resources: list[Proto] = [
            listener(SERVICE, ROUTES, filters=filters),
            route_config(ROUTES, host),
        ]
        for name, plan in self.clusters.items():
            resources += plan.to_resources(
                name, has_sessions=self.has_sessions, has_load_reports=self.has_load_reports
            )
        return resources

    def to_snapshot(self, before: Snapshot) -> Snapshot:
        """Snapshot that follows another one; unchanged types keep their version."""
        return before.replaced(self.to_resources(), partial=True)

    def _to_route(self, lane: str) -> Proto:
        made = route(headers={LANE_HEADER: lane} if lane else None, weighted=self.lanes[lane])
        if self.retries:
            made.route.retry_policy.retry_on = "unavailable"
            made.route.retry_policy.num_retries.value = self.retries
        return made


def _detect_outliers(cluster: Proto) -> None:
    detection = cluster.outlier_detection
    detection.interval.FromNanoseconds(round(EJECTION_INTERVAL_S * 1e9))
    detection.base_ejection_time.FromNanoseconds(round(EJECTION_MAX_S / 4 * 1e9))
    detection.max_ejection_time.FromNanoseconds(round(EJECTION_MAX_S * 1e9))
    detection.max_ejection_percent.value = 50
    detection.enforcing_success_rate.value = 0
    detection.enforcing_failure_percentage.value = 100
    detection.failure_percentage_threshold.value = 60
    detection.failure_percentage_minimum_hosts.value = 1
    detection.failure_percentage_request_volume.value = 3


def _fault_filter() -> Proto:
    """Delays some RPCs, and aborts some with a code that has no other source here."""
    fault = message_class("envoy.extensions.filters.http.fault.v3.HTTPFault")()
    fault.delay.fixed_delay.FromNanoseconds(round(DELAY_S * 1e9))
    fault.delay.percentage.numerator = DELAY_PERCENT
    fault.abort.grpc_status = int(StatusCode.ABORTED)
    fault.abort.percentage.numerator = ABORT_PERCENT
    return http_filter("fault", fault)


def generation_of(virtual_host_name: str) -> int:
    """Generation in the name of a virtual host, or 0."""
    number = virtual_host_name.removeprefix(_GENERATION)
    return int(number) if number.isdigit() else 0
