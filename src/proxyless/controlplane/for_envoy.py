"""Resources for Envoy, made from resources for gRPC clients.

Envoy accepts no `api_listener` from a control plane, uses HTTP/1.1 to clusters without options,
ignores weights of localities unless a cluster turns them on, requires another policy for
aggregates, and has a timeout of its own for routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.controlplane.builders import socket_listener, use_http2
from proxyless.controlplane.resource import CLUSTER, LISTENER, ROUTE_CONFIG, Resource
from proxyless.protos import message_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.protos import Proto

_HCM: Final = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def adapt_for_envoy(resources: Iterable[Resource], address: str) -> list[Resource]:
    """The resources for Envoy. The first listener is at `address`, others at the next ports."""
    host, _, first_port = address.rpartition(":")
    port = int(first_port)
    adapted = []
    for resource in resources:
        message = resource.message()
        if resource.type_url == LISTENER and message.HasField("api_listener"):
            message = _adapt_listener(message, f"{host}:{port}")
            port += bool(port)  # Port 0 is any free one.
        elif resource.type_url == ROUTE_CONFIG:
            _adapt_routes(message)
        elif resource.type_url == CLUSTER:
            _adapt_cluster(message)
        adapted.append(Resource.of(message, resource.name))
    return adapted


def _adapt_listener(message: Proto, address: str) -> Proto:
    manager = message_class(_HCM).FromString(message.api_listener.api_listener.value)
    if manager.HasField("route_config"):
        _adapt_routes(manager.route_config)
    return socket_listener(message.name, address, manager)


def _adapt_routes(message: Proto) -> None:
    for host in message.virtual_hosts:
        for route in host.routes:
            # Otherwise 15 s, in addition to max_stream_duration.
            if route.HasField("route") and not route.route.HasField("timeout"):
                route.route.timeout.SetInParent()


def _adapt_cluster(message: Proto) -> None:
    if message.HasField("cluster_type"):
        message.lb_policy = message.CLUSTER_PROVIDED
        return
    use_http2(message)
    # For Envoy it is the name of a connection factory.
    message.ClearField("upstream_config")
    if not message.HasField("load_balancing_policy"):
        message.common_lb_config.locality_weighted_lb_config.SetInParent()
