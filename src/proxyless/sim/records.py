"""What do checkers know about RPCs, and about what clients were told?

Written down apart from the code that is checked: what applications asked for and got, what arrived
at backends, and, by a policy that stands around the topmost one and passes everything on, which
config each client had in force and which picks came out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxyless.assembly import Registries
from proxyless.lb import Complete, PolicyRegistry
from proxyless.lb.api import Picker
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.sim.backends import rpc_id_of
from proxyless.sim.plans import generation_of
from proxyless.xds.attributes import CLUSTER, XDS_CONFIG
from proxyless.xds.cluster_refs import CLUSTER_PREFIX
from proxyless.xds.config.xds_config import ClusterError
from proxyless.xds.lb.cluster_manager import NAME as CLUSTER_MANAGER
from proxyless.xds.resources import HealthStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.base import State, Status, ValidationErrors
    from proxyless.lb import Helper, Policy, PolicyFactory, Update
    from proxyless.lb.api import PickInfo, PickResult
    from proxyless.sim.backends import Backend
    from proxyless.xds.config.xds_config import ClusterResult, XdsConfig


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as a client knows it: addresses by priority, the preferred ones first."""

    priorities: tuple[frozenset[str], ...] = ()
    draining: frozenset[str] = frozenset()
    is_error: bool = False

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset().union(*self.priorities)

    def priority_of(self, address: str) -> int | None:
        """The preferred one of those that have it."""
        return next((n for n, found in enumerate(self.priorities) if address in found), None)


_NO_CLUSTER: Final = ClusterView(is_error=True)


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A config that a client put in force, and when."""

    at_s: float
    generation: int
    clusters: Mapping[str, ClusterView]
    # The children of the topmost policy: clusters that somebody may still pick from.
    children: frozenset[str]

    def cluster(self, name: str) -> ClusterView:
        return self.clusters.get(name, _NO_CLUSTER)


@dataclass(frozen=True, slots=True)
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
    picks: list[PickRecord] = field(default_factory=list)
    # The backends at which it arrived.
    arrivals: list[str] = field(default_factory=list)
    # At its end.
    ended_s: float | None = None
    code: str = ""
    details: str = ""
    served_by: str = ""
    is_cancelled_by_us: bool = False


class Recorder:
    """Everything that is written down. Driven by workloads, spies and backends."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s: Final = now_s
        self.rpcs: dict[str, RpcRecord] = {}
        # All channels there were, and the newest one of each client.
        self.channels: list[ClientRecord] = []
        self.clients: dict[str, ClientRecord] = {}

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
    for entry in result:
        for localities in () if entry.endpoints is None else entry.endpoints.priorities:
            found = [each for locality in localities for each in locality.endpoints]
            leaving = {
                str(each.addresses[0]) for each in found if each.health is HealthStatus.DRAINING
            }
            priorities.append(frozenset(str(each.addresses[0]) for each in found) - leaving)
            draining |= leaving
    return ClusterView(tuple(priorities), frozenset(draining))


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
