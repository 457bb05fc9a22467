"""Parsed xDS resources with short constructors, for tests that need no protobuf messages."""

from __future__ import annotations

from typing import Any

from proxyless.base import Locality, Status, StatusCode, parse_address
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
    LbConfig,
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

SERVICE = "orders"
ROUND_ROBIN: tuple[dict[str, object], ...] = ({"round_robin": {}},)


def listener(routes: str | RouteConfiguration = "routes", **manager: Any) -> Listener:  # noqa: ANN401
    return Listener(SERVICE, HttpConnectionManager(routes, **manager))


def action(to: str | dict[str, int], **settings: Any) -> RouteAction:  # noqa: ANN401
    """Return an action with one cluster, or with several by weight."""
    if isinstance(to, str):
        return RouteAction(choice=ClusterChoice(to), **settings)
    clusters = tuple(WeightedCluster(name, weight) for name, weight in to.items())
    return RouteAction(choice=WeightedChoice(clusters), **settings)


def route(to: str | dict[str, int], prefix: str = "/", **settings: Any) -> Route:  # noqa: ANN401
    return Route(path=PathMatcher("prefix", prefix), action=action(to, **settings))


def host(*routes: Route, domains: tuple[str, ...] = ("*",), **settings: Any) -> VirtualHost:  # noqa: ANN401
    return VirtualHost(domains=domains, routes=routes, **settings)


def route_config(*clusters: str | dict[str, int], name: str = "routes") -> RouteConfiguration:
    """Return one virtual host with a route to each cluster; the first route matches all RPCs."""
    return RouteConfiguration(name=name, virtual_hosts=(host(*map(route, clusters)),))


def hosts(*virtual_hosts: VirtualHost, name: str = "routes") -> RouteConfiguration:
    return RouteConfiguration(name=name, virtual_hosts=virtual_hosts)


def cluster(name: str, discovery: Discovery | None = None, **settings: Any) -> Cluster:  # noqa: ANN401
    lb_config = LbConfig.of(tuple(settings.pop("lb_config", ROUND_ROBIN)))
    return Cluster(name=name, discovery=discovery or EdsCluster(), lb_config=lb_config, **settings)


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
    """Return one priority with one locality with these addresses."""
    return prioritized(name, [locality("a", *addresses)] if addresses else [], drops=drops)


def prioritized(
    name: str, *priorities: list[LocalityEndpoints], drops: tuple[DropCategory, ...] = ()
) -> EndpointResource:
    """Return endpoints by priority, the highest first."""
    return EndpointResource(
        name=name, priorities=tuple(tuple(each) for each in priorities if each), drops=drops
    )


NOT_FOUND = Status(StatusCode.NOT_FOUND, "does not exist")


def unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)
