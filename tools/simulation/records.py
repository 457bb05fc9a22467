"""Records of a run that the checkers read: RPCs, configs, picks and ejections.

They do not come from the code under test: applications record what they asked for and got, backends
what arrived, and the observed policy (`proxyless.sim.observed_policy`) which config a client had in
force and which picks came out of it.
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
    """A cluster as a client knows it: addresses by priority, the preferred ones first."""

    priorities: tuple[frozenset[str], ...] = ()
    draining: frozenset[str] = frozenset()
    is_error: bool = False
    # What share of its RPCs it drops; of an aggregate, the largest share of a leaf.
    drop_share: float = 0.0
    # Which of the priorities came from DNS.
    dns_priority: int | None = None

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset().union(*self.priorities)

    def endpoint_of(self, address: str) -> frozenset[str]:
        """All addresses of the endpoint that has this one: what DNS tells is one endpoint."""
        told = frozenset() if self.dns_priority is None else self.priorities[self.dns_priority]
        return told if address in told else frozenset({address})

    def priority_of(self, address: str) -> int | None:
        """The preferred one of those that have it."""
        return next((n for n, found in enumerate(self.priorities) if address in found), None)


_NO_CLUSTER: Final = ClusterView(is_error=True)


@frozen
class ConfigRecord:
    """A config that a client put in force, and when."""

    at_s: float
    generation: int
    clusters: Mapping[str, ClusterView]
    # The children of the topmost policy: clusters that somebody may still pick from.
    children: frozenset[str]

    def cluster(self, name: str) -> ClusterView:
        return self.clusters.get(name, _NO_CLUSTER)


@frozen
class PickRecord:
    """One question to the topmost picker, and its answer."""

    at_s: float
    cluster: str
    # Where it goes; empty if it does not.
    address: str
    # Of the client's configs, the one in force.
    config: int
    answer: str


class ClientRecord:
    """What one channel was told and did."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.configs: list[ConfigRecord] = []


@dataclass(slots=True, eq=False)
class RpcRecord:
    """One RPC, from the application's side and from all others."""

    name: str
    # Whose channel it is on.
    client: ClientRecord
    kind: str
    lane: str
    wait_for_ready: bool
    timeout_s: float
    started_s: float
    # Of a session that has one: the address where it lives, and in which cluster.
    home: str = ""
    home_cluster: str = ""
    # The other addresses of the endpoint; what comes from DNS has several.
    home_aliases: frozenset[str] = frozenset()
    picks: list[PickRecord] = field(default_factory=list)
    # The backends at which it arrived.
    arrivals: list[str] = field(default_factory=list)
    # At its end.
    ended_s: float | None = None
    code: str = ""
    details: str = ""
    served_by: str = ""
    is_cancelled_by_us: bool = False

    def config_of(self, pick: PickRecord) -> ConfigRecord:
        """The one that was in force at a pick."""
        return self.client.configs[pick.config]

    @property
    def homes(self) -> frozenset[str]:
        """Where a session may go, because it was there."""
        return self.home_aliases | ({self.home} - {""})

    def view_of(self, pick: PickRecord) -> ClusterView:
        """What the client knew of the cluster at a pick."""
        return self.config_of(pick).cluster(pick.cluster)

    @property
    def attempts(self) -> Iterator[tuple[PickRecord, float, bool]]:
        """What was sent: the pick, when it was over at the latest, and whether it was in vain."""
        sent = [pick for pick in self.picks if pick.address]
        for pick, following in pairwise(sent):
            yield pick, following.at_s, True
        if sent:
            yield sent[-1], inf if self.ended_s is None else self.ended_s, self.code != "OK"


@dataclass(slots=True)
class Ejection:
    """Outlier detection keeps one client from using one endpoint, from one time to another."""

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
        # All channels there were, and the newest one of each client.
        self.channels: list[ClientRecord] = []
        self.clients: dict[str, ClientRecord] = {}
        # In the order of their beginning.
        self.ejections: list[Ejection] = []
        # When outlier detection let an endpoint go that it had kept too long: client, endpoint.
        self.late_releases: list[tuple[float, str, str]] = []
        # When backends said GOAWAY, by name.
        self.goaways: dict[str, list[float]] = {}
        # Who left TRANSIENT_FAILURE for CONNECTING, and when.
        self.unstuck: list[tuple[float, str]] = []

    def on_event(self, host: str, event: str, fields: dict[str, Any]) -> None:
        """Something was noted in the journal."""
        match event:
            case "backend.goaway" | "backend.stop":
                self.goaways.setdefault(host, []).append(self.now_s())
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
        """End the oldest that may still last; several clusters may have ejected the endpoint."""
        now_s = self.now_s()
        addresses = frozenset(endpoint.split(","))
        for ejection in self.ejections:
            is_same = ejection.client == client and ejection.addresses == addresses
            if is_same and ejection.end_s is None and ejection.overlaps(now_s, now_s):
                ejection.end_s = now_s
                return
        self.late_releases.append((now_s, client, endpoint))

    def is_ejected(self, client: str, address: str, start_s: float, end_s: float) -> bool:
        """Whether it was, at any moment of this time."""
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
        client.configs.append(ConfigRecord(self.now_s(), generation, clusters, children))

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
    """A cluster as a config has it: of an aggregate, the priorities of its leaves in a row."""
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
