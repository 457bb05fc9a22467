"""Which machines do resources name, where do they stand, and who uses them?

A mesh is what a control plane serves at one time: the files, and each set of files that is pushed.
An inventory is all machines of all meshes: one per endpoint, at the endpoint's own addresses, and
one per address that DNS has for a name. The resources are read as a client would read them, so an
endpoint that no client may use is no machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
# Each client connects to each machine, if it comes to that.
CONNECTIONS_MAX: Final = 20_000
CHANNELS_MAX: Final = 500

# Where a name leads of which the script says nothing: addresses that no mesh has (RFC 2544).
_MADE_UP: Final = "198.19"
_FEDERATED: Final = "xdstp:"


@frozen
class Member:
    """One place of a machine in a mesh."""

    cluster: str
    locality: Locality


@frozen
class Mesh:
    """What a control plane serves at one time, as far as machines go."""

    # As they are served: without what cannot be simulated.
    resources: tuple[Resource, ...]
    # What was left out or looks wrong.
    notes: tuple[str, ...]
    targets: tuple[str, ...]
    # The addresses of each endpoint, the preferred one first, and its place.
    endpoints: tuple[tuple[tuple[Address, ...], Member], ...]
    # Names and ports that are looked up, and for which cluster.
    lookups: tuple[tuple[str, int, str], ...]
    # The clusters of each aggregate.
    aggregates: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Mesh:
        """Read them as a client would."""
        reader = _Reader()
        for resource in resources:
            reader.read(resource)
        return reader.to_mesh()


class _Reader:
    """Takes resources apart, one after the other."""

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
            self._note_refusal(cluster.error)
            if cluster.resource is not None:
                self._clusters[resource.name] = cluster.resource
        elif resource.type_url == ENDPOINTS:
            endpoints = self._endpoint_type.decode(resource.value, self._context)
            self._note_refusal(endpoints.error)
            if endpoints.resource is not None:
                self._endpoints[resource.name] = endpoints.resource
        elif resource.type_url == LISTENER:
            is_for_clients = resource.message().HasField("api_listener")
            if is_for_clients and not resource.name.startswith(_FEDERATED):
                self._targets.append(str(Target("xds", "", f"/{resource.name}")))
        self._resources.append(resource)

    def _without_tls(self, resource: Resource) -> Resource:
        """Handshakes cannot be repeated, and nobody has gathered the certificates."""
        message = resource.message()
        if not message.HasField("transport_socket"):
            return resource
        message.ClearField("transport_socket")
        what = "transport_socket is left out: simulated connections are without TLS"
        self._notes.append(f"{resource}: {what}")
        return Resource.of(message)

    def _note_refusal(self, error: str) -> None:
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
    """One backend, at one address or several."""

    name: str
    addresses: list[Address]
    # Its places, by the number of the mesh.
    members: dict[int, list[Member]] = field(default_factory=dict)

    @property
    def all_members(self) -> Iterator[Member]:
        return (member for members in self.members.values() for member in members)

    def members_in(self, mesh: int) -> list[Member]:
        """Its places in a mesh; if it has none, in the last before it, or in the next."""
        before = [number for number in self.members if number <= mesh]
        return self.members[max(before) if before else min(self.members)]

    def member_in(self, mesh: int, clusters: Collection[str]) -> Member:
        """Its place in a mesh, in one of these clusters if it can be."""
        members = self.members_in(mesh)
        return next((each for each in members if each.cluster in clusters), members[0])


class Inventory:
    """All machines of all meshes. Made by `of`."""

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.meshes: Final = meshes
        self.machines: Final[dict[str, Machine]] = {}
        # What DNS says, for those names that it knows.
        self.names: Final[dict[str, list[str]]] = {}
        self._by_address: dict[Address, Machine] = {}

    @classmethod
    def of(cls, meshes: Sequence[Mesh], dns: Mapping[str, Sequence[str]]) -> Inventory:
        """The first mesh is what is served at the start, the others what is pushed."""
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
        """An endpoint is the machine that has its first address; others have what is left."""
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

    # Who is meant

    def select(self, where: Selector, mesh: int = 0) -> list[Machine]:
        """Those that fit every part of it while a mesh is served, in the order of the files."""
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
        """These, and what they are made of if they are aggregates."""
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
        return (member for machine in self.machines.values() for member in machine.all_members)

    @property
    def zones(self) -> list[str]:
        return sorted({member.locality.zone for member in self.members} - {""})

    @property
    def clusters(self) -> list[str]:
        leaves = {member.cluster for member in self.members}
        return sorted(leaves.union(*(mesh.aggregates for mesh in self.meshes)))

    # Does a script fit?

    def check(self, script: Script, errors: ValidationErrors) -> None:
        """Everything that the script names and no mesh has, by its path; and what is too much."""
        mesh = 0
        for event in script.events:
            mesh += isinstance(event.action, Push)
            if event.is_end:
                continue  # It is for whom it began with.
            if isinstance(event.action, FaultAction) and not self.select(event.action.where, mesh):
                with errors.field(event.path):
                    errors.add(f"no endpoint fits {event.action.where}: {self._describe()}")
            if isinstance(event.action, ControlFaultAction):
                self._check_names(event.action, event.path, errors)
        for expectation in script.expectations:
            with errors.field(f"{expectation.path}.{expectation.condition.value}"):
                for name in self._unknown(expectation):
                    errors.add(f"there is no {name!r}: {self._describe()}")
        asked = {host for mesh in self.meshes for host, _, _ in mesh.lookups}
        for host in script.dns:
            if host not in asked:
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
        if machines * script.clients > CONNECTIONS_MAX:
            what = f"{script.clients} clients and {machines} endpoints"
            errors.add(f"{what} make too many connections, wanted at most {CONNECTIONS_MAX}")
        if len(targets) * script.clients > CHANNELS_MAX:
            what = f"{script.clients} clients and {len(targets)} targets"
            errors.add(f"{what} make too many channels, wanted at most {CHANNELS_MAX}")

    @property
    def targets(self) -> tuple[str, ...]:
        """What clients dial unless they are told: all listeners of the first mesh."""
        return self.meshes[0].targets

    def _describe(self) -> str:
        zones = ", ".join(self.zones) or "none"
        return f"there are zones {zones}; clusters {', '.join(self.clusters) or 'none'}"


def _canonical(text: str) -> str:
    """An address as machines write it; the text itself if it is none."""
    try:
        return str(parse_address(text))
    except ValueError:
        return text
