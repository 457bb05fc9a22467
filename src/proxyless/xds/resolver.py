"""Resolver of `xds:///` targets: makes a resolver result of each XdsConfig.

Specs: A31 (selector before config, clusters removed in two steps), A74 (one complete config), D20,
D21, D29.

A result has a load balancing config with a child of xds_cluster_manager for each referenced
cluster, the XdsConfig as an attribute, and a config selector. A cluster that no route names any
more is referenced until the old selector is closed and the last RPC on it is committed; then a
result without it follows (A31-36). If listener or routes are lost, new RPCs fail or wait; routed
RPCs go on, and changes of their clusters are published with further results.
"""

from __future__ import annotations

import logging
import os
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Status, quote
from proxyless.base.frozen import frozen
from proxyless.channel.config_selector import CONFIG_SELECTOR, UNROUTABLE
from proxyless.resolver import ResolverResult, StaticResolver
from proxyless.resolver.target import encode_authority
from proxyless.runtime import Soon
from proxyless.xds.bootstrap.resource_names import listener_name_for_target
from proxyless.xds.config.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CLIENT, XDS_CONFIG
from proxyless.xds.config.dependencies import ConfigTarget, Missing, Plan
from proxyless.xds.config.dependency_manager import (
    ManagerTools,
    ResourceTypes,
    XdsDependencyManager,
)
from proxyless.xds.error_texts import with_node
from proxyless.xds.parsing import ClusterType, EndpointType, ListenerType, RouteConfigurationType
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX, PLUGIN_PREFIX, ClusterRefs
from proxyless.xds.routing.route_table import DEFAULT_TIMEOUT_S, RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.lb import PolicyRegistry
    from proxyless.resolver import ResolverContext, ResolverFactory, ResolverListener, Target
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClient
    from proxyless.xds.client.api import ResourceDump, ServerView
    from proxyless.xds.config import XdsConfig
    from proxyless.xds.filters.api import FilterRegistry

LOGGER: Final = logging.getLogger("proxyless.xds.resolver")

SCHEME: Final = "xds"
CLUSTER_MANAGER: Final = "xds_cluster_manager_experimental"
# Channel option: whether the ADS stream is shared with other targets. grpcio has none like it.
SHARED_STREAM_OPTION: Final = "proxyless.xds_shared_stream"
# Replaces the default of 15 s (D20).
DEFAULT_TIMEOUT_VARIABLE: Final = "GRPC_XDS_DEFAULT_ROUTE_TIMEOUT"


@frozen
class XdsView:
    """State of one target, for explanations."""

    target: ConfigTarget
    # None before the first config.
    config: XdsConfig | None
    # The reason why RPCs cannot be routed; None if they can, or before the first result.
    error: Status | None
    # The resources that are needed, and for how long each missing one has been awaited.
    plan: Plan
    waits_s: Mapping[Missing, float]
    # All resources of the client, which other targets may share.
    resources: Sequence[ResourceDump]
    servers: Sequence[ServerView]
    default_timeout_s: float


@frozen
class XdsTools:
    """Dependencies of resolvers: client pool, resource types, filters, DNS."""

    # Bootstrap, data-plane target, and whether the client is shared with other targets; None:
    # the default of the control plane. The client has to be released.
    acquire: Callable[[Bootstrap, str, bool | None], XdsClient]
    release: Callable[[XdsClient], None]
    types: ResourceTypes
    filters: FilterRegistry
    dns: ResolverFactory


def resource_types(policies: PolicyRegistry, filters: FilterRegistry) -> ResourceTypes:
    """The four resource types, decoded with these registries."""
    listener, routes = ListenerType(filters), RouteConfigurationType(filters)
    return ResourceTypes(listener, routes, ClusterType(policies), EndpointType())


class XdsResolver:
    """Resolver of one target. Owns its dependency manager and the references to clusters."""

    def __init__(
        self,
        target: ConfigTarget,
        client: XdsClient,
        listener: ResolverListener,
        context: ResolverContext,
        tools: XdsTools,
    ) -> None:
        # Fixed at construction.
        self._target = target
        self._client = client
        self._listener = listener
        self._context = context
        self._tools = tools
        self._refs = ClusterRefs(self._on_unused)
        # Not None between start and close.
        self._manager: XdsDependencyManager | None = None
        self._selector_tools: SelectorTools | None = None
        # From the last update of the dependency manager.
        self._config: XdsConfig | None = None
        self._table: RouteTable | None = None
        self._selector: XdsConfigSelector | None = None
        self._error: Status | None = None
        # Load balancing config of the last result, used again if it is equal.
        self._service_config: Mapping[str, object] = {}
        self._children: Mapping[str, object] = {}
        # Requested when a cluster of the load balancing config has no reference any more.
        self._drop_soon = Soon(context.clock, self._drop_unused)

    # Called by the channel

    def start(self) -> None:
        context, tools = self._context, self._tools
        manager_tools = ManagerTools(
            context.clock, self._client.watch, tools.types, tools.dns, context
        )
        self._manager = XdsDependencyManager(self._target, self, manager_tools)
        self._selector_tools = SelectorTools(
            self._refs, self._manager, tools.filters, context.random, default_timeout_s()
        )

    def request_reresolution(self) -> None:
        if self._manager is not None:
            self._manager.request_reresolution()

    def reset_backoff(self) -> None:
        if self._manager is not None:
            self._manager.reset_backoff()

    def close(self) -> None:
        if self._manager is not None:
            self._drop_soon.cancel()
            self._manager.close()
            self._manager = None
            self._tools.release(self._client)

    def view(self) -> XdsView:
        assert self._manager is not None, "only a running resolver has a view"
        plan = self._manager.plan()
        return XdsView(
            self._target,
            self._config,
            self._error,
            plan,
            self._manager.waits_s(plan),
            self._client.dump(),
            self._client.servers(),
            default_timeout_s(),
        )

    # Called by the dependency manager

    def on_update(self, config: XdsConfig) -> None:
        assert self._selector_tools is not None, "the tools are made together with the manager"
        if (
            self._table is None
            or self._config is None
            or self._config.virtual_host is not config.virtual_host
        ):
            self._table = RouteTable(config.virtual_host, self._context.random)
        if self._error is not None:
            LOGGER.info("listener %s: RPCs are routed again", quote(self._target.listener_name))
        self._config, self._error = config, None
        self._trace_config(config)
        self._selector = XdsConfigSelector(config, self._table, self._selector_tools)
        self._publish()

    def _trace_config(self, config: XdsConfig) -> None:
        if self._context.trace.active:
            self._context.trace.emit(
                "xds_resolver.config",
                listener=config.listener.name,
                route_config=config.route_config.name,
                virtual_host=config.virtual_host.name,
                clusters=list(config.clusters),
            )

    def on_error(self, context: str, status: Status, held: XdsConfig | None) -> None:
        if status != self._error:
            LOGGER.warning("%s", status.details)
        self._config, self._error = held, status
        self._selector = None
        self._publish()

    on_does_not_exist = on_error

    # Unreferenced clusters

    def _on_unused(self) -> None:
        """Called when a cluster has no reference any more; it may get one until the next turn."""
        if self._manager is not None:
            self._drop_soon.request()

    def _drop_unused(self) -> None:
        before = len(self._refs)
        self._refs.drop_unused()
        if len(self._refs) != before:
            self._publish()

    # Results

    def _publish(self) -> None:
        if self._config is None:
            assert self._error is not None, "without a config there is an error"
            # The returned status is ignored, because the control plane sends every change.
            self._listener.on_result(ResolverResult(self._error))
            return
        result = ResolverResult((), self._load_balancing_config(), self._attributes(self._config))
        self._listener.on_result(result)

    def _attributes(self, config: XdsConfig) -> Attributes:
        assert self._manager is not None, "a closed resolver publishes nothing"
        attributes = (
            EMPTY_ATTRIBUTES.with_(XDS_CONFIG, config)
            .with_(CLUSTER_SUBSCRIPTIONS, self._manager)
            .with_(XDS_CLIENT, self._client)
        )
        if self._error is not None:
            return attributes.with_(UNROUTABLE, self._error)
        assert self._selector is not None, "without an error there is a selector"
        return attributes.with_(CONFIG_SELECTOR, self._selector)

    def _load_balancing_config(self) -> Mapping[str, object]:
        """Load balancing config; the same object if it is equal, so that it is not parsed again."""
        children = {key: {"childPolicy": self._child_policy(key)} for key in self._refs.keys}
        if children != self._children or not self._service_config:
            self._children = children
            policy = {CLUSTER_MANAGER: {"children": children}}
            self._service_config = {"loadBalancingConfig": [policy]}
        return self._service_config

    def _child_policy(self, key: str) -> list[Mapping[str, object]]:
        if key.startswith(CLUSTER_PREFIX):
            return [{"cds_experimental": {"cluster": key.removeprefix(CLUSTER_PREFIX)}}]
        name = key.removeprefix(PLUGIN_PREFIX)
        assert self._config is not None, "references are taken for a config"
        for plugin in self._config.route_config.plugins:
            if plugin.name == name:
                return list(plugin.lb_config)
        # Only routes of an older config name the plugin, so its policy stays as it was.
        last = self._children.get(key)
        assert isinstance(last, dict), f"plugin {name} was in an earlier config"
        policy: list[Mapping[str, object]] = last["childPolicy"]
        return policy


class FailedResolver(StaticResolver):
    """Resolver of a target that cannot be resolved: logs and publishes the reason once."""

    def __init__(
        self, status: Status, listener: ResolverListener, context: ResolverContext
    ) -> None:
        super().__init__(status, listener, context.clock)
        self._status = status

    def _report(self) -> None:
        LOGGER.warning("%s", self._status.details)
        super()._report()


class XdsResolverFactory:
    """Factory of resolvers for `xds:` targets.

    The bootstrap is read by `create`: an application may set the environment after it has made its
    registries.
    """

    scheme = SCHEME

    def __init__(
        self,
        load_bootstrap: Callable[[], Bootstrap | Status],
        tools_of_running_loop: Callable[[], XdsTools],
    ) -> None:
        self._load_bootstrap = load_bootstrap
        self._tools_of_running_loop = tools_of_running_loop

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> XdsResolver | FailedResolver:
        self.default_authority(target)
        bootstrap = self._load_bootstrap()
        if isinstance(bootstrap, Status):
            return FailedResolver(bootstrap, listener, context)
        name = listener_name_for_target(bootstrap, target.authority, target.path)
        if isinstance(name, Status):
            text = with_node(name.details, bootstrap.node.id)
            return FailedResolver(Status(name.code, text), listener, context)
        tools = self._tools_of_running_loop()
        authority = context.options.get("grpc.default_authority")
        config_target = ConfigTarget(
            name.resource_name,
            authority if isinstance(authority, str) else name.data_plane_authority,
            bootstrap.node.id,
        )
        shared = context.options.get(SHARED_STREAM_OPTION)
        client = tools.acquire(bootstrap, str(target), None if shared is None else bool(shared))
        return XdsResolver(config_target, client, listener, context, tools)

    def default_authority(self, target: Target) -> str:
        if not target.name or target.name.endswith("/"):
            raise ValueError(
                f"target {str(target)!r} has no name: wanted xds:///name that does not end in '/'"
            )
        return encode_authority(target.name)


def default_timeout_s() -> float:
    """Timeout of routes that set none (D20)."""
    text = os.environ.get(DEFAULT_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text.removesuffix("s")) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < inf:
        return seconds
    expected = "a time in seconds, such as 0 or 2.5s"
    LOGGER.warning("%s is %r, wanted %s: it is ignored", DEFAULT_TIMEOUT_VARIABLE, text, expected)
    return DEFAULT_TIMEOUT_S
