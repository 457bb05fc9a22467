"""LDS: parser of Listener resources.

Specs: A27-20 (API listener), A27-15 (source of the routes), A39 (filters), A41 (original client
addresses), D20 (stream duration).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.protos import DECODE_ERRORS, message_class
from proxyless.protos.merging import PART_BYTES_MAX, TooLargeError, merge_in_steps
from proxyless.runtime.work_queue import finish
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.http_filters import parse_http_filters
from proxyless.xds.parsing.part_cache import PartCache
from proxyless.xds.parsing.plugins import NO_PLUGINS
from proxyless.xds.parsing.proto_fields import (
    add_error,
    check_config_source,
    decode_any_as,
    read_duration_s,
)
from proxyless.xds.parsing.route import LISTENER, RouteContext, parse_routes_in_steps
from proxyless.xds.resources.listener import HttpConnectionManager, Listener

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext, Decoded
    from proxyless.xds.parsing.http_filters import FilterParsers
    from proxyless.xds.parsing.plugins import PluginParsers
    from proxyless.xds.resources.route import RouteConfiguration

HTTP_CONNECTION_MANAGER: Final = (
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)


class ListenerType:
    """The LDS resource type."""

    type_url: Final = TYPE_URL_PREFIX + LISTENER
    is_full_state: Final = True

    def __init__(self, filters: FilterParsers, plugins: PluginParsers = NO_PLUGINS) -> None:
        self._context: Final = RouteContext(filters, plugins, cache=PartCache())

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[Listener]:
        return finish(self.decode_in_steps(serialized, context))

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Steps[Decoded[Listener]]:
        routes = self._context.for_server(context.server)
        return decode_resource(
            LISTENER,
            serialized,
            lambda message, errors: parse_listener_in_steps(message, routes, errors),
        )


def parse_listener(
    message: Proto, context: RouteContext, errors: ValidationErrors
) -> Listener | None:
    """A Listener message. The result is valid only if no error was added."""
    return finish(parse_listener_in_steps(message, context, errors))


def parse_listener_in_steps(
    message: Proto, context: RouteContext, errors: ValidationErrors
) -> Steps[Listener | None]:
    """Like `parse_listener`; yields the work of each step."""
    if not message.HasField("api_listener"):
        if not message.HasField("address"):
            errors.add("neither api_listener nor address is set")
        # A socket listener is a valid resource that a client cannot use (A27-20).
        return Listener(message.name, api_listener=None)
    with errors.field("api_listener"), errors.field("api_listener"):
        manager = yield from _decode_manager(message.api_listener.api_listener, errors)
        if manager is None:
            return None
        with errors.key(HTTP_CONNECTION_MANAGER):
            parsed = yield from _parse_connection_manager(manager, context, errors)
            return Listener(message.name, parsed)


def _decode_manager(any_message: Proto, errors: ValidationErrors) -> Steps[Proto | None]:
    """The connection manager. It may have inline routes, so it is parsed in steps if it is large.

    None adds an error.
    """
    if len(any_message.value) <= PART_BYTES_MAX:
        return decode_any_as(HTTP_CONNECTION_MANAGER, any_message, errors)
    manager = message_class(HTTP_CONNECTION_MANAGER)()
    if not any_message.type_url.endswith(f"/{HTTP_CONNECTION_MANAGER}"):
        errors.add(f"is {any_message.type_url}, wanted {HTTP_CONNECTION_MANAGER}")
        return None
    with errors.key(HTTP_CONNECTION_MANAGER):
        try:
            yield from merge_in_steps(manager, any_message.value)
        except TooLargeError as error:
            errors.add(str(error))
            return None
        except DECODE_ERRORS:
            errors.add(f"cannot be decoded as {HTTP_CONNECTION_MANAGER}")
            return None
    return manager


def _parse_connection_manager(
    manager: Proto, context: RouteContext, errors: ValidationErrors
) -> Steps[HttpConnectionManager]:
    with errors.field("http_filters"):
        http_filters = parse_http_filters(manager.http_filters, context.filters, errors)
    # Detection of the original client address is not supported (A41).
    if manager.xff_num_trusted_hops:
        text = f"is {manager.xff_num_trusted_hops}, wanted 0"
        add_error(errors, "xff_num_trusted_hops", text)
    if manager.original_ip_detection_extensions:
        add_error(errors, "original_ip_detection_extensions", "is set, wanted none")
    with errors.field("common_http_protocol_options"):
        options = manager.common_http_protocol_options
        max_stream_duration_s = read_duration_s(options, "max_stream_duration", errors)
    routes = yield from _parse_routes(manager, context, errors)
    return HttpConnectionManager(routes, http_filters, max_stream_duration_s)


def _parse_routes(
    manager: Proto, context: RouteContext, errors: ValidationErrors
) -> Steps[str | RouteConfiguration]:
    match kind := manager.WhichOneof("route_specifier"):
        case "rds":
            with errors.field("rds"):
                return _parse_rds(manager.rds, errors)
        case "route_config":
            with errors.field("route_config"):
                return (yield from parse_routes_in_steps(manager.route_config, context, errors))
        case _:
            errors.add(f"route_specifier is {kind or 'unset'}, wanted rds or route_config")
            return ""


def _parse_rds(rds: Proto, errors: ValidationErrors) -> str:
    with errors.field("config_source"):
        check_config_source(rds.config_source, errors)
    name: str = rds.route_config_name
    if not name:
        add_error(errors, "route_config_name", "is empty, wanted the name of a RouteConfiguration")
    return name
