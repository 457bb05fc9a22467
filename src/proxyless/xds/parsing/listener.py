"""Is this Listener valid, and what does it say?

Specs: A27-20 (API listener), A27-15 (where routes come from), A39 (filters), A41 (fields about
clients behind proxies), D20 (stream duration).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.http_filters import parse_http_filters
from proxyless.xds.parsing.parts import PartMemory
from proxyless.xds.parsing.plugins import NO_PLUGINS
from proxyless.xds.parsing.proto_fields import check_config_source, decode_any_as, read_duration_s
from proxyless.xds.parsing.route import (
    RouteContext,
    may_rewrite_authority,
    parse_route_configuration,
)
from proxyless.xds.resources.listener import HttpConnectionManager, Listener
from proxyless.xds.resources.route import Route

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.xds.client.api import DecodeContext, Decoded
    from proxyless.xds.parsing.http_filters import FilterParsers
    from proxyless.xds.parsing.plugins import PluginParsers
    from proxyless.xds.resources.route import RouteConfiguration

LISTENER: Final = "envoy.config.listener.v3.Listener"
HTTP_CONNECTION_MANAGER: Final = (
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)


class ListenerType:
    """LDS resources. Driven by the xDS client."""

    type_url: Final = TYPE_URL_PREFIX + LISTENER
    is_full_state: Final = True

    def __init__(self, filters: FilterParsers, plugins: PluginParsers = NO_PLUGINS) -> None:
        self._filters: Final = filters
        self._plugins: Final = plugins
        self._memory: Final = PartMemory[Route]()

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[Listener]:
        """The listener in these bytes, or why there is none. Raises nothing."""
        may_rewrite = may_rewrite_authority(context.server, os.environ)
        routes = RouteContext(self._filters, self._plugins, may_rewrite)
        return decode_resource(
            LISTENER,
            serialized,
            lambda message, errors: parse_listener(message, routes, errors, self._memory),
        )


def parse_listener(
    message: Proto,
    context: RouteContext,
    errors: ValidationErrors,
    memory: PartMemory[Route] | None = None,
) -> Listener | None:
    """An envoy.config.listener.v3.Listener. It counts only if no error was added."""
    if not message.HasField("api_listener"):
        if not message.HasField("address"):
            errors.add("neither api_listener nor address is set")
        # A socket listener is a valid resource, of no use for a client (A27-20).
        return Listener(message.name, api_listener=None)
    with errors.field("api_listener"), errors.field("api_listener"):
        manager = decode_any_as(HTTP_CONNECTION_MANAGER, message.api_listener.api_listener, errors)
        if manager is None:
            return None
        with errors.key(HTTP_CONNECTION_MANAGER):
            return Listener(
                message.name, parse_connection_manager(manager, context, errors, memory)
            )


def parse_connection_manager(
    manager: Proto,
    context: RouteContext,
    errors: ValidationErrors,
    memory: PartMemory[Route] | None = None,
) -> HttpConnectionManager:
    """An HttpConnectionManager. It counts only if no error was added."""
    with errors.field("http_filters"):
        http_filters = parse_http_filters(manager.http_filters, context.filters, errors)
    # What both say is not supported (A41).
    if manager.xff_num_trusted_hops:
        with errors.field("xff_num_trusted_hops"):
            errors.add(f"is {manager.xff_num_trusted_hops}, wanted 0")
    if manager.original_ip_detection_extensions:
        with errors.field("original_ip_detection_extensions"):
            errors.add("is set, wanted none")
    with errors.field("common_http_protocol_options"):
        options = manager.common_http_protocol_options
        max_stream_duration_s = read_duration_s(options, "max_stream_duration", errors)
    return HttpConnectionManager(
        _parse_routes(manager, context, errors, memory), http_filters, max_stream_duration_s
    )


def _parse_routes(
    manager: Proto,
    context: RouteContext,
    errors: ValidationErrors,
    memory: PartMemory[Route] | None,
) -> str | RouteConfiguration:
    match kind := manager.WhichOneof("route_specifier"):
        case "rds":
            with errors.field("rds"):
                return _parse_rds(manager.rds, errors)
        case "route_config":
            with errors.field("route_config"):
                return parse_route_configuration(manager.route_config, context, errors, memory)
        case _:
            errors.add(f"route_specifier is {kind or 'unset'}, wanted rds or route_config")
            return ""


def _parse_rds(rds: Proto, errors: ValidationErrors) -> str:
    with errors.field("config_source"):
        check_config_source(rds.config_source, errors)
    name: str = rds.route_config_name
    if not name:
        with errors.field("route_config_name"):
            errors.add("is empty, wanted the name of a RouteConfiguration")
    return name
