"""ConfigSelector of an xDS target: chooses the route and the cluster of an RPC.

Specs: A31-16..22 (selection), A31-32 (references), A39 (filters), A42 (hashes), A60, A81
(authority).

A selector is made for one XdsConfig. The CallConfig is prepared for each route and cluster; for an
RPC without filters and hash, only the reference count of the cluster changes. If the path alone
decides the route and the cluster, only the path is looked up.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Status
from proxyless.base.frozen import frozen, mutable
from proxyless.channel.config_selector import CallConfig
from proxyless.lb import REQUEST_HASH
from proxyless.xds.config.virtual_hosts import routed_clusters
from proxyless.xds.filters.attributes import AUTO_HOST_REWRITE, CLUSTER, MIRROR_PREFIX
from proxyless.xds.filters.rpc_filter import FilterOrigin, FilterStack, RoutedRpc
from proxyless.xds.resources import (
    ClusterChoice,
    PluginChoice,
    RouteAction,
    WeightedChoice,
    WeightedCluster,
)
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX, PLUGIN_PREFIX
from proxyless.xds.routing.route_table import (
    CACHED_PATHS_MAX,
    RouteDefaults,
    RouteTable,
    no_route,
    not_forwarding,
    route_method_config,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.base import Metadata
    from proxyless.channel.mirrored_call import MirroredCalls
    from proxyless.channel.service_config import MethodConfig
    from proxyless.runtime import Random
    from proxyless.xds.config import ClusterSubscriptions, XdsConfig
    from proxyless.xds.filters import FilterRegistry
    from proxyless.xds.filters.rpc_filter import ClientFilter
    from proxyless.xds.resources import HttpConnectionManager, HttpFilter, VirtualHost
    from proxyless.xds.resources.filter import FilterOverride, FilterOverrides
    from proxyless.xds.routing.cluster_refs import ClusterRef, ClusterRefs
    from proxyless.xds.routing.mirrors import RouteMirrors
    from proxyless.xds.routing.request_hash import RequestHash
    from proxyless.xds.routing.route_table import TableRoute

# Clusters that the routes of one virtual host mirror to; others are ignored.
MIRRORED_MAX: Final = 256


class XdsConfigSelector:
    """Routes RPCs by one config; holds a reference to each cluster of its routes until closed."""

    def __init__(self, config: XdsConfig, table: RouteTable, tools: SelectorTools) -> None:
        self._config = config
        self._table = table
        self._tools = tools
        self._defaults = RouteDefaults(
            _manager(config).max_stream_duration_s,
            tools.default_timeout_s,
            config.virtual_host.retry,
        )
        self._refs = {
            key: tools.refs.acquire(key, tools.subscriptions) for key in tools.keys_of(config)
        }
        # By index; made for the first RPC of each route.
        self._prepared: dict[int, _PreparedRoute | Status] = {}
        # By path: the cluster and its CallConfig, if all RPCs with this path have the same.
        self._decided: dict[str, tuple[ClusterRef, CallConfig]] = {}
        self._is_closed = False

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        decided = self._decided.get(path)
        if decided is not None:
            ref, config = decided
            ref.count += 1
            return config
        entry = self._table.find(path, metadata)
        if entry is None:
            return no_route(self._config, path)
        prepared = self._prepared.get(entry.index)
        if prepared is None:
            prepared = self._prepared[entry.index] = self._prepare(entry)
        if isinstance(prepared, Status):
            return prepared
        if prepared.decided is not None and self._table.find_by_path(path) is not None:
            if len(self._decided) >= CACHED_PATHS_MAX:
                self._decided.clear()
            self._decided[path] = prepared.decided
        return prepared.select(path, metadata)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for ref in self._refs.values():
                ref.release()

    def _prepare(self, entry: TableRoute) -> _PreparedRoute | Status:
        action = entry.route.action
        if not isinstance(action, RouteAction):
            return not_forwarding(self._config, entry.route, action.kind)
        common = EMPTY_ATTRIBUTES
        if action.auto_host_rewrite:
            common = common.with_(AUTO_HOST_REWRITE, True)
        method_config = route_method_config(action, self._defaults)
        return _PreparedRoute(
            self._choices(entry, action),
            method_config,
            self._request_hash(action),
            common,
            self._tools,
            self._mirrors(action, method_config),
        )

    def _mirrors(self, action: RouteAction, method_config: MethodConfig) -> RouteMirrors | None:
        if not action.mirrors:
            return None
        from proxyless.xds.routing.mirrors import RouteMirrors  # noqa: PLC0415 - few routes have any

        policies = [each for each in action.mirrors if MIRROR_PREFIX + each.cluster in self._refs]
        return RouteMirrors(policies, method_config.timeout_s, self._tools)

    def _choices(self, entry: TableRoute, action: RouteAction) -> list[_Choice]:
        layers = (self._config.virtual_host.filter_overrides, entry.route.filter_overrides)
        match action.choice:
            case ClusterChoice(cluster):
                clusters: tuple[WeightedCluster, ...] = (WeightedCluster(cluster, 1),)
            case WeightedChoice(weighted):
                clusters = weighted
            case PluginChoice(plugin):
                return [_Choice("", 1, self._refs[PLUGIN_PREFIX + plugin], *self._chain(layers))]
        return [
            _Choice(
                each.name,
                each.weight,
                self._refs[CLUSTER_PREFIX + each.name],
                *self._chain((*layers, each.filter_overrides)),
            )
            for each in clusters
        ]

    def _chain(
        self, layers: tuple[FilterOverrides, ...]
    ) -> tuple[tuple[ClientFilter, ...], FilterOrigin]:
        """The filters of a route with their most specific overrides (A39-06), and their names."""
        chain: list[ClientFilter] = []
        names: list[str] = []
        for each in _manager(self._config).http_filters:
            made = self._make_filter(each, _override(each.name, layers))
            if made is not None:
                chain.append(made)
                names.append(each.name)
        origin = FilterOrigin(self._config.listener.name, self._config.node_id, tuple(names))
        return tuple(chain), origin

    def _make_filter(
        self, http_filter: HttpFilter, override: FilterOverride | None
    ) -> ClientFilter | None:
        factory = self._tools.filters.get(http_filter.type_name)
        if is_filter_disabled(http_filter, override) or factory is None:
            return None
        return factory.create(
            http_filter.config, None if override is None else override.config, self._tools.random
        )

    def _request_hash(self, action: RouteAction) -> RequestHash | None:
        """None if no cluster of the route can use a hash."""
        if not action.hash_policies and not _uses_hash(self._config, action):
            return None
        from proxyless.xds.routing.request_hash import RequestHash  # noqa: PLC0415

        return RequestHash(action.hash_policies, self._tools.channel_id)


@frozen(eq=False)
class _Choice:
    """One cluster of a route; its name is empty if a plugin chooses the cluster."""

    cluster: str
    weight: int
    ref: ClusterRef
    filters: tuple[ClientFilter, ...]
    origin: FilterOrigin


class _PreparedRoute:
    """A route with a CallConfig for each of its clusters."""

    def __init__(
        self,
        choices: list[_Choice],
        method_config: MethodConfig,
        request_hash: RequestHash | None,
        common: Attributes,
        tools: SelectorTools,
        mirrors: RouteMirrors | None = None,
    ) -> None:
        self._choices = choices
        self._mirrors = mirrors
        self._by_cluster = {choice.cluster: choice for choice in choices}
        self._method_config = method_config
        self._hash = request_hash
        self._common = common
        self._random = tools.random
        # A cluster may become balanced by hash while an RPC without one is queued (D34).
        self._default_hash = common.with_(REQUEST_HASH, tools.channel_id)
        # Cumulative weights.
        self._ends = list(accumulate(choice.weight for choice in choices))
        # Shared by all RPCs of a cluster if the route is plain.
        self._shared = {
            choice.cluster: CallConfig(
                method_config,
                self._default_hash.with_(CLUSTER, choice.ref.key),
                choice.ref.release,
            )
            for choice in choices
        }
        has_filters = any(each.filters for each in choices)
        self._is_plain = request_hash is None and not has_filters and mirrors is None
        # If all RPCs have the same: the only cluster, and its CallConfig.
        self.decided: tuple[ClusterRef, CallConfig] | None = None
        if self._is_plain and len(choices) == 1:
            self.decided = choices[0].ref, self._shared[choices[0].cluster]

    def select(self, path: str, metadata: Metadata) -> CallConfig:
        """Choose a cluster at random and add a reference to it."""
        choices = self._choices
        if len(choices) == 1:
            choice = choices[0]
        else:
            # "connectivity state is not considered when making this routing decision" - A31
            choice = choices[bisect_right(self._ends, self._random.randrange(self._ends[-1]))]
        if self._is_plain:
            choice.ref.count += 1
            return self._shared[choice.cluster]
        return self._select_with_filters(choice, path, metadata)

    def _select_with_filters(self, choice: _Choice, path: str, metadata: Metadata) -> CallConfig:
        attributes = self._attributes(metadata)
        clusters = self._by_cluster if choice.cluster else ()
        rpc = RoutedRpc(path, metadata, clusters, choice.cluster, attributes)
        rpc_filters = [each.on_rpc(rpc) for each in choice.filters]
        # Called before the reference is added: a filter that raises would leak it.
        is_filtered = rpc_filters.count(None) < len(rpc_filters)
        mirrors = () if self._mirrors is None else self._mirrors.choose(attributes)
        is_intercepted = is_filtered or mirrors
        stack = FilterStack(rpc_filters, choice.origin, mirrors) if is_intercepted else None
        # A filter may have chosen another cluster of the route (A60-02).
        final = self._by_cluster.get(rpc.cluster, choice)
        attributes = rpc.attributes.with_(CLUSTER, final.ref.key)
        final.ref.count += 1
        return CallConfig(self._method_config, attributes, final.ref.release, stack)

    def _attributes(self, metadata: Metadata) -> Attributes:
        if self._hash is None:
            return self._default_hash
        return self._common.with_(REQUEST_HASH, self._hash.compute(metadata, self._random))


@mutable(eq=False)
class SelectorTools:
    """Tools and cache that the selectors of one resolver share."""

    refs: ClusterRefs
    subscriptions: ClusterSubscriptions
    filters: FilterRegistry
    random: Random
    default_timeout_s: float
    # Hash of the `channel_id` hash policy (A42).
    channel_id: int = field(init=False)
    # From the last config: there may be many routes, and most updates do not change them.
    _host: VirtualHost | None = field(default=None, init=False)
    _keys: tuple[str, ...] = field(default=(), init=False)
    # Made for the first route with a mirror.
    _mirrored_calls: MirroredCalls | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.channel_id = self.random.getrandbits(64)

    def mirrored_calls(self) -> MirroredCalls:
        if self._mirrored_calls is None:
            from proxyless.channel.mirrored_call import MirroredCalls  # noqa: PLC0415 - few need it

            self._mirrored_calls = MirroredCalls()
        return self._mirrored_calls

    def close(self) -> None:
        """Called when the resolver is closed."""
        if self._mirrored_calls is not None:
            self._mirrored_calls.close()

    def keys_of(self, config: XdsConfig) -> tuple[str, ...]:
        """The keys of the children that the routes of a config name."""
        host = config.virtual_host
        if host is not self._host:
            clusters = (CLUSTER_PREFIX + name for name in routed_clusters(host))
            plugins = (PLUGIN_PREFIX + name for name in routed_plugins(host))
            mirrors = (MIRROR_PREFIX + name for name in mirror_clusters(host))
            self._host, self._keys = host, (*clusters, *plugins, *mirrors)
        return self._keys


def _manager(config: XdsConfig) -> HttpConnectionManager:
    manager = config.listener.api_listener
    assert manager is not None, "the listener of a config is an API listener"
    return manager


def routed_plugins(host: VirtualHost) -> dict[str, None]:
    """The cluster specifier plugins that a virtual host's routes name, in order."""
    actions = (route.action for route in host.routes)
    choices = (action.choice for action in actions if isinstance(action, RouteAction))
    return dict.fromkeys(each.plugin for each in choices if isinstance(each, PluginChoice))


def mirror_clusters(host: VirtualHost) -> Iterable[str]:
    """The clusters that a virtual host's routes mirror to, in order and up to the limit."""
    actions = (route.action for route in host.routes)
    policies = (
        policy for each in actions if isinstance(each, RouteAction) for policy in each.mirrors
    )
    return islice(dict.fromkeys(policy.cluster for policy in policies), MIRRORED_MAX)


def override_layer(name: str, layers: tuple[FilterOverrides, ...]) -> int | None:
    """The index of the most specific layer, so the last, that overrides a filter."""
    return next((each for each in reversed(range(len(layers))) if name in layers[each]), None)


def _override(name: str, layers: tuple[FilterOverrides, ...]) -> FilterOverride | None:
    layer = override_layer(name, layers)
    return None if layer is None else layers[layer][name]


def is_filter_disabled(http_filter: HttpFilter, override: FilterOverride | None) -> bool:
    return http_filter.is_disabled if override is None else override.is_disabled


def _uses_hash(config: XdsConfig, action: RouteAction) -> bool:
    """Whether a cluster of the route is balanced by hash, so that each RPC needs one."""
    match action.choice:
        case ClusterChoice(cluster):
            names = [cluster]
        case WeightedChoice(weighted):
            names = [each.name for each in weighted]
        case PluginChoice():
            return True
    results = (config.clusters.get(name) for name in names)
    return any(
        entry.cluster.lb_config.is_hashed
        for result in results
        if isinstance(result, tuple)
        for entry in result
    )
