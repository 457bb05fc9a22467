"""Inventory: the machines of a run, from the resources that its control plane serves.

A mesh is what a control plane serves at one time: the files, and each set of files that is pushed.
An inventory has the machines of all meshes: one per endpoint, at the endpoint's own addresses, and
one per address of a DNS name. Resources are parsed as a client parses them, so an endpoint that
clients ignore is not a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from proxyless.assembly import Registries
from proxyless.base import IpAddress, Locality, parse_address
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, Resource
from proxyless.observe import unknown_bootstrap
from proxyless.resolver.target import Target
from proxyless.sim.rehearsal.script import (
    Condition,
    ControlFaultAction,
    Expectation,
    FaultAction,
    Push,
    Script,
    Selector,
)
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.parsing import ClusterType, EndpointType
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    EdsCluster,
    EndpointResource,
    LogicalDnsCluster,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from proxyless.base import Address, ValidationErrors

MACHINES_MAX: Final = 2_000
# Pairs of a client and a machine.
CONNECTIONS_MAX: Final = 20_000
CHANNELS_MAX: Final = 500

# Prefix of the addresses of DNS names that the script does not have; unused by meshes (RFC 2544).
_MADE_UP: Final = "198.19"
_FEDERATED: Final = "xdstp:"


@frozen
class Member:
    """Cluster and locality of a machine in a mesh."""

    cluster: str
    locality: Locality


@frozen
class Mesh:
    """Resources that a control plane serves at one time, and the endpoints in them."""

    # Without TLS, which cannot be simulated.
    resources: tuple[Resource, ...]
    # For the report: resources that were changed or that clients reject.
    notes: tuple[str, ...]
    targets: tuple[str, ...]
    # The addresses of each endpoint, the preferred one first.
    endpoints: tuple[tuple[tuple[Address, ...], Member], ...]
    # DNS name, port and cluster.
    lookups: tuple[tuple[str, int, str], ...]
    # The leaves of each aggregate cluster.
    aggregates: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Mesh:
        reader = _Reader()
        for resource in resources:
            reader.read(resource)
        return reader.to_mesh()


class _Reader:
    """Collects the parts of a mesh from its resources."""

    def __init__(self) -> None:
        bootstrap = unknown_bootstrap()
        self._context = DecodeContext(bootstrap.servers[0], bootstrap)
        self._cluster_type = ClusterType(Registries().policies)
        self._endpoint_type = EndpointType()
        self._resources: list[Resource] = []
        self._notes: list[str] = []
        self._targets: list[str] = []
        self._clusters: dict[str, Cluster] = {}
        self._endpoints: dict[str, EndpointResource] = {}

    def read(self, resource: Resource) -> None:
        if resource.type_url == CLUSTER:
            resource = self._without_tls(resource)
            cluster = self._cluster_type.decode(resource.value, self._context)
            self._note_nack(cluster.error)
            if cluster.resource is not None:
                self._clusters[resource.name] = cluster.resource
        elif resource.type_url == ENDPOINTS:
            endpoints = self._endpoint_type.decode(resource.value, self._context)
            self._note_nack(endpoints.error)
            if endpoints.resource is not None:
                self._endpoints[resource.name] = endpoints.resource
                if endpoints.resource.collections:
                    what = "collections of endpoints are left out: they need incremental xDS"
                    self._notes.append(f"{resource}: {what}")
        elif resource.type_url == LISTENER:
            is_for_clients = resource.message().HasField("api_listener")
            if is_for_clients and not resource.name.startswith(_FEDERATED):
                self._targets.append(str(Target("xds", "", f"/{resource.name}")))
        self._resources.append(resource)

    def _without_tls(self, resource: Resource) -> Resource:
        message = resource.message()
        if not message.HasField("transport_socket"):
            return resource
        message.ClearField("transport_socket")
        what = "transport_socket is left out: simulated connections are without TLS"
        self._notes.append(f"{resource}: {what}")
        return Resource.of(message)

    def _note_nack(self, error: str) -> None:
        if error:
            self._notes.append(f"clients will refuse {error}")

    def to_mesh(self) -> Mesh:
        return Mesh(
            tuple(self._resources),
            tuple(self._notes),
            tuple(self._targets),
            tuple(self._find_endpoints()),
            tuple(
                (cluster.discovery.host, cluster.discovery.port, name)
                for name, cluster in self._clusters.items()
                if isinstance(cluster.discovery, LogicalDnsCluster)
            ),
            {
                name: cluster.discovery.clusters
                for name, cluster in self._clusters.items()
                if isinstance(cluster.discovery, AggregateCluster)
            },
        )

    def _find_endpoints(self) -> Iterator[tuple[tuple[Address, ...], Member]]:
        users: dict[str, list[str]] = {}
        for name, cluster in self._clusters.items():
            if isinstance(cluster.discovery, EdsCluster):
                users.setdefault(cluster.discovery.service_name or name, []).append(name)
        for name, resource in self._endpoints.items():
            for cluster_name in users.get(name, [name]):
                for localities in resource.priorities:
                    for locality in localities:
                        for endpoint in locality.endpoints:
                            yield endpoint.addresses, Member(cluster_name, locality.locality)


@dataclass(slots=True, eq=False)
class Machine:
    """One backend, at one or several addresses."""

    name: str
    addresses: list[Address]
    # By the number of the mesh.
    members: dict[int, list[Member]] = field(default_factory=dict)

    def members_in(self, mesh: int) -> list[Member]:
        """Its members in a mesh; if there are none, in the last mesh before it, or in the next."""
        before = [number for number in self.members if number <= mesh]
        return self.members[max(before) if before else min(self.members)]

    def member_in(self, mesh: int, clusters: Collection[str]) -> Member:
        """Its member in a mesh, preferably in one of these clusters."""
        members = self.members_in(mesh)
        return next((each for each in members if each.cluster in clusters), members[0])


class Inventory:
    """All machines of all meshes."""

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.meshes: Final = meshes
        self.machines: Final[dict[str, Machine]] = {}
        # IP addresses by DNS name.
        self.names: Final[dict[str, list[str]]] = {}
        self._by_address: dict[Address, Machine] = {}

    @classmethod
    def of(cls, meshes: Sequence[Mesh], dns: Mapping[str, Sequence[str]]) -> Inventory:
        """The first mesh is served at the start, the others are pushed."""
        inventory = cls(meshes)
        for number, mesh in enumerate(meshes):
            for addresses, member in mesh.endpoints:
                inventory._place(addresses, number, member)
            for host, port, cluster in mesh.lookups:
                member = Member(cluster, Locality())
                for ip in inventory._look_up(host, dns):
                    inventory._place((IpAddress(ip, port),), number, member)
        return inventory

    def _look_up(self, host: str, dns: Mapping[str, Sequence[str]]) -> Sequence[str]:
        try:
            return [IpAddress(host, 0).host]
        except ValueError:
            pass  # It is a name.
        if host in dns:
            if dns[host]:
                self.names[host] = list(dns[host])
            return dns[host]
        if host not in self.names:
            number = len(self.names) + 1
            self.names[host] = [f"{_MADE_UP}.{number // 250}.{number % 250}"]
        return self.names[host]

    def _place(self, addresses: Sequence[Address], mesh: int, member: Member) -> None:
        """Add an endpoint to the machine with its first address, or to a new machine."""
        machine = self._by_address.get(addresses[0])
        if machine is None:
            machine = Machine(str(addresses[0]), [])
            self.machines[machine.name] = machine
        for address in addresses:
            if address not in self._by_address:
                self._by_address[address] = machine
                machine.addresses.append(address)
        members = machine.members.setdefault(mesh, [])
        if member not in members:
            members.append(member)

    def select(self, where: Selector, mesh: int = 0) -> list[Machine]:
        """Machines that match every part of the selector in a mesh, in the order of the files."""
        clusters = self.leaves(where.clusters)
        endpoints = set(map(_canonical, where.endpoints))

        def fits(member: Member) -> bool:
            return (
                (not where.zones or member.locality.zone in where.zones)
                and (not where.regions or member.locality.region in where.regions)
                and (not where.clusters or member.cluster in clusters)
            )

        return [
            machine
            for machine in self.machines.values()
            if any(map(fits, machine.members_in(mesh)))
            and (not endpoints or not endpoints.isdisjoint(map(str, machine.addresses)))
        ]

    def leaves(self, clusters: Iterable[str]) -> frozenset[str]:
        """These clusters, and the leaves of aggregates among them."""
        found: set[str] = set()
        to_visit = list(clusters)
        while to_visit:
            name = to_visit.pop()
            if name not in found:
                found.add(name)
                for mesh in self.meshes:
                    to_visit += mesh.aggregates.get(name, ())
        return frozenset(found)

    @property
    def members(self) -> Iterator[Member]:
        by_mesh = (each for machine in self.machines.values() for each in machine.members.values())
        return chain.from_iterable(by_mesh)

    @property
    def zones(self) -> list[str]:
        return sorted({member.locality.zone for member in self.members} - {""})

    @property
    def clusters(self) -> list[str]:
        leaves = {member.cluster for member in self.members}
        return sorted(leaves.union(*(mesh.aggregates for mesh in self.meshes)))

    def check(self, script: Script, errors: ValidationErrors) -> None:
        """Add an error for each unknown name in the script, and for each exceeded limit."""
        mesh = 0
        for event in script.events:
            mesh += isinstance(event.action, Push)
            if event.is_end:
                continue  # It affects the endpoints of the event that it ends.
            if isinstance(event.action, FaultAction) and not self.select(event.action.where, mesh):
                with errors.field(event.path):
                    errors.add(f"no endpoint fits {event.action.where}: {self._describe()}")
            if isinstance(event.action, ControlFaultAction):
                self._check_names(event.action, event.path, errors)
        for expectation in script.expectations:
            with errors.field(f"{expectation.path}.{expectation.condition.value}"):
                for name in self._unknown(expectation):
                    errors.add(f"there is no {name!r}: {self._describe()}")
        looked_up = {host for mesh in self.meshes for host, _, _ in mesh.lookups}
        for host in script.dns:
            if host not in looked_up:
                with errors.field("dns"), errors.key(host):
                    errors.add("no LOGICAL_DNS cluster has this name")
        self._check_sizes(script, errors)

    def _check_names(self, action: ControlFaultAction, path: str, errors: ValidationErrors) -> None:
        known = {
            resource.name
            for mesh in self.meshes
            for resource in mesh.resources
            if resource.type_url == action.type_url
        }
        with errors.field(path):
            for name in action.names:
                if name not in known:
                    errors.add(f"there is no {name!r}, wanted one of {', '.join(sorted(known))}")

    def _unknown(self, expectation: Expectation) -> list[str]:
        match expectation.condition:
            case Condition.ONLY_ZONES:
                return [name for name in expectation.names if name not in self.zones]
            case Condition.ONLY_CLUSTERS:
                return [name for name in expectation.names if name not in self.clusters]
            case Condition.ONLY_ENDPOINTS:
                known = set(map(str, self._by_address))
                return [name for name in expectation.names if _canonical(name) not in known]
            case _:
                return []

    def _check_sizes(self, script: Script, errors: ValidationErrors) -> None:
        machines = len(self.machines)
        targets = {each for flow in script.flows for each in flow.targets or self.targets}
        if not targets:
            errors.add("there is no listener with an api_listener, wanted one, or a target")
        if machines > MACHINES_MAX:
            errors.add(f"the mesh has {machines} endpoints, wanted at most {MACHINES_MAX}")
        for count, noun, pairs, limit in (
            (machines, "endpoints", "connections", CONNECTIONS_MAX),
            (len(targets), "targets", "channels", CHANNELS_MAX),
        ):
            if count * script.clients > limit:
                what = f"{script.clients} clients and {count} {noun}"
                errors.add(f"{what} make too many {pairs}, wanted at most {limit}")

    @property
    def targets(self) -> tuple[str, ...]:
        """Default targets: all listeners of the first mesh."""
        return self.meshes[0].targets

    def _describe(self) -> str:
        zones = ", ".join(self.zones) or "none"
        return f"there are zones {zones}; clusters {', '.join(self.clusters) or 'none'}"


def _canonical(text: str) -> str:
    """An address in the format of machine names; any other text unchanged."""
    try:
        return str(parse_address(text))
    except ValueError:
        return text
