"""What tests of the xDS rooms have in common: short resources, and a control plane in hand.

`Watches` stands where an XdsClient stands: the test says what each resource is, and sees which are
watched. The resources are values; nothing here knows protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Endpoint,
    Locality,
    Status,
    StatusCode,
    parse_address,
)
from proxyless.resolver import ResolverContext, ResolverResult
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.xds.config.dependencies import Wanted
from proxyless.xds.config.manager import ManagerTools, ResourceTypes, XdsDependencyManager
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    ClusterChoice,
    Discovery,
    DropCategory,
    EdsCluster,
    EndpointInfo,
    EndpointResource,
    HttpConnectionManager,
    Listener,
    LocalityEndpoints,
    LogicalDnsCluster,
    PathMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
    WeightedChoice,
    WeightedCluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.resolver import ResolverListener, Target
    from proxyless.xds.config import ClusterConfig, XdsConfig

SERVICE = "orders"
ROUND_ROBIN: tuple[dict[str, object], ...] = ({"round_robin": {}},)

# ---------------------------------------------------------------------------------------------
# Resources


def listener(routes: str | RouteConfiguration = "routes", **manager: Any) -> Listener:  # noqa: ANN401
    return Listener(SERVICE, HttpConnectionManager(routes, **manager))


def action(to: str | dict[str, int], **settings: Any) -> RouteAction:  # noqa: ANN401
    """To one cluster, or to several by weight."""
    if isinstance(to, str):
        return RouteAction(choice=ClusterChoice(to), **settings)
    clusters = tuple(WeightedCluster(name, weight) for name, weight in to.items())
    return RouteAction(choice=WeightedChoice(clusters), **settings)


def route(to: str | dict[str, int], prefix: str = "/", **settings: Any) -> Route:  # noqa: ANN401
    return Route(path=PathMatcher("prefix", prefix), action=action(to, **settings))


def host(*routes: Route, domains: tuple[str, ...] = ("*",), **settings: Any) -> VirtualHost:  # noqa: ANN401
    return VirtualHost(domains=domains, routes=routes, **settings)


def route_config(*clusters: str | dict[str, int], name: str = "routes") -> RouteConfiguration:
    """One virtual host with a route to each of these; the first one takes everything."""
    return RouteConfiguration(name=name, virtual_hosts=(host(*map(route, clusters)),))


def hosts(*virtual_hosts: VirtualHost, name: str = "routes") -> RouteConfiguration:
    return RouteConfiguration(name=name, virtual_hosts=virtual_hosts)


def cluster(name: str, discovery: Discovery | None = None, **settings: Any) -> Cluster:  # noqa: ANN401
    settings.setdefault("lb_config", ROUND_ROBIN)
    return Cluster(name=name, discovery=discovery or EdsCluster(), **settings)


def eds(name: str, service_name: str, **settings: Any) -> Cluster:  # noqa: ANN401
    return cluster(name, EdsCluster(service_name), **settings)


def dns(name: str, dns_host: str, port: int = 80, **settings: Any) -> Cluster:  # noqa: ANN401
    return cluster(name, LogicalDnsCluster(dns_host, port), **settings)


def aggregate(name: str, *clusters: str, **settings: Any) -> Cluster:  # noqa: ANN401
    return cluster(name, AggregateCluster(clusters), **settings)


def locality(zone: str, *addresses: str, weight: int = 1) -> LocalityEndpoints:
    infos = tuple(EndpointInfo((parse_address(text),)) for text in addresses)
    return LocalityEndpoints(Locality(zone=zone), weight, infos)


def endpoints(name: str, *addresses: str, drops: tuple[DropCategory, ...] = ()) -> EndpointResource:
    """One priority and one locality with these addresses."""
    return prioritized(name, [locality("a", *addresses)] if addresses else [], drops=drops)


def prioritized(
    name: str, *priorities: list[LocalityEndpoints], drops: tuple[DropCategory, ...] = ()
) -> EndpointResource:
    """Endpoints by priority, the highest first."""
    return EndpointResource(
        name=name, priorities=tuple(tuple(each) for each in priorities if each), drops=drops
    )


NOT_FOUND = Status(StatusCode.NOT_FOUND, "does not exist")


def unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)


# ---------------------------------------------------------------------------------------------
# A client in hand


@dataclass(eq=False)
class FakeType:
    """A resource type that nobody decodes."""

    type_url: str
    is_full_state: bool = False

    def decode(self, serialized: bytes, context: object) -> Any:  # noqa: ANN401
        raise AssertionError("nothing is decoded here")


LDS, RDS, CDS, EDS = (FakeType(name) for name in ("LDS", "RDS", "CDS", "EDS"))
TYPES = ResourceTypes(LDS, RDS, CDS, EDS)


class Watches:
    """Watches by type and name, and what the control plane has for them.

    Keeps an XdsClient's promise: a watcher is not called before `watch` returns, nor after cancel.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._watchers: dict[tuple[str, str], list[Any]] = {}
        self._cached: dict[tuple[str, str], Any] = {}
        # Every watch that was ever opened.
        self.opened: list[tuple[str, str]] = []

    def watch(self, resource_type: Any, name: str, watcher: Any) -> Callable[[], None]:  # noqa: ANN401
        key = (resource_type.type_url, name)
        self.opened.append(key)
        self._watchers.setdefault(key, []).append(watcher)

        def tell() -> None:
            if watcher in self._watchers.get(key, ()) and key in self._cached:
                watcher.on_resource(self._cached[key])

        def cancel() -> None:
            self._watchers[key].remove(watcher)
            if not self._watchers[key]:
                del self._watchers[key]

        if key in self._cached:
            self._clock.call_later(0, tell)
        return cancel

    def put(self, resource_type: FakeType, name: str, resource: object) -> None:
        key = (resource_type.type_url, name)
        self._cached[key] = resource
        for watcher in list(self._watchers.get(key, ())):
            watcher.on_resource(resource)

    def trouble(self, resource_type: FakeType, name: str, status: Status) -> None:
        for watcher in list(self._watchers.get((resource_type.type_url, name), ())):
            watcher.on_ambient_error(status)

    def names(self, resource_type: FakeType) -> set[str]:
        """What is watched now."""
        return {name for type_url, name in self._watchers if type_url == resource_type.type_url}

    def count(self, resource_type: FakeType, name: str) -> int:
        """How many watchers one resource has now."""
        return len(self._watchers.get((resource_type.type_url, name), ()))


def set_resource(watches: Watches, resource: object) -> None:
    """The control plane has this."""
    if isinstance(resource, Listener):
        watches.put(LDS, resource.name, resource)
    elif isinstance(resource, RouteConfiguration):
        watches.put(RDS, resource.name, resource)
    elif isinstance(resource, Cluster):
        watches.put(CDS, resource.name, resource)
    else:
        assert isinstance(resource, EndpointResource), resource
        watches.put(EDS, resource.name, resource)


class FakeDns:
    """A resolver factory that the test answers for."""

    scheme = "dns"

    def __init__(self) -> None:
        self.resolvers: dict[str, FakeDnsResolver] = {}

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> FakeDnsResolver:
        assert target.name not in self.resolvers, f"{target.name} is resolved already"
        if " " in target.name:  # As the real one does.
            raise ValueError(f"target {str(target)!r}: wanted host:port")
        resolver = self.resolvers[target.name] = FakeDnsResolver(self, target.name, listener)
        return resolver

    def default_authority(self, target: Target) -> str:
        return target.name

    def answer(self, name: str, *addresses: str) -> None:
        found = tuple(Endpoint((parse_address(text),), EMPTY_ATTRIBUTES) for text in addresses)
        assert self.resolvers[name].listener.on_result(ResolverResult(found)) == OK

    def fail(self, name: str, status: Status) -> None:
        self.resolvers[name].listener.on_result(ResolverResult(status))


@dataclass(eq=False)
class FakeDnsResolver:
    factory: FakeDns
    name: str
    listener: ResolverListener
    started: int = 0
    asked_again: int = 0

    def start(self) -> None:
        self.started += 1

    def request_reresolution(self) -> None:
        self.asked_again += 1

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        del self.factory.resolvers[self.name]


# ---------------------------------------------------------------------------------------------
# A dependency manager in hand


@dataclass(eq=False)
class ConfigWatcher:
    """Remembers everything it was told, in order: configs, and texts for trouble."""

    events: list[XdsConfig | str] = field(default_factory=list)
    # Of the last error: the config for RPCs that were routed before.
    held: XdsConfig | None = None

    def on_update(self, config: XdsConfig) -> None:
        self.events.append(config)

    def on_error(self, context: str, status: Status, held: XdsConfig | None) -> None:
        assert status.details.startswith(f"{context}: ")
        self.events.append(f"error {status.details}")
        self.held = held

    def on_does_not_exist(self, context: str, status: Status, held: XdsConfig | None) -> None:
        assert status.details.startswith(f"{context}: does not exist")
        self.events.append(f"does not exist {context}")
        self.held = held


class World:
    """One manager, its watches, its DNS and its clock."""

    def __init__(self, authority: str = SERVICE) -> None:
        self.clock = VirtualClock()
        self.watches = Watches(self.clock)
        self.dns = FakeDns()
        self.watcher = ConfigWatcher()
        context = ResolverContext(AsyncioNetwork(), self.clock, seeded_random(1))
        tools = ManagerTools(self.clock, self.watches.watch, TYPES, self.dns, context)
        wanted = Wanted(SERVICE, authority, "node-1")
        self.manager = XdsDependencyManager(wanted, self.watcher, tools)

    @property
    def events(self) -> list[XdsConfig | str]:
        return self.watcher.events

    @property
    def config(self) -> XdsConfig:
        """What the watcher was told last."""
        last = self.events[-1]
        assert not isinstance(last, str), last
        return last

    def settle(self) -> None:
        self.clock.advance(0)

    def say(self, *resources: object) -> None:
        """What the control plane has now; all of these are heard in one turn."""
        for resource in resources:
            set_resource(self.watches, resource)
        self.settle()

    def say_one_by_one(self, *resources: object) -> None:
        for resource in resources:
            self.say(resource)

    def remove(self, resource_type: FakeType, name: str) -> None:
        """The control plane says that it does not exist."""
        self.refuse(resource_type, name, NOT_FOUND)

    def refuse(self, resource_type: FakeType, name: str, status: Status) -> None:
        """There is nothing to use, for this reason."""
        self.watches.put(resource_type, name, status)
        self.settle()

    def trouble(self, resource_type: FakeType, name: str, status: Status) -> None:
        """Something is wrong, but what was there stays in use."""
        self.watches.trouble(resource_type, name, status)
        self.settle()

    def entries(self, name: str) -> tuple[ClusterConfig, ...]:
        found = self.config.clusters[name]
        assert isinstance(found, tuple), found
        return found

    def leaves(self, name: str) -> list[str]:
        return [entry.cluster_name for entry in self.entries(name)]


def start_plain(*clusters: str, authority: str = SERVICE) -> World:
    """A world with one route to each cluster, all of them with one endpoint."""
    world = World(authority)
    world.say(listener(), route_config(*clusters))
    for name in clusters:
        world.say(cluster(name), endpoints(name, "10.0.0.1:80"))
    return world
