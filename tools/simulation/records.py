"""Records of a run that the checkers read: RPCs, configs, picks and ejections.

They do not come from the code under test: applications record their RPCs and the results, backends
record arrivals, and the observed policy (`proxyless.sim.observed_policy`) records the configs in
force and the picks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import State
from proxyless.base.frozen import frozen
from proxyless.lb import Complete
from proxyless.sim.backends import rpc_id_of
from proxyless.sim.observed_policy import observed_registries
from proxyless.xds.config.xds_config import ClusterError
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.resources import HealthStatus, LogicalDnsCluster
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX
from tools.simulation.plans import EJECTION_INTERVAL_S, EJECTION_MAX_S, generation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from proxyless.assembly import Registries
    from proxyless.lb.api import PickInfo, PickResult
    from proxyless.sim.backends import Backend
    from proxyless.xds.config.xds_config import ClusterResult, XdsConfig
    from proxyless.xds.resources import EndpointInfo


@frozen
class ClusterView:
    """A cluster in a client's config: addresses by priority, the preferred ones first."""

    priorities: tuple[frozenset[str], ...] = ()
    draining: frozenset[str] = frozenset()
    is_error: bool = False
    # Share of dropped RPCs; of an aggregate, the largest share of a leaf.
    drop_share: float = 0.0
    # Index of the priority that comes from DNS.
    dns_priority: int | None = None

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset().union(*self.priorities)

    def describe(self) -> str:
        """As the control plane wants it: when a client asked DNS depends on its traffic."""
        if self.is_error:
            return "error"
        priorities = (
            "DNS" if number == self.dns_priority else "+".join(sorted(addresses))
            for number, addresses in enumerate(self.priorities)
        )
        draining = "+".join(sorted(self.draining))
        return f"{', '.join(priorities)}; draining {draining}; drops {self.drop_share:g}"

    def endpoint_of(self, address: str) -> frozenset[str]:
        """All addresses of the endpoint with this address: all addresses from DNS are one."""
        from_dns = frozenset() if self.dns_priority is None else self.priorities[self.dns_priority]
        return from_dns if address in from_dns else frozenset({address})

    def priority_of(self, address: str) -> int | None:
        """The most preferred priority with this address."""
        return next((n for n, found in enumerate(self.priorities) if address in found), None)


_NO_CLUSTER: Final = ClusterView(is_error=True)


@frozen
class ConfigRecord:
    """A config that a client put in force, and the time."""

    at_s: float
    generation: int
    clusters: Mapping[str, ClusterView]
    # The children of the topmost policy, from which RPCs may still be picked.
    children: frozenset[str]
    # Whether new RPCs are routed by it; not if the listener is lost.
    is_routing: bool = True

    def cluster(self, name: str) -> ClusterView:
        return self.clusters.get(name, _NO_CLUSTER)


@frozen
class PickRecord:
    """One pick of the topmost picker, and its result."""

    at_s: float
    cluster: str
    # Empty unless the pick is complete.
    address: str
    # Index of the client's config in force.
    config: int
    answer: str


class ClientRecord:
    """Configs of one channel."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.configs: list[ConfigRecord] = []


@dataclass(slots=True, eq=False)
class RpcRecord:
    """One RPC: as the application, the client's policies and the backends saw it."""

    name: str
    client: ClientRecord
    kind: str
    lane: str
    wait_for_ready: bool
    timeout_s: float
    started_s: float
    # Address and cluster of the RPC's session, if it has one.
    home: str = ""
    home_cluster: str = ""
    # The other addresses of that endpoint; one from DNS has several.
    home_aliases: frozenset[str] = frozenset()
    picks: list[PickRecord] = field(default_factory=list)
    # The backends at which it arrived.
    arrivals: list[str] = field(default_factory=list)
    ended_s: float | None = None
    code: str = ""
    details: str = ""
    served_by: str = ""
    is_cancelled_by_us: bool = False

    def config_of(self, pick: PickRecord) -> ConfigRecord:
        return self.client.configs[pick.config]

    @property
    def homes(self) -> frozenset[str]:
        """All addresses of the session's endpoint."""
        return self.home_aliases | ({self.home} - {""})

    def view_of(self, pick: PickRecord) -> ClusterView:
        """The cluster in the config in force at a pick."""
        return self.config_of(pick).cluster(pick.cluster)

    @property
    def attempts(self) -> Iterator[tuple[PickRecord, float, bool]]:
        """Attempts that were sent: the pick, the latest time of the end, whether it failed."""
        sent = [pick for pick in self.picks if pick.address]
        for pick, following in pairwise(sent):
            yield pick, following.at_s, True
        if sent:
            yield sent[-1], inf if self.ended_s is None else self.ended_s, self.code != "OK"


@dataclass(slots=True)
class Ejection:
    """Ejection of one endpoint by one client."""

    client: str
    addresses: frozenset[str]
    start_s: float
    end_s: float | None = None

    def overlaps(self, start_s: float, end_s: float) -> bool:
        longest_s = self.start_s + EJECTION_MAX_S + EJECTION_INTERVAL_S
        return self.start_s <= end_s and (self.end_s or longest_s) >= start_s


class Recorder:
    """All records of a run. Called by workloads, observed policies and backends."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s: Final = now_s
        self.rpcs: dict[str, RpcRecord] = {}
        # All channels, and the newest one of each client.
        self.channels: list[ClientRecord] = []
        self.clients: dict[str, ClientRecord] = {}
        self.ejections: list[Ejection] = []
        # Time, client and endpoint of ejections that ended too late.
        self.late_releases: list[tuple[float, str, str]] = []
        # Times of GOAWAYs by backend.
        self.goaways: dict[str, list[float]] = {}
        # Clients that have lost the listener.
        self._unrouted: set[str] = set()
        # Time and client of changes from TRANSIENT_FAILURE to CONNECTING.
        self.unstuck: list[tuple[float, str]] = []

    def on_event(self, host: str, event: str, fields: dict[str, Any]) -> None:
        """Called for each event of the journal."""
        match event:
            case "backend.goaway" | "backend.stop":
                self.goaways.setdefault(host, []).append(self.now_s())
            case "xds_resolver.error":
                self._unrouted.add(host)
            case "xds_resolver.config":
                self._unrouted.discard(host)
            case "pick_first.state":
                is_left = fields["before"] is State.TRANSIENT_FAILURE
                if is_left and fields["after"] is State.CONNECTING:
                    self.unstuck.append((self.now_s(), host))
            case "outlier_detection.ejected":
                addresses = frozenset(fields["endpoint"].split(","))
                self.ejections.append(Ejection(host, addresses, self.now_s()))
            case "outlier_detection.unejected":
                self._on_unejected(host, fields["endpoint"])
            case _:
                pass

    def _on_unejected(self, client: str, endpoint: str) -> None:
        """End the oldest open ejection; several clusters may have ejected the endpoint."""
        now_s = self.now_s()
        addresses = frozenset(endpoint.split(","))
        for ejection in self.ejections:
            is_same = ejection.client == client and ejection.addresses == addresses
            if is_same and ejection.end_s is None and ejection.overlaps(now_s, now_s):
                ejection.end_s = now_s
                return
        self.late_releases.append((now_s, client, endpoint))

    def is_ejected(self, client: str, address: str, start_s: float, end_s: float) -> bool:
        """Whether the address was ejected at any moment of this time."""
        return any(
            each.client == client and address in each.addresses and each.overlaps(start_s, end_s)
            for each in self.ejections
        )

    def on_arrival(self, backend: Backend, rpc_id: str) -> None:
        if rpc_id in self.rpcs:
            self.rpcs[rpc_id].arrivals.append(backend.name)

    def on_config(self, client: ClientRecord, config: XdsConfig, children: frozenset[str]) -> None:
        clusters = {name: view_cluster(found) for name, found in config.clusters.items()}
        generation = generation_of(config.virtual_host.name)
        is_routing = client.name not in self._unrouted
        client.configs.append(
            ConfigRecord(self.now_s(), generation, clusters, children, is_routing)
        )

    def on_pick(self, client: ClientRecord, info: PickInfo, result: PickResult) -> None:
        rpc = self.rpcs.get(rpc_id_of(info.metadata))
        if rpc is None:
            return
        cluster = (info.attributes.get(CLUSTER) or "").removeprefix(CLUSTER_PREFIX)
        address = str(result.subchannel.address) if isinstance(result, Complete) else ""
        answer = type(result).__name__
        rpc.picks.append(
            PickRecord(self.now_s(), cluster, address, len(client.configs) - 1, answer)
        )

    def registries(self, client: str) -> Registries:
        """Registries for a client's next channel, whose configs and picks are recorded."""
        record = self.clients[client] = ClientRecord(client)
        self.channels.append(record)
        return observed_registries(partial(self.on_config, record), partial(self.on_pick, record))


def view_cluster(result: ClusterResult) -> ClusterView:
    """View of a cluster; an aggregate has the priorities of all its leaves in order."""
    if isinstance(result, ClusterError):
        return _NO_CLUSTER
    priorities: list[frozenset[str]] = []
    draining: set[str] = set()
    drop_share = 0.0
    dns_priority = None
    for entry in result:
        if entry.endpoints is None:
            continue
        if isinstance(entry.cluster.discovery, LogicalDnsCluster):
            dns_priority = len(priorities)
        drop_share = max(drop_share, *(each.per_million / 1e6 for each in entry.endpoints.drops), 0)
        for localities in entry.endpoints.priorities:
            found = [each for locality in localities for each in locality.endpoints]
            leaving = frozenset(
                _addresses(each for each in found if each.health is HealthStatus.DRAINING)
            )
            priorities.append(frozenset(_addresses(found)) - leaving)
            draining |= leaving
    return ClusterView(
        tuple(priorities), frozenset(draining), drop_share=drop_share, dns_priority=dns_priority
    )


def _addresses(endpoints: Iterable[EndpointInfo]) -> Iterator[str]:
    return (str(address) for each in endpoints for address in each.addresses)
