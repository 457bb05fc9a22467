"""XdsConfigSelector over one virtual host, and its references to clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.channel.config_selector import CallConfig
from proxyless.runtime import seeded_random
from proxyless.xds.config import XdsConfig
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.resources import ClusterSpecifierPlugin, Route, RouteConfiguration
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector
from tests.worlds.xds_resources import host, listener

if TYPE_CHECKING:
    from proxyless.xds.config.xds_config import ClusterResult

RING: tuple[dict[str, object], ...] = ({"ring_hash_experimental": {}},)
PATH = "/s/m"


class NullSubscriptions:
    """Subscriptions without effect."""

    def subscribe(self, name: str) -> NullSubscriptions:
        return self

    def release(self) -> None:
        return


class SelectorWorld:
    """A selector over one virtual host, and its references."""

    def __init__(self, *routes: Route, clusters: dict[str, ClusterResult] | None = None) -> None:
        self.refs = ClusterRefs(lambda: None)
        found = host(*routes)
        random = seeded_random(1)
        plugins = (ClusterSpecifierPlugin("p", RING),)
        config = RouteConfiguration(name="routes", virtual_hosts=(found,), plugins=plugins)
        self.tools = SelectorTools(self.refs, NullSubscriptions(), FilterRegistry(), random, 15.0)
        self.config = XdsConfig(listener(config), config, found, clusters or {})
        self.selector = XdsConfigSelector(self.config, RouteTable(found, random), self.tools)

    def select(self) -> CallConfig:
        config = self.selector.select(PATH, ())
        assert isinstance(config, CallConfig)
        return config
