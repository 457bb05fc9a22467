"""Messages for the tests of parsers, written as JSON, and functions to decode them.

`listener` and `routes` are minimal valid resources with the given fields. `any_of` is the JSON of a
google.protobuf.Any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format

from proxyless.protos import Proto, descriptor_pool_of_envoy, message_class
from proxyless.xds.bootstrap import TRUSTED_XDS_SERVER, Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import ListenerType, RouteConfigurationType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.xds.client.api import Decoded
    from proxyless.xds.parsing import PluginParser
    from proxyless.xds.resources import Listener, Route, RouteConfiguration

Json = dict[str, Any]

MANAGER: Final = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER: Final = "envoy.extensions.filters.http.router.v3.Router"
FAULT: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"
FILTER_CONFIG: Final = "envoy.config.route.v3.FilterConfig"
# A message type that no filter and no plugin supports.
UNKNOWN: Final = "envoy.config.core.v3.Metadata"
MANAGER_PATH: Final = f'api_listener.api_listener["{MANAGER}"]'


def any_of(type_name: str, **fields: object) -> Json:
    return {"@type": f"type.googleapis.com/{type_name}", **fields}


def typed_struct(type_name: str, value: Json, package: str = "xds.type.v3") -> Json:
    return any_of(
        f"{package}.TypedStruct", type_url=f"type.googleapis.com/{type_name}", value=value
    )


def make(full_name: str, fields: Json) -> Proto:
    message = message_class(full_name)()
    return json_format.ParseDict(fields, message, descriptor_pool=descriptor_pool_of_envoy())


def context(*, trusted: bool = False) -> DecodeContext:
    features = frozenset({TRUSTED_XDS_SERVER} if trusted else ())
    server = ServerConfig("control-plane:443", ChannelCreds("insecure"), features=features)
    return DecodeContext(server, Bootstrap(servers=(server,)))


# Listeners


def http_filter(name: str, type_name: str = ROUTER, **fields: object) -> Json:
    return {"name": name, "typed_config": any_of(type_name), **fields}


def manager(**fields: object) -> Json:
    """A connection manager with routes from RDS and a router."""
    rds = {"config_source": {"ads": {}}, "route_config_name": "routes"}
    return {"rds": rds, "http_filters": [http_filter("router")], **fields}


def listener(**fields: object) -> Proto:
    """A listener whose connection manager has these fields."""
    api_listener = any_of(MANAGER, **manager(**fields))
    return make(
        "envoy.config.listener.v3.Listener",
        {"name": "api.example", "api_listener": {"api_listener": api_listener}},
    )


def decode_listener(
    message: Proto, filters: FilterRegistry | None = None, *, trusted: bool = False
) -> Decoded[Listener]:
    kind = ListenerType(filters or FilterRegistry(FILTER_FACTORIES))
    return kind.decode(message.SerializeToString(), context(trusted=trusted))


def listener_error(**fields: object) -> str:
    """The errors of the connection manager, by paths relative to it."""
    error = decode_listener(listener(**fields)).error
    return error.removeprefix('listener "api.example": ').replace(f"{MANAGER_PATH}.", "")


# Routes


def route(**action: object) -> Json:
    """A route for all methods, to the cluster `payments` unless the action has another choice."""
    if not any(field in action for field in CHOICES):
        action = {"cluster": "payments", **action}
    return {"match": {"prefix": ""}, "route": action}


CHOICES: Final = (
    "cluster",
    "cluster_header",
    "weighted_clusters",
    "cluster_specifier_plugin",
    "inline_cluster_specifier_plugin",
)


def routes(*of_one_host: Json, **fields: object) -> Proto:
    """A route configuration with these routes in one virtual host."""
    host = {"domains": ["*"], "routes": list(of_one_host)}
    return make(
        "envoy.config.route.v3.RouteConfiguration",
        {"name": "routes", "virtual_hosts": [host], **fields},
    )


def decode_routes(
    message: Proto,
    filters: FilterRegistry | None = None,
    plugins: Mapping[str, PluginParser] | None = None,
    *,
    trusted: bool = False,
) -> Decoded[RouteConfiguration]:
    kind = RouteConfigurationType(filters or FilterRegistry(FILTER_FACTORIES), plugins or {})
    return kind.decode(message.SerializeToString(), context(trusted=trusted))


def parsed_routes(*of_one_host: Json, trusted: bool = False) -> tuple[Route, ...]:
    """The parsed routes, which must be valid."""
    decoded = decode_routes(routes(*of_one_host), trusted=trusted)
    assert decoded.resource is not None, decoded.error
    return decoded.resource.virtual_hosts[0].routes


def routes_error(*of_one_host: Json) -> str:
    """The errors of these routes."""
    return decode_routes(routes(*of_one_host)).error.removeprefix('route configuration "routes": ')
