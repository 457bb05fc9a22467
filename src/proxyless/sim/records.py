"""What do checkers know about RPCs, and about what clients were told?

Written down apart from the code that is checked: what applications asked for and got, what arrived
at backends, and, by a policy that stands around the topmost one and passes everything on, which
config each client had in force and which picks came out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from proxyless.assembly import Registries
from proxyless.base import State
from proxyless.base.frozen import frozen
from proxyless.lb import Complete, PolicyRegistry
from proxyless.lb.api import Picker
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.sim.backends import rpc_id_of
from proxyless.sim.plans import EJECTION_INTERVAL_S, EJECTION_MAX_S, generation_of
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.config.xds_config import ClusterError
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cluster_manager import NAME as CLUSTER_MANAGER
from proxyless.xds.resources import HealthStatus, LogicalDnsCluster
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from proxyless.base import Status, ValidationErrors
    from proxyless.lb import Helper, Policy, PolicyFactory, Update
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
    """Everything that is written down. Driven by workloads, spies and backends."""

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
        """What a client's next channel is to be made with, so that it is written down."""
        record = self.clients[client] = ClientRecord(client)
        self.channels.append(record)
        known = Registries()
        factories: list[PolicyFactory] = []
        for name in known.policies.names:
            factory = known.policies.find(name)
            assert factory is not None, "a registry finds what it names"
            if name == CLUSTER_MANAGER:
                factory = _SpyFactory(factory, self, record)
            factories.append(factory)
        return Registries(PolicyRegistry(factories), known.resolvers, known.filters)


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


class _SpyFactory:
    """Makes the policies of another kind, each with somebody around it who writes things down."""

    def __init__(self, real: PolicyFactory, recorder: Recorder, client: ClientRecord) -> None:
        self._real = real
        self._recorder = recorder
        self._client = client

    @property
    def name(self) -> str:
        return self._real.name

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return self._real.parse_config(json, errors, registry)

    def create(self, helper: Helper) -> _Spy:
        spied_helper = _SpyHelper(helper, self._recorder, self._client)
        return _Spy(self._real.create(spied_helper), self._recorder, self._client)


class _Spy:
    """A policy that passes everything on."""

    def __init__(self, real: Policy, recorder: Recorder, client: ClientRecord) -> None:
        self._real = real
        self._recorder = recorder
        self._client = client

    def update(self, update: Update) -> Status:
        config = update.attributes.get(XDS_CONFIG)
        if config is not None:
            children: Mapping[str, object] = getattr(update.config, "children", {})
            names = frozenset(name.removeprefix(CLUSTER_PREFIX) for name in children)
            self._recorder.on_config(self._client, config, names)
        return self._real.update(update)

    def exit_idle(self) -> None:
        self._real.exit_idle()

    def reset_backoff(self) -> None:
        self._real.reset_backoff()

    def close(self) -> None:
        self._real.close()


class _SpyHelper(ForwardingHelper):
    """Passes everything on, and puts somebody around each picker."""

    __slots__ = ("_client", "_recorder")

    def __init__(self, parent: Helper, recorder: Recorder, client: ClientRecord) -> None:
        super().__init__(parent)
        self._recorder = recorder
        self._client = client

    def update_state(self, state: State, picker: Picker) -> None:
        super().update_state(state, _SpyPicker(picker, self._recorder, self._client))


class _SpyPicker(Picker):
    """Answers as the real one does, and has it written down."""

    __slots__ = ("_client", "_real", "_recorder")

    def __init__(self, real: Picker, recorder: Recorder, client: ClientRecord) -> None:
        self._real = real
        self._recorder = recorder
        self._client = client

    @property
    def status(self) -> Status:
        return self._real.status

    def pick(self, info: PickInfo) -> PickResult:
        result = self._real.pick(info)
        self._recorder.on_pick(self._client, info, result)
        return result
