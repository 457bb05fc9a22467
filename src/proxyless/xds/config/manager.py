"""Who sees to it that everything a config needs is watched, and tells when it is complete?

Specs: A74 (XdsDependencyManager). Only this opens watches and DNS resolvers (A74-01).

Theory of operation
    Whatever is heard, from a watch, from DNS or from a subscriber, only changes what is known. Soon
    after, once for all that was heard in one turn of the loop, `dependencies.resolve` says what is
    needed and what the config is: watches are opened and closed to match, and the watcher is told
    if the outcome is another one than it was told before. Nothing is called inside a call to the
    manager, so subscribers may call it from anywhere (A74-50).

    While the listener or the routes cannot be used, there are no routes whose clusters have to
    change in one step. Clusters that RPCs still hold then change on their own: new endpoints, an
    error or a removal are published at once (A31-41, A74-49).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from proxyless.base import OK, Endpoint, Locality, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.resolver import ResolverResult, Target
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.config.dependencies import (
    Answer,
    DnsName,
    Known,
    Missing,
    Plan,
    Trouble,
    Wanted,
    resolve,
)
from proxyless.xds.config.xds_config import ClusterResult, XdsConfig, XdsConfigWatcher
from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.resolver import Resolver, ResolverContext, ResolverFactory
    from proxyless.runtime import Clock
    from proxyless.xds.client.api import ResourceType, ResourceWatcher
    from proxyless.xds.resources import Cluster, Listener, RouteConfiguration

T = TypeVar("T")


@frozen
class ResourceTypes:
    """How the four types of resource are named and decoded."""

    listener: ResourceType[Listener]
    route_config: ResourceType[RouteConfiguration]
    cluster: ResourceType[Cluster]
    endpoint: ResourceType[EndpointResource]


@frozen
class ManagerTools:
    """What a dependency manager acts through."""

    clock: Clock
    # XdsClient.watch: never calls the watcher before it returns.
    watch: Callable[[ResourceType[T], str, ResourceWatcher[T]], Callable[[], None]]
    types: ResourceTypes
    # Who resolves the names of LOGICAL_DNS clusters, and with what.
    dns: ResolverFactory
    dns_context: ResolverContext


class XdsDependencyManager:
    """Watches what one target needs. Driven by its watches, DNS resolvers and subscribers."""

    def __init__(self, wanted: Wanted, watcher: XdsConfigWatcher, tools: ManagerTools) -> None:
        # Fixed at construction.
        self._wanted = wanted
        self._watcher = watcher
        self._tools = tools
        # What was heard, and through what.
        self._known = Known()
        types = tools.types
        known = self._known
        self._route_configs = _Watches(self, tools, types.route_config, known.route_configs)
        self._clusters = _Watches(self, tools, types.cluster, known.clusters)
        self._endpoints = _Watches(self, tools, types.endpoint, known.endpoints)
        self._dns: dict[DnsName, _DnsName] = {}
        # Subscribers by name of cluster; a name without any is not here.
        self._subscribed: dict[str, int] = {}
        # What was published last: the config, for what is taken over into the next; and why RPCs
        # cannot be routed by it, then with the clusters that are subscribed to only.
        self._config: XdsConfig | None = None
        self._trouble: Trouble | None = None
        # What the next config is withheld for, and since when.
        self._missing_since_s: dict[Missing, float] = {}
        # Pending while something heard is not looked at yet.
        self._timer: Timer = IDLE_TIMER
        self._is_closed = False
        self._stop_listening = tools.watch(
            types.listener, wanted.listener_name, _ListenerWatcher(self, self._known)
        )

    def subscribe(self, name: str) -> _Subscription:
        """Have this cluster in configs, until the handle is released (A74-43)."""
        count = self._subscribed.get(name, 0)
        self._subscribed[name] = count + 1
        if count == 0:
            self.on_change()
        return _Subscription(self, name)

    def on_release(self, name: str) -> None:
        """For handles: one subscriber less."""
        self._subscribed[name] -= 1
        if self._subscribed[name] == 0:
            del self._subscribed[name]
            self.on_change()

    def request_reresolution(self) -> None:
        """Somebody doubts the endpoints: every DNS name is looked up again (A37-04)."""
        for name in self._dns.values():
            name.request_reresolution()

    def reset_backoff(self) -> None:
        for name in self._dns.values():
            name.reset_backoff()

    def plan(self) -> Plan:
        """What the target needs by what is known now, for explanations: nothing changes."""
        return resolve(self._wanted, self._known, self._subscribed, self._config)

    def waits_s(self, plan: Plan) -> dict[Missing, float]:
        """What a plan without an outcome waits for, and for how long already."""
        now_s = self._tools.clock.now_s()
        return {each: now_s - self._missing_since_s.get(each, now_s) for each in plan.missing}

    def close(self) -> None:
        """Stop every watch; the watcher hears nothing from now on. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._timer.cancel()
        self._stop_listening()
        for watches in (self._route_configs, self._clusters, self._endpoints):
            watches.keep({})
        self._keep_dns({})

    # What was heard

    def on_change(self) -> None:
        """For watches and handles: what is known has changed; look at it soon."""
        if not self._is_closed and not self._timer.pending:
            self._timer = self._tools.clock.call_later(0, self._reconcile)

    def _reconcile(self) -> None:
        plan = resolve(self._wanted, self._known, self._subscribed, self._config)
        self._route_configs.keep(plan.route_configs)
        self._clusters.keep(plan.clusters)
        self._endpoints.keep(plan.endpoints)
        self._keep_dns(plan.dns)
        now_s, before = self._tools.clock.now_s(), self._missing_since_s
        self._missing_since_s = {each: before.get(each, now_s) for each in plan.missing}
        if isinstance(plan.outcome, XdsConfig):
            self._publish_config(plan.outcome)
        elif trouble := plan.outcome or self._trouble:
            self._publish_trouble(trouble, plan.subscribed)

    def _publish_config(self, config: XdsConfig) -> None:
        previous, trouble = self._config, self._trouble
        if trouble is None and previous is not None and _is_same_config(config, previous):
            return
        self._config, self._trouble = config, None
        self._watcher.on_update(config)

    def _publish_trouble(self, trouble: Trouble, clusters: dict[str, ClusterResult]) -> None:
        previous = self._config
        is_same = previous is None or _are_same_clusters(clusters, previous.clusters)
        if trouble == self._trouble and is_same:
            return
        self._trouble = trouble
        self._config = held = None if previous is None else previous.with_clusters(clusters)
        if trouble.does_not_exist:
            self._watcher.on_does_not_exist(trouble.context, trouble.status, held)
        else:
            self._watcher.on_error(trouble.context, trouble.status, held)

    # DNS

    def _keep_dns(self, needed: Mapping[DnsName, None]) -> None:
        for key in [key for key in self._dns if key not in needed]:
            self._dns.pop(key).close()
            self._known.dns.pop(key, None)
        for key in needed:
            if key not in self._dns:
                self._dns[key] = _DnsName(self, self._tools, key, self._known.dns)


class _Watches(Generic[T]):
    """All watches of one type of resource, and what they have said."""

    def __init__(
        self,
        manager: XdsDependencyManager,
        tools: ManagerTools,
        resource_type: ResourceType[T],
        answers: dict[str, Answer[T]],
    ) -> None:
        self._manager = manager
        self._tools = tools
        self._type = resource_type
        self._answers = answers
        self._cancels: dict[str, Callable[[], None]] = {}

    def keep(self, needed: Mapping[str, None]) -> None:
        """Have exactly these watches."""
        for name in [name for name in self._cancels if name not in needed]:
            self._cancels.pop(name)()
            self._answers.pop(name, None)
        for name in needed:
            if name not in self._cancels:
                watcher = _Watcher(self._manager, self._answers, name)
                self._cancels[name] = self._tools.watch(self._type, name, watcher)


class _Watcher(Generic[T]):
    """One watch: writes down what it hears."""

    __slots__ = ("_answers", "_manager", "_name")

    def __init__(
        self, manager: XdsDependencyManager, answers: dict[str, Answer[T]], name: str
    ) -> None:
        self._manager = manager
        self._answers = answers
        self._name = name

    def on_resource(self, resource: T | Status) -> None:
        self._answers[self._name] = _answer(resource)
        self._manager.on_change()

    def on_ambient_error(self, status: Status) -> None:
        answer = self._answers.get(self._name)
        if answer is not None:
            self._answers[self._name] = Answer(answer.resource, answer.error, status)
            self._manager.on_change()


class _ListenerWatcher:
    """The one watch that never ends: the listener's."""

    def __init__(self, manager: XdsDependencyManager, known: Known) -> None:
        self._manager = manager
        self._known = known

    def on_resource(self, resource: Listener | Status) -> None:
        self._known.listener = _answer(resource)
        self._manager.on_change()

    def on_ambient_error(self, status: Status) -> None:
        answer = self._known.listener
        self._known.listener = Answer(answer.resource, answer.error, status)
        self._manager.on_change()


def _answer(resource: T | Status) -> Answer[T]:
    if isinstance(resource, Status):
        return Answer(error=resource)
    return Answer(resource)


class _DnsName:
    """One name of a LOGICAL_DNS cluster; clusters with the same one share it (A74-11)."""

    def __init__(
        self,
        manager: XdsDependencyManager,
        tools: ManagerTools,
        key: DnsName,
        answers: dict[DnsName, Answer[EndpointResource]],
    ) -> None:
        self._manager = manager
        self._key = key
        self._answers = answers
        host, port = key
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # None if a control plane calls something a name that is none.
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
        found, answer = result.endpoints, self._answers.get(self._key)
        known = None if answer is None else answer.resource
        if not isinstance(found, Status):
            resource = _resource_of(self._name, found)
            # The same object if it says the same: then nobody is told of it.
            self._answers[self._key] = Answer(known if resource == known else resource)
        elif known is not None:
            # "DNS error after a good answer keeps the answer" (A74-37).
            self._answers[self._key] = Answer(known, ambient_error=found)
        else:
            self._answers[self._key] = Answer(error=found)
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
    """One subscriber's handle."""

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
    """By identity, except errors: unchanged clusters are taken over as the same objects."""
    return new.keys() == old.keys() and all(
        old[name] is result or (not isinstance(result, tuple) and old[name] == result)
        for name, result in new.items()
    )
