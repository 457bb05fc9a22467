"""Resources that the control plane of the demo serves.

Three zones of two backends, and two clusters that a route can choose:

    greeter      an aggregate cluster: first greeter-eds, then greeter-dns
      greeter-eds  EDS: zone a is priority 0, zone b is priority 1
      greeter-dns  LOGICAL_DNS: one backend of zone c, by its host name
    greeter-v2   EDS: the other backend of zone c

A `Plan` describes them, `build` makes a snapshot of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane import (
    Locality,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    listener,
    route,
    route_config,
    session_filter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.protos import Proto

SERVICE: Final = "greeter"
ROUTES: Final = "greeter-routes"
OLD: Final = "greeter"
NEW: Final = "greeter-v2"
EDS: Final = "greeter-eds"
DNS: Final = "greeter-dns"
COOKIE: Final = "greeter-session"


@frozen
class Place:
    """Zone and cluster of a backend."""

    name: str
    zone: str
    cluster: str


PLACES: Final = (
    Place("a1", "a", EDS),
    Place("a2", "a", EDS),
    Place("b1", "b", EDS),
    Place("b2", "b", EDS),
    Place("c1", "c", DNS),
    Place("c2", "c", NEW),
)
# By zone, until an endpoint is moved.
PRIORITIES: Final = {"a": 0, "b": 1}


def names_in(zone: str) -> frozenset[str]:
    return frozenset(place.name for place in PLACES if place.zone == zone)


def names_of(*clusters: str) -> frozenset[str]:
    return frozenset(place.name for place in PLACES if place.cluster in clusters)


@frozen
class Plan:
    """Plan of the mesh. Each change makes a new plan, with the next generation."""

    ports: Mapping[str, int]
    generation: int = 1
    # The cluster that the route chooses.
    cluster: str = OLD
    # Whether the new cluster exists; it stays when the route leaves it.
    has_new: bool = False
    # The endpoint that is in another priority than its zone.
    moved: str = ""

    def with_moved(self, name: str) -> Plan:
        return replace(self, moved=name, generation=self.generation + 1)

    def with_route_to(self, cluster: str) -> Plan:
        has_new = self.has_new or cluster == NEW
        generation = self.generation + 1
        return replace(self, cluster=cluster, has_new=has_new, generation=generation)

    def priority_of(self, place: Place) -> int:
        priority = PRIORITIES[place.zone]
        return 1 - priority if place.name == self.moved else priority

    def first_choice(self) -> frozenset[str]:
        """The backends that serve if all are healthy."""
        if self.cluster == NEW:
            return names_of(NEW)
        places = (place for place in PLACES if place.cluster == EDS)
        return frozenset(place.name for place in places if self.priority_of(place) == 0)

    def address_of(self, place: Place) -> str:
        return f"127.0.0.1:{self.ports[place.name]}"

    def name_at(self, address: str) -> str:
        """The backend with this address, or an empty string."""
        found = (place.name for place in PLACES if self.address_of(place) == address)
        return next(found, "")


def build(plan: Plan, before: Snapshot | None = None) -> Snapshot:
    """Snapshot of the plan; types without changes keep the version they had before."""
    start = before or Snapshot.of(())
    [fallback] = (place for place in PLACES if place.cluster == DNS)
    resources = [
        listener(SERVICE, ROUTES, filters=[session_filter(COOKIE)]),
        route_config(ROUTES, route(cluster=plan.cluster)),
        aggregate_cluster(OLD, [EDS, DNS]),
        keep_sessions(eds_cluster(EDS), idle_timeout_s=60),
        _localities(plan),
        dns_cluster(DNS, "localhost", plan.ports[fallback.name]),
    ]
    if plan.has_new:
        new = [plan.address_of(place) for place in PLACES if place.cluster == NEW]
        resources += [keep_sessions(eds_cluster(NEW)), endpoints(NEW, {Locality("c"): new})]
    return start.replaced(resources, str(plan.generation))


def _localities(plan: Plan) -> Proto:
    where: dict[int | Locality, list[str | Proto]] = {}
    for place in PLACES:
        if place.cluster == EDS:
            locality = Locality(place.zone, priority=plan.priority_of(place))
            where.setdefault(locality, []).append(plan.address_of(place))
    return endpoints(EDS, where)
