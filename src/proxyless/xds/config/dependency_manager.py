"""XdsDependencyManager: watches the resources that one target needs, and publishes its XdsConfig.

Specs: A74. Only this module opens watches and DNS resolvers (A74-01).

Theory of operation
    A notification from a watch, a DNS resolver or a subscriber only changes recorded state. Once
    for all notifications of one turn of the loop, `dependencies.resolve` computes the plan: watches
    are opened and closed to match it, and the watcher is notified if the outcome has changed. The
    manager calls nothing inside a call to it, so subscribers may call it from anywhere (A74-50).

    While the listener or the routes are in error, no set of routed clusters has to change in one
    step. Clusters that RPCs still hold are then published independently: new endpoints, an error or
    a removal at once (A31-41, A74-49).

    While a server does not answer, routes that need its resources wait, and those in force are held
    (D50).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from proxyless.base import OK, Endpoint, Locality, Status, StatusCode
from proxyless.base.endpoint import join_host_port
from proxyless.base.frozen import frozen
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.resolver import ResolverResult, Target
from proxyless.runtime import Soon
from proxyless.xds.config.dependencies import resolve
from proxyless.xds.config.plan import (
    ConfigError,
    ConfigTarget,
    DnsName,
    Missing,
    Plan,
    ResourceState,
    ResourceStates,
)
from proxyless.xds.config.xds_config import ClusterResult, XdsConfig, XdsConfigWatcher
from proxyless.xds.error_texts import name_listener
from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.resolver import Resolver, ResolverContext, ResolverFactory
    from proxyless.runtime import Clock
    from proxyless.xds.client.api import ResourceType, ResourceWatcher
    from proxyless.xds.config.endpoint_join import EndpointCollection
    from proxyless.xds.resources import Cluster, Listener, RouteConfiguration

T = TypeVar("T")

LOGGER: Final = logging.getLogger("proxyless.xds.resolver")

# The number of clusters up to which a config is resolved and published in the same turn.
PUBLISHED_AT_ONCE_MAX: Final = 1_000
# Watches of one resource type that are opened, and that are cancelled, in one turn.
WATCHES_PER_TURN: Final = 1_000


@frozen
class ResourceTypes:
    """The resource types of a target."""

    listener: ResourceType[Listener]
    route_config: ResourceType[RouteConfiguration]
    cluster: ResourceType[Cluster]
    endpoint: ResourceType[EndpointResource]
    collection: ResourceType[EndpointCollection]


@frozen
class ManagerTools:
    """The collaborators of a dependency manager."""

    clock: Clock
    # `XdsClient.watch`, which never calls the watcher before it returns.
    watch: Callable[[ResourceType[T], str, ResourceWatcher[T]], Callable[[], None]]
    types: ResourceTypes
    # For LOGICAL_DNS clusters.
    dns: ResolverFactory
    dns_context: ResolverContext
    # Whether the config in force is held while no server answers (D50).
    holds_config: bool = True
    metrics: Metrics = NO_METRICS


class XdsDependencyManager:
    """Owns the watches and DNS resolvers of one target, and their last notifications."""

    def __init__(
        self, target: ConfigTarget, watcher: XdsConfigWatcher, tools: ManagerTools
    ) -> None:
        # Fixed at construction.
        self._target = target
        self._watcher = watcher
        self._tools = tools
        # The last notifications, and their sources.
        self._states = states = ResourceStates()
        types = tools.types
        self._listeners = _Watches(self, tools, types.listener, states.listeners)
        self._route_configs = _Watches(self, tools, types.route_config, states.route_configs)
        self._clusters = _Watches(self, tools, types.cluster, states.clusters)
        self._endpoints = _Watches(self, tools, types.endpoint, states.endpoints)
        self._collections = _Watches(self, tools, types.collection, states.collections)
        self._dns: dict[DnsName, _DnsWatch] = {}
        # The number of subscribers by cluster, without zeros.
        self._subscribed: dict[str, int] = {}
        # Last published. If there is an error, the config has only the subscribed clusters.
        self._config: XdsConfig | None = None
        self._error: ConfigError | None = None
        # Since when each missing resource has delayed the next config, and since when this one is
        # held.
        self._missing_since_s: dict[Missing, float] = {}
        self._held_since_s: float | None = None
        # Requested by each notification.
        self._reconcile_soon = Soon(tools.clock, self._reconcile)
        # The last plan; a large one is published in a turn of its own.
        self._plan = Plan()
        self._publish_soon = Soon(tools.clock, self._publish_plan)
        self._is_closed = False
        self._listeners.set_watched({target.listener_name: None})

    def subscribe(self, name: str) -> _Subscription:
        """Include this cluster in configs until the subscription is released (A74-43)."""
        count = self._subscribed.get(name, 0)
        self._subscribed[name] = count + 1
        if count == 0:
            self.on_change()
        return _Subscription(self, name)

    def on_release(self, name: str) -> None:
        """Called by subscriptions."""
        self._subscribed[name] -= 1
        if self._subscribed[name] == 0:
            del self._subscribed[name]
            self.on_change()

    def request_reresolution(self) -> None:
        """Resolve every DNS name again (A37-06)."""
        for watch in self._dns.values():
            watch.request_reresolution()

    def reset_backoff(self) -> None:
        for watch in self._dns.values():
            watch.reset_backoff()

    def plan(self) -> Plan:
        """The current plan. Has no side effect: explanations use it, too."""
        may_hold = self._tools.holds_config and self._error is None
        return resolve(
            self._target, self._states, self._subscribed, self._config, may_hold=may_hold
        )

    def waits_s(self, plan: Plan) -> dict[Missing, float]:
        """How long the config has been delayed by each missing resource of a plan."""
        now_s = self._tools.clock.now_s()
        awaited = plan.missing | plan.unanswered
        return {each: now_s - self._missing_since_s.get(each, now_s) for each in awaited}

    def close(self) -> None:
        """Stop every watch; the watcher is not called any more. Idempotent."""
        self._is_closed = True
        self._reconcile_soon.cancel()
        self._publish_soon.cancel()
        self._listeners.close()
        self._route_configs.close()
        self._clusters.close()
        self._endpoints.close()
        self._collections.close()
        self._watch_dns({})

    def on_change(self) -> None:
        """Called by watches and subscriptions: reconcile soon."""
        if not self._is_closed:
            self._reconcile_soon.request()

    def _reconcile(self) -> None:
        if (
            self._clusters.is_incomplete
            or self._endpoints.is_incomplete
            or self._collections.is_incomplete
        ):
            # The rest of the watches is opened first, and then this is called again.
            return
        plan = self.plan()
        self._watch(plan)
        now_s, before = self._tools.clock.now_s(), self._missing_since_s
        awaited = plan.missing | plan.unanswered
        self._missing_since_s = {each: before.get(each, now_s) for each in awaited}
        self._plan = plan
        if bool(plan.unanswered) != (self._held_since_s is not None):
            self._on_hold_changed(plan, now_s)
        if len(plan.clusters) > PUBLISHED_AT_ONCE_MAX:
            self._publish_soon.request()
        else:
            self._publish_plan()

    def _on_hold_changed(self, plan: Plan, now_s: float) -> None:
        listener, since_s = name_listener(self._target.listener_name), self._held_since_s
        if since_s is not None:
            self._held_since_s = None
            LOGGER.info("%s: routes are not held any more, after %.1f s", listener, now_s - since_s)
            return
        from proxyless.metrics.instruments import XDS_HELD_CONFIGS  # noqa: PLC0415 - seldom used

        self._held_since_s = now_s
        metrics = self._tools.metrics
        metrics.count(XDS_HELD_CONFIGS, (metrics.target,))
        first = next(iter(plan.unanswered))
        self._tools.dns_context.trace.emit("xds_resolver.held", awaited=str(first))
        text = (
            "%s: routes in force are held, new ones wait for the answer of an xds server about %s"
        )
        LOGGER.warning(text, listener, first)

    def _publish_plan(self) -> None:
        # A large plan that waited is out of date now.
        self._publish_soon.cancel()
        plan = self._plan
        if isinstance(plan.outcome, XdsConfig):
            self._publish_config(plan.outcome)
        elif error := plan.outcome or self._error:
            self._publish_error(error, plan.subscribed)

    def _publish_config(self, config: XdsConfig) -> None:
        previous, error = self._config, self._error
        if error is None and previous is not None and _is_same_config(config, previous):
            return
        self._config, self._error = config, None
        self._watcher.on_update(config)

    def _publish_error(self, error: ConfigError, clusters: dict[str, ClusterResult]) -> None:
        previous = self._config
        is_same = previous is None or _are_same_clusters(clusters, previous.clusters)
        if error == self._error and is_same:
            return
        self._error = error
        self._config = held = None if previous is None else previous.with_clusters(clusters)
        if error.does_not_exist:
            self._watcher.on_does_not_exist(error.context, error.status, held)
        else:
            self._watcher.on_error(error.context, error.status, held)

    def _watch(self, plan: Plan) -> None:
        """Watch exactly the resources of the plan."""
        self._route_configs.set_watched(plan.route_configs)
        self._clusters.set_watched(plan.clusters)
        self._endpoints.set_watched(plan.endpoints)
        if plan.collections or self._collections.needed:
            self._watch_collections(plan)
        if plan.dns.keys() != self._dns.keys():
            self._watch_dns(plan.dns)

    def _watch_collections(self, plan: Plan) -> None:
        self._collections.set_watched(plan.collections)
        joined = self._states.joined
        for name in [name for name in joined if name not in plan.endpoints]:
            del joined[name]

    def _watch_dns(self, needed: Mapping[DnsName, None]) -> None:
        for key in [key for key in self._dns if key not in needed]:
            self._dns.pop(key).close()
            self._states.dns.pop(key, None)
        for key in needed:
            if key not in self._dns:
                self._dns[key] = _DnsWatch(self, self._tools, key, self._states.dns)


class _Watches(Generic[T]):
    """All watches of one resource type, and their last notifications."""

    def __init__(
        self,
        manager: XdsDependencyManager,
        tools: ManagerTools,
        resource_type: ResourceType[T],
        states: dict[str, ResourceState[T]],
    ) -> None:
        self._manager = manager
        self._tools = tools
        self._type = resource_type
        self._states = states
        self._cancels: dict[str, Callable[[], None]] = {}
        # The names of the last call, and whether some of them are not watched yet.
        self.needed: Mapping[str, None] = {}
        self.is_incomplete = False
        self._continue_soon = Soon(tools.clock, self._open_and_cancel)

    def set_watched(self, needed: Mapping[str, None]) -> None:
        """Watch exactly these names; in slices, if many are new or not needed any more."""
        self.needed = needed
        if needed.keys() != self._cancels.keys():
            self._open_and_cancel()

    def close(self) -> None:
        self._continue_soon.cancel()
        for name in list(self._cancels):
            self._cancel(name)

    def _open_and_cancel(self) -> None:
        cancels, needed = self._cancels, self.needed
        removed = [name for name in cancels if name not in needed]
        for name in removed[:WATCHES_PER_TURN]:
            self._cancel(name)
        added = [name for name in needed if name not in cancels]
        for name in added[:WATCHES_PER_TURN]:
            watcher = _Watcher(self._manager, self._states, name)
            cancels[name] = self._tools.watch(self._type, name, watcher)
        before, self.is_incomplete = self.is_incomplete, len(added) > WATCHES_PER_TURN
        if self.is_incomplete or len(removed) > WATCHES_PER_TURN:
            self._continue_soon.request()
        elif before:
            self._manager.on_change()

    def _cancel(self, name: str) -> None:
        self._cancels.pop(name)()
        self._states.pop(name, None)


class _Watcher(Generic[T]):
    """Watcher of one resource: records its notifications."""

    __slots__ = ("_manager", "_name", "_states")

    def __init__(
        self, manager: XdsDependencyManager, states: dict[str, ResourceState[T]], name: str
    ) -> None:
        self._manager = manager
        self._states = states
        self._name = name

    def on_resource(self, resource: T | Status) -> None:
        if isinstance(resource, Status):
            self._states[self._name] = ResourceState(error=resource)
        else:
            self._states[self._name] = ResourceState(resource)
        self._manager.on_change()

    def on_ambient_error(self, status: Status) -> None:
        state = self._states.get(self._name)
        if state is not None:
            self._states[self._name] = ResourceState(state.resource, state.error, status)
            self._manager.on_change()


class _DnsWatch:
    """The resolver of one DNS name, shared by all LOGICAL_DNS clusters with that name (A74-11)."""

    def __init__(
        self,
        manager: XdsDependencyManager,
        tools: ManagerTools,
        key: DnsName,
        states: dict[DnsName, ResourceState[EndpointResource]],
    ) -> None:
        self._manager = manager
        self._key = key
        self._states = states
        host, port = key
        self._name = join_host_port(host, port)
        # None if the control plane's name is invalid.
        self._resolver: Resolver | None = None
        try:
            self._resolver = tools.dns.create(
                Target("dns", "", f"/{self._name}"), self, tools.dns_context
            )
        except ValueError as error:
            self.on_result(ResolverResult(Status(StatusCode.UNAVAILABLE, str(error))))
        else:
            self._resolver.start()

    def request_reresolution(self) -> None:
        if self._resolver is not None:
            self._resolver.request_reresolution()

    def reset_backoff(self) -> None:
        if self._resolver is not None:
            self._resolver.reset_backoff()

    def close(self) -> None:
        if self._resolver is not None:
            self._resolver.close()

    def on_result(self, result: ResolverResult) -> Status:
        found, state = result.endpoints, self._states.get(self._key)
        previous = None if state is None else state.resource
        if not isinstance(found, Status):
            resource = _resource_of(self._name, found)
            # An equal resource is the same object: then nothing is published.
            self._states[self._key] = ResourceState(previous if resource == previous else resource)
        elif previous is not None:
            # "DNS error after a good answer keeps the answer" (A74-37).
            self._states[self._key] = ResourceState(previous, ambient_error=found)
        else:
            self._states[self._key] = ResourceState(error=found)
        self._manager.on_change()
        return OK


def _resource_of(name: str, found: tuple[Endpoint, ...]) -> EndpointResource:
    """One endpoint that has all addresses (A61-01), in a locality without a name."""
    addresses = tuple(dict.fromkeys(address for each in found for address in each.addresses))
    if not addresses:
        return EndpointResource(name=name)
    locality = LocalityEndpoints(Locality(), 1, (EndpointInfo(addresses, hostname=name),))
    return EndpointResource(name=name, priorities=((locality,),))


class _Subscription:
    """A `ClusterSubscription`."""

    __slots__ = ("_manager", "_name")

    def __init__(self, manager: XdsDependencyManager, name: str) -> None:
        self._manager: XdsDependencyManager | None = manager
        self._name = name

    def release(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.on_release(self._name)


def _is_same_config(new: XdsConfig, old: XdsConfig) -> bool:
    return (
        new.listener is old.listener
        and new.route_config is old.route_config
        and _are_same_clusters(new.clusters, old.clusters)
    )


def _are_same_clusters(new: Mapping[str, ClusterResult], old: Mapping[str, ClusterResult]) -> bool:
    """Whether entries are equal, by identity except errors: `resolve` reuses unchanged ones."""
    return new.keys() == old.keys() and all(
        old[name] is result or (not isinstance(result, tuple) and old[name] == result)
        for name, result in new.items()
    )
