"""Routes of one config, with the timeout, retries, filters and session of each.

Specs: A28 (routes), A31 with D20 (timeouts), A39 (filters), A44 (retries), A55 (sessions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.runtime import seeded_random
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.filters.fault import FaultConfig
from proxyless.xds.filters.router import RouterConfig
from proxyless.xds.filters.stateful_session import StatefulSessionConfig
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX, PLUGIN_PREFIX
from proxyless.xds.routing.route_table import (
    DEFAULT_TIMEOUT_S,
    RouteDefaults,
    RouteTable,
    TableRoute,
    TimeoutChoice,
    choose_timeout,
    no_route,
    not_forwarding,
    route_method_config,
)
from proxyless.xds.routing.selector import is_filter_disabled, override_layer
from proxyless.xds.view.sessions import Session, find_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import Attributes, Metadata
    from proxyless.channel.service_config import RetryPolicy
    from proxyless.xds.config import XdsConfig
    from proxyless.xds.resources import (
        HttpConnectionManager,
        HttpFilter,
        NonForwardingAction,
        Route,
        RouteAction,
        WeightedCluster,
    )
    from proxyless.xds.resources.filter import FilterOverrides

_LAYERS: Final = ("virtual host", "route", "weighted cluster")


def cluster_key(name: str) -> str:
    """Key of a cluster's LB policy in a channel."""
    return CLUSTER_PREFIX + name


def picked_cluster(attributes: Attributes | None) -> str:
    """The cluster of an RPC with these pick attributes; empty if it has none."""
    name = None if attributes is None else attributes.get(CLUSTER)
    return (name or "").removeprefix(CLUSTER_PREFIX)


def plugin_key(name: str) -> str:
    """Key of the LB policy of a cluster specifier plugin."""
    return PLUGIN_PREFIX + name


@frozen
class FilterView:
    """One HTTP filter of a route, with the config in force."""

    name: str
    type_name: str
    # None if the filter is disabled.
    config: object | None
    # Name of the most specific layer with an override; None if there is none.
    override: str | None = None

    @staticmethod
    def of(http_filter: HttpFilter, layers: Sequence[FilterOverrides]) -> FilterView:
        """`layers`: overrides of the virtual host, the route and the weighted cluster (A39-06)."""
        name, type_name = http_filter.name, http_filter.type_name
        layer = override_layer(name, tuple(layers))
        override = None if layer is None else layers[layer][name]
        config: object | None = http_filter.config
        if is_filter_disabled(http_filter, override):
            config = None
        elif override is not None and override.config is not None:
            config = override.config
        return FilterView(name, type_name, config, None if layer is None else _LAYERS[layer])

    def describe(self, metadata: Metadata) -> str:
        """Effect on an RPC with this metadata; for unknown types of config, the config."""
        match self.config:
            case None:
                return "off"
            case RouterConfig() | StatefulSessionConfig() as config:
                return config.describe()
            case FaultConfig() as config:
                return config.describe(metadata)
            case config:
                return str(config)

    def describe_abort(self, metadata: Metadata) -> str:
        """Share of RPCs with this metadata that are aborted; empty if none are."""
        config = self.config
        return config.describe_abort(metadata) if isinstance(config, FaultConfig) else ""

    def aborts_every_rpc(self, metadata: Metadata) -> bool:
        return isinstance(self.config, FaultConfig) and self.config.aborts_every_rpc(metadata)


@frozen
class RoutingView:
    """Routes of a config. No random choice is made: fractions are returned as they are."""

    config: XdsConfig
    # Timeout of routes that set none (D20).
    default_timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def routes(self) -> Sequence[TableRoute]:
        """Routes in order: the first one without a mismatch is taken."""
        return RouteTable(self.config.virtual_host, seeded_random(0)).routes

    def describe_no_route(self, path: str) -> str:
        """Error text of an RPC that matches no route."""
        return no_route(self.config, path).details

    def describe_not_forwarding(self, route: Route, action: NonForwardingAction) -> str:
        """Error text of an RPC whose route does not forward."""
        return not_forwarding(self.config, route, action.kind).details

    def timeout(self, action: RouteAction) -> TimeoutChoice:
        return choose_timeout(action, self._defaults)

    def retry_policy(self, action: RouteAction) -> RetryPolicy | None:
        return route_method_config(action, self._defaults).retry_policy

    def filters(
        self, route: Route, cluster: WeightedCluster | None = None
    ) -> tuple[FilterView, ...]:
        """HTTP filters of a route, with the overrides of one of its clusters, if given."""
        layers = [self.config.virtual_host.filter_overrides, route.filter_overrides]
        if cluster is not None:
            layers.append(cluster.filter_overrides)
        return tuple(FilterView.of(each, layers) for each in self._manager.http_filters)

    def session(self, route: Route, path: str, metadata: Metadata) -> Session | None:
        """Session of an RPC on this route; None if the route has no sessions."""
        return find_session([each.config for each in self.filters(route)], path, metadata)

    @property
    def _manager(self) -> HttpConnectionManager:
        manager = self.config.listener.api_listener
        assert manager is not None, "a config has an API listener"
        return manager

    @property
    def _defaults(self) -> RouteDefaults:
        retry = self.config.virtual_host.retry
        return RouteDefaults(self._manager.max_stream_duration_s, self.default_timeout_s, retry)
