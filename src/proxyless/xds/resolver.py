"""How does an `xds:///` target become results for a channel?

Specs: A31 (selector before config, clusters removed in two steps), A74 (one complete config), D20,
D21, D29.

Theory of operation
    A dependency manager says what the config is. Each config becomes one result: a load balancing
    config with a child of xds_cluster_manager for every cluster that somebody still needs, the
    config itself as an attribute, and a selector that chooses among the clusters of its routes.
    A cluster that no route names any more stays in the load balancing config until the old selector
    is closed and the last RPC on it is committed; then a result without it follows by itself
    (A31-36). If listener or routes are lost, the result says so: new RPCs fail or wait, those that
    were routed go on, and what becomes of their clusters reaches them by further results.
"""

from __future__ import annotations

import logging
import os
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Status, quote
from proxyless.base.frozen import frozen
from proxyless.channel.config_selector import CONFIG_SELECTOR, UNROUTABLE
from proxyless.resolver import ResolverResult
from proxyless.resolver.target import encode_authority
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.bootstrap.resource_names import listener_name_for_target
from proxyless.xds.config.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CLIENT, XDS_CONFIG
from proxyless.xds.config.dependencies import Wanted
from proxyless.xds.config.manager import ManagerTools, ResourceTypes, XdsDependencyManager
from proxyless.xds.error_texts import with_node
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX, PLUGIN_PREFIX, ClusterRefs
from proxyless.xds.routing.route_table import DEFAULT_TIMEOUT_S, RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.resolver import ResolverContext, ResolverFactory, ResolverListener, Target
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClient
    from proxyless.xds.client.api import ResourceDump, ServerView
    from proxyless.xds.config import XdsConfig
    from proxyless.xds.config.dependencies import Missing, Plan
    from proxyless.xds.filters.api import FilterRegistry

LOGGER: Final = logging.getLogger("proxyless.xds.resolver")

SCHEME: Final = "xds"
CLUSTER_MANAGER: Final = "xds_cluster_manager_experimental"
# Whether the ADS stream is shared with other targets; grpcio has no such option.
SHARED_STREAM_OPTION: Final = "proxyless.xds_shared_stream"
# D20: what the seed's 15 s are replaced with.
DEFAULT_TIMEOUT_VARIABLE: Final = "GRPC_XDS_DEFAULT_ROUTE_TIMEOUT"


@frozen
class XdsView:
    """What one target needs and has, for explanations."""

    wanted: Wanted
    # The config in force; None before the first one.
    config: XdsConfig | None
    # Why RPCs cannot be routed, with or without a config; None if they can, or nothing is known.
    trouble: Status | None
    # What is needed by what is known now, and what it is incomplete for, with the time so far.
    plan: Plan
    waits_s: Mapping[Missing, float]
    # What the client holds, maybe for other targets, too.
    resources: Sequence[ResourceDump]
    servers: Sequence[ServerView]
    default_timeout_s: float


@frozen
class XdsTools:
    """What the resolvers of one loop share."""

    # A client for a data-plane target, to be given back: shared with other targets or not, or
    # (None) as the kind of control plane suggests.
    acquire: Callable[[Bootstrap, str, bool | None], XdsClient]
    release: Callable[[XdsClient], None]
    types: ResourceTypes
    filters: FilterRegistry
    dns: ResolverFactory


class XdsResolver:
    """One target's resolver. Driven by its dependency manager, its references and its owner."""

    def __init__(
        self,
        wanted: Wanted,
        client: XdsClient,
        listener: ResolverListener,
        context: ResolverContext,
        tools: XdsTools,
    ) -> None:
        # Fixed at construction.
        self._wanted = wanted
        self._client = client
        self._listener = listener
        self._context = context
        self._tools = tools
        self._refs = ClusterRefs(self._on_unused)
        # Present from start to close.
        self._manager: XdsDependencyManager | None = None
        self._selector_tools: SelectorTools | None = None
        # From the last config.
        self._config: XdsConfig | None = None
        self._table: RouteTable | None = None
        self._selector: XdsConfigSelector | None = None
        self._trouble: Status | None = None
        # Of the last result, used again while it says the same.
        self._service_config: Mapping[str, object] = {}
        self._children: Mapping[str, object] = {}
        # Pending while a cluster is needed by nobody and still in the load balancing config.
        self._timer: Timer = IDLE_TIMER

    # For the owner

    def start(self) -> None:
        context, tools = self._context, self._tools
        manager_tools = ManagerTools(
            context.clock, self._client.watch, tools.types, tools.dns, context
        )
        self._manager = XdsDependencyManager(self._wanted, self, manager_tools)
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
            self._timer.cancel()
            self._manager.close()
            self._manager = None
            self._tools.release(self._client)

    def view(self) -> XdsView:
        """What explains the last result, or why there is none yet."""
        assert self._manager is not None, "a resolver that is looked at is running"
        plan = self._manager.plan()
        return XdsView(
            self._wanted,
            self._config,
            self._trouble,
            plan,
            self._manager.waits_s(plan),
            self._client.dump(),
            self._client.servers(),
            default_timeout_s(),
        )

    # What the dependency manager says

    def on_update(self, config: XdsConfig) -> None:
        assert self._selector_tools is not None, "a manager is made together with the tools"
        if (
            self._table is None
            or self._config is None
            or self._config.virtual_host is not config.virtual_host
        ):
            self._table = RouteTable(config.virtual_host, self._context.random)
        if self._trouble is not None:
            LOGGER.info("listener %s: RPCs are routed again", quote(self._wanted.listener_name))
        self._config, self._trouble = config, None
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
        self._lose(status, held)

    def on_does_not_exist(self, context: str, status: Status, held: XdsConfig | None) -> None:
        self._lose(status, held)

    def _lose(self, status: Status, held: XdsConfig | None) -> None:
        if status != self._trouble:
            LOGGER.warning("%s", status.details)
        self._config, self._trouble = held, status
        self._selector = None
        self._publish()

    # Clusters that nobody needs any more

    def _on_unused(self) -> None:
        """A reference was given back for the last time: soon, unless it is taken again."""
        if self._manager is not None and not self._timer.pending:
            self._timer = self._context.clock.call_later(0, self._drop_unused)

    def _drop_unused(self) -> None:
        before = len(self._refs)
        self._refs.drop_unused()
        if len(self._refs) != before:
            self._publish()

    # Results

    def _publish(self) -> None:
        if self._config is None:
            assert self._trouble is not None, "without a config there is something to say"
            # The listener's answer does not matter: the control plane will speak again.
            self._listener.on_result(ResolverResult(self._trouble))
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
        if self._trouble is not None:
            return attributes.with_(UNROUTABLE, self._trouble)
        assert self._selector is not None, "without trouble there is a selector"
        return attributes.with_(CONFIG_SELECTOR, self._selector)

    def _load_balancing_config(self) -> Mapping[str, object]:
        """The same object as before if it says the same: then nobody parses it again."""
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
        # Named by routes of an older config only: what it was is what it stays.
        before = self._children.get(key)
        assert isinstance(before, dict), f"plugin {name} was in an earlier config"
        policy: list[Mapping[str, object]] = before["childPolicy"]
        return policy


class FailedResolver:
    """A target that cannot be resolved: says why, once for each question."""

    def __init__(
        self, status: Status, listener: ResolverListener, context: ResolverContext
    ) -> None:
        self._status = status
        self._listener = listener
        self._clock = context.clock
        self._timer: Timer = IDLE_TIMER

    def start(self) -> None:
        self._timer = self._clock.call_later(0, self._say)

    def _say(self) -> None:
        LOGGER.warning("%s", self._status.details)
        self._listener.on_result(ResolverResult(self._status))

    def request_reresolution(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        self._timer.cancel()


class XdsResolverFactory:
    """Makes resolvers for `xds:` targets.

    The bootstrap is read when a resolver is made, not before: an application may set the
    environment after it has made its registries.
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
        wanted = Wanted(
            name.resource_name,
            authority if isinstance(authority, str) else name.data_plane_authority,
            bootstrap.node.id,
        )
        shared = context.options.get(SHARED_STREAM_OPTION)
        client = tools.acquire(bootstrap, str(target), None if shared is None else bool(shared))
        return XdsResolver(wanted, client, listener, context, tools)

    def default_authority(self, target: Target) -> str:
        if not target.name or target.name.endswith("/"):
            raise ValueError(
                f"target {str(target)!r} has no name: wanted xds:///name that does not end in '/'"
            )
        return encode_authority(target.name)


def default_timeout_s() -> float:
    """What a route without any time gets (D20)."""
    text = os.environ.get(DEFAULT_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text.removesuffix("s")) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < inf:
        return seconds
    wanted = "a time in seconds, such as 0 or 2.5s"
    LOGGER.warning("%s is %r, wanted %s: it is ignored", DEFAULT_TIMEOUT_VARIABLE, text, wanted)
    return DEFAULT_TIMEOUT_S
