"""Builders of resources: functions that return messages of Envoy's API with common fields set.

Other fields can be set on the result. Nothing is validated, so that tests can build invalid ones.

    Snapshot.of([
        listener("api", "api-routes"),
        route_config("api-routes", route("/shop.Cart/", cluster="cart"), route(cluster="web")),
        eds_cluster("cart"),
        eds_cluster("web"),
        endpoints("cart", ["10.0.0.1:80"]),
        endpoints("web", {0: ["10.0.1.1:80"], 1: ["10.0.2.1:80"]}),
    ])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from proxyless.base import IpAddress, parse_address
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import Resource
from proxyless.controlplane.snapshot import Snapshot
from proxyless.protos import Proto, descriptor_pool_of_envoy, message_class

AddressLike = str | IpAddress

_FILTERS: Final = "envoy.extensions.filters"
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


@frozen
class Locality:
    """A locality with its priority and weight; a key of `endpoints`."""

    zone: str = ""
    region: str = ""
    sub_zone: str = ""
    priority: int = 0
    weight: int = 1


# Listeners


def http_filter(name: str, config: Proto) -> Proto:
    """An HttpFilter of a listener."""
    result = message_class(f"{_FILTERS}.network.http_connection_manager.v3.HttpFilter")(name=name)
    pack(config, result.typed_config)
    return result


def router_filter() -> Proto:
    """The router, which must be the last HttpFilter of a listener."""
    return http_filter("router", message_class(f"{_FILTERS}.http.router.v3.Router")())


def session_filter(
    cookie: str, *, path: str = "", ttl_s: float = 0.0, name: str = "session"
) -> Proto:
    """The HttpFilter for cookie-based sessions; see `keep_sessions`."""
    state = message_class(
        "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"
    )()
    state.cookie.name = cookie
    state.cookie.path = path
    set_duration(state.cookie.ttl, ttl_s)
    config = message_class(f"{_FILTERS}.http.stateful_session.v3.StatefulSession")()
    # Envoy looks for the extension by this name; gRPC clients by the type.
    config.session_state.name = "envoy.http.stateful_session.cookie"
    pack(state, config.session_state.typed_config)
    return http_filter(name, config)


def http_connection_manager(
    routes: str | Proto | Sequence[Proto], *, filters: Sequence[Proto] = ()
) -> Proto:
    """`routes` is the name of a route config, a route config, or a list of routes.

    The router filter is added after the others.
    """
    name = f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager"
    manager = message_class(name)(stat_prefix="proxyless")
    if isinstance(routes, str):
        manager.rds.route_config_name = routes
        _use_ads(manager.rds.config_source)
    elif isinstance(routes, Sequence):
        manager.route_config.CopyFrom(route_config("inline", *routes))
    else:
        manager.route_config.CopyFrom(routes)
    manager.http_filters.extend([*filters, router_filter()])
    return manager


def listener(
    name: str, routes: str | Proto | Sequence[Proto], *, filters: Sequence[Proto] = ()
) -> Proto:
    """A listener for gRPC clients with the target `xds:///name`.

    `routes` as in `http_connection_manager`, or an HttpConnectionManager.
    """
    result = message_class("envoy.config.listener.v3.Listener")(name=name)
    pack(_to_manager(routes, filters), result.api_listener.api_listener)
    return result


def socket_listener(
    name: str,
    address: AddressLike,
    routes: str | Proto | Sequence[Proto],
    *,
    filters: Sequence[Proto] = (),
) -> Proto:
    """A listener for proxies and servers, which accepts HTTP at an address."""
    result = message_class("envoy.config.listener.v3.Listener")(name=name)
    _set_address(result.address, address)
    manager = result.filter_chains.add().filters.add(name="http")
    pack(_to_manager(routes, filters), manager.typed_config)
    return result


def _to_manager(routes: str | Proto | Sequence[Proto], filters: Sequence[Proto]) -> Proto:
    if isinstance(routes, str | Sequence) or routes.DESCRIPTOR.name == "RouteConfiguration":
        return http_connection_manager(routes, filters=filters)
    return routes


# Routes


def route(
    prefix: str = "/",
    *,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
    cluster: str | None = None,
    weighted: Mapping[str, int] | None = None,
    timeout_s: float | None = None,
) -> Proto:
    """A route to one cluster, or to several by weight; headers are matched exactly."""
    result = message_class("envoy.config.route.v3.Route")()
    if path is None:
        result.match.prefix = prefix
    else:
        result.match.path = path
    for name, value in (headers or {}).items():
        result.match.headers.add(name=name).string_match.exact = value
    if cluster is not None:
        result.route.cluster = cluster
    for name, weight in (weighted or {}).items():
        result.route.weighted_clusters.clusters.add(name=name).weight.value = weight
    if timeout_s is not None:
        set_duration(result.route.max_stream_duration.max_stream_duration, timeout_s)
    return result


def virtual_host(*routes: Proto, domains: Sequence[str] = ("*",), name: str = "") -> Proto:
    """A virtual host for these domains."""
    result = message_class("envoy.config.route.v3.VirtualHost")(name=name or domains[0])
    result.domains.extend(domains)
    result.routes.extend(routes)
    return result


def route_config(name: str, *parts: Proto) -> Proto:
    """A route config with virtual hosts, or with routes for all domains."""
    result = message_class("envoy.config.route.v3.RouteConfiguration")(name=name)
    routes = [part for part in parts if part.DESCRIPTOR.name == "Route"]
    result.virtual_hosts.extend(part for part in parts if part.DESCRIPTOR.name != "Route")
    if routes:
        result.virtual_hosts.append(virtual_host(*routes))
    return result


# Clusters


def eds_cluster(
    name: str, eds_service_name: str | None = None, *, lb_policy: str = "ROUND_ROBIN"
) -> Proto:
    """A cluster with endpoints of its own or another name; lb_policy is Envoy's enum."""
    result = _cluster(name, "EDS", lb_policy)
    _use_ads(result.eds_cluster_config.eds_config)
    if eds_service_name is not None:
        result.eds_cluster_config.service_name = eds_service_name
    return result


def dns_cluster(name: str, host: str, port: int, *, lb_policy: str = "ROUND_ROBIN") -> Proto:
    """A LOGICAL_DNS cluster."""
    result = _cluster(name, "LOGICAL_DNS", lb_policy)
    result.load_assignment.cluster_name = name
    found = result.load_assignment.endpoints.add().lb_endpoints.add()
    found.endpoint.address.socket_address.address = host
    found.endpoint.address.socket_address.port_value = port
    return result


def aggregate_cluster(
    name: str, clusters: Sequence[str], *, lb_policy: str = "ROUND_ROBIN"
) -> Proto:
    """Clusters in failover order. Envoy needs the policy CLUSTER_PROVIDED, gRPC does not."""
    config = message_class("envoy.extensions.clusters.aggregate.v3.ClusterConfig")()
    config.clusters.extend(clusters)
    result = _cluster(name, None, lb_policy)
    result.cluster_type.name = "envoy.clusters.aggregate"
    pack(config, result.cluster_type.typed_config)
    return result


def use_http2(cluster: Proto) -> Proto:
    """Make proxies use HTTP/2 for this cluster, as gRPC needs; returns the same cluster."""
    options = _http2_options()
    pack(options, cluster.typed_extension_protocol_options[options.DESCRIPTOR.full_name])
    return cluster


def _http2_options() -> Proto:
    options = message_class("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")()
    options.explicit_http_config.http2_protocol_options.SetInParent()
    return options


def keep_sessions(
    cluster: Proto,
    health: Sequence[str] = ("UNKNOWN", "HEALTHY", "DRAINING"),
    *,
    idle_timeout_s: float | None = None,
) -> Proto:
    """Keep sessions on endpoints with these health statuses; returns the same cluster.

    A connection that only sessions use is closed after `idle_timeout_s` without RPCs, by default
    an hour.
    """
    statuses = cluster.common_lb_config.override_host_status
    statuses.statuses.extend(_enum_number("HealthStatus", each) for each in health)
    statuses.SetInParent()
    if idle_timeout_s is not None:
        options = _http2_options()  # Envoy rejects options without a protocol.
        set_duration(options.common_http_protocol_options.idle_timeout, idle_timeout_s)
        cluster.upstream_config.name = "envoy.upstreams.http.http_protocol_options"
        pack(options, cluster.upstream_config.typed_config)
    return cluster


def _cluster(name: str, kind: str | None, lb_policy: str) -> Proto:
    kinds = message_class("envoy.config.cluster.v3.Cluster")
    result = kinds(name=name, lb_policy=kinds.LbPolicy.Value(lb_policy))
    if kind is not None:
        result.type = kinds.DiscoveryType.Value(kind)
    result.connect_timeout.FromSeconds(5)
    return result


# Endpoints


def lb_endpoint(
    address: AddressLike, *, weight: int | None = None, health: str = "HEALTHY", hostname: str = ""
) -> Proto:
    """One endpoint; `health` is a value of Envoy's enum: HEALTHY, UNHEALTHY, DRAINING, ..."""
    result = message_class("envoy.config.endpoint.v3.LbEndpoint")()
    _set_address(result.endpoint.address, address)
    result.endpoint.hostname = hostname
    result.health_status = _enum_number("HealthStatus", health)
    if weight is not None:
        result.load_balancing_weight.value = weight
    return result


def endpoints(
    name: str,
    where: Sequence[AddressLike | Proto]
    | Mapping[int | Locality, Sequence[AddressLike | Proto] | str],
    *,
    drops: Mapping[str, float] | None = None,
) -> Proto:
    """Endpoints by priority or locality; `drops` are shares from 0 to 1 by category.

    A text instead of a list is the name of a collection of endpoints (LEDS).

    endpoints("web", ["10.0.0.1:80"])
    endpoints("web", {0: ["10.0.0.1:80"], 1: [lb_endpoint("10.0.1.1:80", health="DRAINING")]})
    endpoints("web", {Locality("a", weight=3): [...], Locality("b"): [...]}, drops={"lb": 0.1})
    endpoints("web", {0: "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web/*"})
    """
    result = message_class("envoy.config.endpoint.v3.ClusterLoadAssignment")(cluster_name=name)
    by_locality = where if isinstance(where, Mapping) else {0: where}
    for key, found in by_locality.items():
        locality = Locality(f"zone-{key}", priority=key) if isinstance(key, int) else key
        _add_locality(result.endpoints.add(), locality, found)
    for category, share in (drops or {}).items():
        set_share(result.policy.drop_overloads.add(category=category).drop_percentage, share)
    return result


def _add_locality(
    group: Proto, locality: Locality, found: Sequence[AddressLike | Proto] | str
) -> None:
    group.locality.region = locality.region
    group.locality.zone = locality.zone
    group.locality.sub_zone = locality.sub_zone
    group.priority = locality.priority
    group.load_balancing_weight.value = locality.weight
    if isinstance(found, str):
        group.leds_cluster_locality_config.leds_collection_name = found
        _use_ads(group.leds_cluster_locality_config.leds_config)
        return
    for each in found:
        is_address = isinstance(each, str | IpAddress)
        group.lb_endpoints.append(lb_endpoint(each) if is_address else each)


# A whole mesh


def simple_mesh(
    service: str,
    clusters: Mapping[str, Sequence[AddressLike]],
    *,
    version: str = "1",
) -> Snapshot:
    """All resources of `xds:///service`; several clusters get equal shares of the RPCs."""
    names = list(clusters)
    if len(names) == 1:
        to_clusters = route(cluster=names[0])
    else:
        to_clusters = route(weighted=dict.fromkeys(names, 1))
    parts = [
        listener(service, f"{service}-routes"),
        route_config(f"{service}-routes", to_clusters),
        *(eds_cluster(name) for name in names),
        *(endpoints(name, found) for name, found in clusters.items()),
    ]
    return Snapshot.of(map(Resource.of, parts), version=version)


# Parts


def pack(message: Proto, into: Proto) -> None:
    """Put a message into an Any."""
    into.type_url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    into.value = message.SerializeToString(deterministic=True)


def set_duration(into: Proto, seconds: float) -> None:
    into.FromNanoseconds(round(seconds * _BILLION))


def set_share(into: Proto, share: float) -> None:
    """Set a FractionalPercent to a share from 0 to 1."""
    into.numerator = round(share * _MILLION)
    into.denominator = into.MILLION


def _enum_number(enum: str, value: str) -> int:
    enum_type = descriptor_pool_of_envoy().FindEnumTypeByName(f"envoy.config.core.v3.{enum}")
    return enum_type.values_by_name[value].number


def _use_ads(source: Proto) -> None:
    source.ads.SetInParent()
    source.resource_api_version = _enum_number("ApiVersion", "V3")


def _set_address(into: Proto, address: AddressLike) -> None:
    parsed = parse_address(address) if isinstance(address, str) else address
    if not isinstance(parsed, IpAddress):
        into.pipe.path = f"@{parsed.path[1:]}" if parsed.is_abstract else parsed.path
        return
    into.socket_address.address = parsed.host
    into.socket_address.port_value = parsed.port
