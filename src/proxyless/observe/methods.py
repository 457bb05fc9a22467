"""Sample methods of a mesh: for each path that a route matches, a method that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.observe import parsed_fields
from proxyless.protos import DECODE_ERRORS, Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

METHODS_MAX: Final = 100
_DEFAULT: Final = "/example.Service/Method"


def sample_methods(messages: Iterable[Proto]) -> list[str]:
    """Methods that routes match by a path or prefix, and without conditions on headers."""
    found = (
        method
        for message in messages
        for config in _find_route_configs(message)
        for host in config.virtual_hosts
        for route in host.routes
        if not route.match.headers
        for method in _sample(route.match)
    )
    return list(dict.fromkeys(found))[:METHODS_MAX] or [_DEFAULT]


def _find_route_configs(message: Proto) -> Iterator[Proto]:
    name = message.DESCRIPTOR.full_name
    if name == parsed_fields.ROUTE_CONFIG:
        yield message
    if name != parsed_fields.LISTENER:
        return
    packed = message.api_listener.api_listener
    if packed.type_url.rpartition("/")[2] == parsed_fields.MANAGER:
        try:
            manager = message_class(parsed_fields.MANAGER).FromString(packed.value)
        except DECODE_ERRORS:
            return
        if manager.HasField("route_config"):
            yield manager.route_config


def _sample(match: Proto) -> Iterator[str]:
    kind = match.WhichOneof("path_specifier")
    if kind == "path":
        yield match.path
    elif kind == "prefix":
        prefix = match.prefix or "/"
        if prefix == "/":
            yield _DEFAULT
        elif "/" in prefix[1:]:
            yield f"{prefix}Method" if prefix.endswith("/") else prefix
        else:
            yield f"{prefix}/Method"
