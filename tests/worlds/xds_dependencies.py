"""XdsDependencyManager under test, with a fake XdsClient and a fake DNS resolver.

`Watches` replaces an XdsClient: the test publishes parsed resources, and reads which are watched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, Status, parse_address
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.resolver import ResolverContext, ResolverResult
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.xds.config.dependency_manager import (
    ManagerTools,
    ResourceTypes,
    XdsDependencyManager,
)
from proxyless.xds.config.plan import ConfigTarget
from proxyless.xds.resources import Cluster, EndpointResource, Listener, RouteConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.resolver import ResolverListener, Target
    from proxyless.xds.config import ClusterConfig, XdsConfig

from tests.worlds.xds_resources import (
    NOT_FOUND,
    SERVICE,
    cluster,
    endpoints,
    listener,
    route_config,
)

# Fake XdsClient


@dataclass(eq=False)
class FakeType:
    """Resource type without a decoder."""

    type_url: str
    is_full_state: bool = False

    def decode(self, serialized: bytes, context: object) -> Any:  # noqa: ANN401
        raise AssertionError("no resource is decoded")


LDS, RDS, CDS, EDS, LEDS = map(FakeType, ("LDS", "RDS", "CDS", "EDS", "LEDS"))
TYPES = ResourceTypes(LDS, RDS, CDS, EDS, LEDS)


class Watches:
    """Watches by type and name, and the published resources.

    As in an XdsClient, a watcher is not called before `watch` returns, nor after its cancellation.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._watchers: dict[tuple[str, str], list[Any]] = {}
        self._cached: dict[tuple[str, str], Any] = {}
        # All watches so far.
        self.opened: list[tuple[str, str]] = []

    def watch(self, resource_type: Any, name: str, watcher: Any) -> Callable[[], None]:  # noqa: ANN401
        key = (resource_type.type_url, name)
        self.opened.append(key)
        self._watchers.setdefault(key, []).append(watcher)

        def notify() -> None:
            if watcher in self._watchers.get(key, ()) and key in self._cached:
                watcher.on_resource(self._cached[key])

        def cancel() -> None:
            self._watchers[key].remove(watcher)
            if not self._watchers[key]:
                del self._watchers[key]

        if key in self._cached:
            self._clock.call_later(0, notify)
        return cancel

    def put(self, resource_type: FakeType, name: str, resource: object) -> None:
        key = (resource_type.type_url, name)
        self._cached[key] = resource
        for watcher in list(self._watchers.get(key, ())):
            watcher.on_resource(resource)

    def publish_ambient_error(self, resource_type: FakeType, name: str, status: Status) -> None:
        for watcher in list(self._watchers.get((resource_type.type_url, name), ())):
            watcher.on_ambient_error(status)

    def names(self, resource_type: FakeType) -> set[str]:
        """Return the names of the watched resources of a type."""
        return {name for type_url, name in self._watchers if type_url == resource_type.type_url}

    def count(self, resource_type: FakeType, name: str) -> int:
        """Count the watchers of a resource."""
        return len(self._watchers.get((resource_type.type_url, name), ()))


def set_resource(watches: Watches, resource: object) -> None:
    """Publish a resource of any type."""
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
    """Factory of DNS resolvers whose results the test publishes."""

    scheme = "dns"

    def __init__(self) -> None:
        self.resolvers: dict[str, FakeDnsResolver] = {}

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> FakeDnsResolver:
        assert target.name not in self.resolvers, f"{target.name} is resolved already"
        if " " in target.name:  # As in the real one.
            raise ValueError(f"target {str(target)!r}: wanted host:port")
        resolver = self.resolvers[target.name] = FakeDnsResolver(self, target.name, listener)
        return resolver

    def default_authority(self, target: Target) -> str:
        return target.name

    def respond(self, name: str, *addresses: str) -> None:
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
    reresolutions: int = 0

    def start(self) -> None:
        self.started += 1

    def request_reresolution(self) -> None:
        self.reresolutions += 1

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        del self.factory.resolvers[self.name]


# Dependency manager


@dataclass(eq=False)
class ConfigWatcher:
    """Watcher that records its notifications: configs, and texts for errors."""

    events: list[XdsConfig | str] = field(default_factory=list)
    # The config of the last error, for RPCs that were routed before it.
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


class DependencyWorld:
    """Dependency manager, its watches, its DNS resolvers and its clock."""

    def __init__(
        self,
        authority: str = SERVICE,
        *,
        holds_config: bool = True,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self.clock = VirtualClock()
        self.watches = Watches(self.clock)
        self.dns = FakeDns()
        self.watcher = ConfigWatcher()
        context = ResolverContext(AsyncioNetwork(), self.clock, seeded_random(1))
        tools = ManagerTools(
            self.clock, self.watches.watch, TYPES, self.dns, context, holds_config, metrics
        )
        target = ConfigTarget(SERVICE, authority, "node-1")
        self.manager = XdsDependencyManager(target, self.watcher, tools)

    @property
    def events(self) -> list[XdsConfig | str]:
        return self.watcher.events

    @property
    def config(self) -> XdsConfig:
        """Config of the last notification."""
        last = self.events[-1]
        assert not isinstance(last, str), last
        return last

    def settle(self) -> None:
        self.clock.advance(0)

    def publish(self, *resources: object) -> None:
        """Publish these resources in one turn."""
        for resource in resources:
            set_resource(self.watches, resource)
        self.settle()

    def publish_one_by_one(self, *resources: object) -> None:
        for resource in resources:
            self.publish(resource)

    def remove(self, resource_type: FakeType, name: str) -> None:
        """Publish that a resource does not exist."""
        self.publish_error(resource_type, name, NOT_FOUND)

    def publish_error(self, resource_type: FakeType, name: str, status: Status) -> None:
        """Publish an error instead of a resource."""
        self.watches.put(resource_type, name, status)
        self.settle()

    def publish_ambient_error(self, resource_type: FakeType, name: str, status: Status) -> None:
        """Publish an error that leaves the resource in use."""
        self.watches.publish_ambient_error(resource_type, name, status)
        self.settle()

    def entries(self, name: str) -> tuple[ClusterConfig, ...]:
        found = self.config.clusters[name]
        assert isinstance(found, tuple), found
        return found

    def leaves(self, name: str) -> list[str]:
        return [entry.cluster_name for entry in self.entries(name)]


def start_plain(*clusters: str, authority: str = SERVICE) -> DependencyWorld:
    """Return a world with one route to each cluster, all of them with one endpoint."""
    world = DependencyWorld(authority)
    world.publish(listener(), route_config(*clusters))
    for name in clusters:
        world.publish(cluster(name), endpoints(name, "10.0.0.1:80"))
    return world
