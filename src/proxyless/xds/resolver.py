"""Resolver of `xds:///` targets: makes a resolver result of each XdsConfig.

Specs: A31 (selector before config, clusters removed in two steps), A74 (one complete config), D20,
D21, D29.

A result has a load balancing config with a child of xds_cluster_manager for each referenced
cluster, the XdsConfig as an attribute, and a config selector. A cluster that no route names any
more is referenced until the old selector is closed and the last RPC on it is committed; then a
result without it follows (A31-36). If listener or routes are lost, new RPCs fail or wait; routed
RPCs continue, and changes of their clusters are published with further results.
"""

from __future__ import annotations

import logging
import os
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Attributes,
    Status,
    StatusCode,
    one_line,
    quote,
)
from proxyless.base.frozen import frozen
from proxyless.channel.config_selector import CONFIG_SELECTOR, UNROUTABLE
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.resolver import ResolverResult, StaticResolver
from proxyless.resolver.target import encode_authority
from proxyless.runtime import Soon
from proxyless.xds.bootstrap import choose_config_cache
from proxyless.xds.bootstrap.resource_names import listener_name_for_target
from proxyless.xds.config.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CLIENT, XDS_CONFIG
from proxyless.xds.config.dependency_manager import (
    ManagerTools,
    ResourceTypes,
    XdsDependencyManager,
)
from proxyless.xds.config.plan import ConfigTarget, Missing, Plan
from proxyless.xds.error_texts import with_node
from proxyless.xds.filters.attributes import MIRROR_PREFIX
from proxyless.xds.parsing import (
    ClusterType,
    EndpointCollectionType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX, PLUGIN_PREFIX, ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.lb import PolicyRegistry
    from proxyless.resolver import ResolverContext, ResolverFactory, ResolverListener, Target
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClient
    from proxyless.xds.client.api import ResourceDump, ServerView
    from proxyless.xds.config import XdsConfig
    from proxyless.xds.filters import FilterRegistry
    from proxyless.xds.resolver_options import XdsResolverOptions
    from proxyless.xds.resources.route import ClusterSpecifierPlugin

LOGGER: Final = logging.getLogger("proxyless.xds.resolver")

SCHEME: Final = "xds"
CLUSTER_MANAGER: Final = "xds_cluster_manager_experimental"
WAIT_TEXT_AGE_MAX_S: Final = 1.0


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

    # Arguments: bootstrap, data-plane target, and whether to share the client with other targets
    # (None: the default of the control plane). The client has to be released.
    acquire: Callable[[Bootstrap, str, bool | None], XdsClient]
    release: Callable[[XdsClient], None]
    types: ResourceTypes
    filters: FilterRegistry
    dns: ResolverFactory
    metrics: Metrics = NO_METRICS


def resource_types(policies: PolicyRegistry, filters: FilterRegistry) -> ResourceTypes:
    """The resource types, decoded with these registries."""
    listener, routes = ListenerType(filters), RouteConfigurationType(filters)
    clusters, endpoints = ClusterType(policies), EndpointType()
    return ResourceTypes(listener, routes, clusters, endpoints, EndpointCollectionType())


class XdsResolver:
    """Resolver of one target. Owns its dependency manager and the references to clusters."""

    def __init__(
        self,
        target: ConfigTarget,
        client: XdsClient,
        listener: ResolverListener,
        context: ResolverContext,
        tools: XdsTools,
        options: XdsResolverOptions,
    ) -> None:
        # Fixed at construction.
        self._target = target
        self._client = client
        self._listener = listener
        self._context = context
        self._tools = tools
        self._options = options
        self._refs = ClusterRefs(self._on_unused)
        # Not None between start and close.
        self._manager: XdsDependencyManager | None = None
        self._selector_tools: SelectorTools | None = None
        # From the last update of the dependency manager.
        self._config: XdsConfig | None = None
        self._table: RouteTable | None = None
        self._selector: XdsConfigSelector | None = None
        self._error: Status | None = None
        # The last text about missing resources, and its time.
        self._wait: tuple[float, Status] = (-inf, OK)
        # Load balancing config of the last result, and what it was made of.
        self._service_config: Mapping[str, object] = {}
        self._children: Mapping[str, object] = {}
        self._plugins: tuple[ClusterSpecifierPlugin, ...] = ()
        # Requested when a cluster of the load balancing config has no reference any more.
        self._drop_soon = Soon(context.clock, self._drop_unused)

    # Called by the channel

    def start(self) -> None:
        context, tools, options = self._context, self._tools, self._options
        manager_tools = ManagerTools(
            context.clock,
            self._client.watch,
            tools.types,
            tools.dns,
            context,
            options.holds_config,
            tools.metrics,
        )
        self._manager = XdsDependencyManager(self._target, self, manager_tools)
        self._selector_tools = SelectorTools(
            self._refs, self._manager, tools.filters, context.random, options.default_timeout_s
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
            assert self._selector_tools is not None, "they are made together with the manager"
            self._selector_tools.close()
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
            self._options.default_timeout_s,
        )

    def describe_wait(self) -> Status:
        """The first missing resource; the text is at most one second old."""
        now_s = self._context.clock.now_s()
        at_s, status = self._wait
        # Many RPCs may fail at once, and a view of many resources takes long to make.
        if now_s - at_s >= WAIT_TEXT_AGE_MAX_S:
            from proxyless.xds.wait_texts import describe_source  # noqa: PLC0415 - few errors use it

            view = self.view()
            status = OK
            if first := next(iter(view.waits_s), None):
                source = describe_source(first, view.plan, view.resources, view.servers)
                text = with_node(f"{first}: not here yet{source}", self._target.node_id)
                status = Status(StatusCode.UNAVAILABLE, text)
            self._wait = (now_s, status)
        return status

    def name_command(self, path: str) -> str:
        target, file = self._target.target, self._target.bootstrap_file
        if not target:
            return ""
        command = f"proxyless explain {one_line(path[1:])} --target {target}"
        if file:
            from shlex import quote as quote_for_shell  # noqa: PLC0415 - few errors use it

            command += f" --bootstrap {one_line(quote_for_shell(file))}"
        return command

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
            self._context.trace.emit("xds_resolver.error", status=status)
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
        assert self._config is not None, "references are taken for a config"
        keys, plugins = self._refs.keys, self._config.route_config.plugins
        is_same = keys == list(self._children) and plugins == self._plugins
        if not is_same or not self._service_config:
            self._children = {key: {"childPolicy": self._child_policy(key)} for key in keys}
            self._plugins = plugins
            policy = {CLUSTER_MANAGER: {"children": self._children}}
            self._service_config = {"loadBalancingConfig": [policy]}
        return self._service_config

    def _child_policy(self, key: str) -> list[Mapping[str, object]]:
        if key.startswith(CLUSTER_PREFIX):
            return [{"cds_experimental": {"cluster": key.removeprefix(CLUSTER_PREFIX)}}]
        if key.startswith(MIRROR_PREFIX):
            # The policy subscribes to a dynamic cluster, and the config does not wait for it (D25).
            cluster = key.removeprefix(MIRROR_PREFIX)
            return [{"cds_experimental": {"cluster": cluster, "isDynamic": True}}]
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
        bootstrap_file: str = "",
    ) -> None:
        self._load_bootstrap = load_bootstrap
        # The file that the application names, for error texts; not one of the environment.
        self._bootstrap_file = bootstrap_file
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
        config_target = ConfigTarget(
            name.resource_name,
            context.options.authority or name.data_plane_authority,
            bootstrap.node.id,
            str(target),
            self._bootstrap_file,
        )
        # Imported by the first xDS channel.
        from proxyless.xds.resolver_options import choose_options  # noqa: PLC0415

        options = choose_options(context.options, bootstrap)
        bootstrap = choose_config_cache(bootstrap, context.options.xds_config_cache, os.environ)
        client = tools.acquire(bootstrap, str(target), options.is_stream_shared)
        return XdsResolver(config_target, client, listener, context, tools, options)

    def default_authority(self, target: Target) -> str:
        if not target.name or target.name.endswith("/"):
            raise ValueError(
                f"target {str(target)!r} has no name: wanted xds:///name that does not end in '/'"
            )
        return encode_authority(target.name)
