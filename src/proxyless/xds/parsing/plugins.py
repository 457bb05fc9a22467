"""Parser of a RouteConfiguration's cluster specifier plugins, each to its load balancing config.

A route may name a plugin instead of a cluster. Plugins are registered by applications.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.xds.parsing.limits import CLUSTER_SPECIFIER_PLUGINS_MAX
from proxyless.xds.parsing.proto_fields import (
    check_count,
    check_unique_name,
    parse_extension,
    unwrap_any,
)
from proxyless.xds.resources.route import ClusterSpecifierPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto

# Converts the plugin's message, or the object of a TypedStruct, to a LoadBalancingConfig list in
# JSON. The result is valid only if no error was added.
PluginParser: TypeAlias = (
    "Callable[[Proto | Mapping[str, object], ValidationErrors], Sequence[Mapping[str, object]]]"
)
# By the full name of the plugin's message type.
PluginParsers: TypeAlias = "Mapping[str, PluginParser]"

NO_PLUGINS: Final[Mapping[str, PluginParser]] = MappingProxyType({})


def parse_plugins(
    messages: Sequence[Proto], parsers: PluginParsers, errors: ValidationErrors
) -> dict[str, ClusterSpecifierPlugin | None]:
    """The cluster_specifier_plugins by name; None for an optional plugin that is not supported."""
    plugins: dict[str, ClusterSpecifierPlugin | None] = {}
    if not check_count(messages, CLUSTER_SPECIFIER_PLUGINS_MAX, errors):
        return plugins
    for index, message in enumerate(messages):
        name = message.extension.name
        with errors.index(index), errors.field("extension"):
            check_unique_name(name, plugins, errors)
            plugins[name] = _parse_plugin(message, parsers, errors)
    return plugins


def _parse_plugin(
    message: Proto, parsers: PluginParsers, errors: ValidationErrors
) -> ClusterSpecifierPlugin | None:
    with errors.field("typed_config"):
        extension = unwrap_any(message.extension.typed_config, errors)
        if extension is None:
            return None
        parse = parsers.get(extension.type_name)
        if parse is None:
            if not message.is_optional:
                errors.add(f"is of type {extension.type_name!r}, wanted one of a known plugin")
            return None
        lb_config = parse_extension(parse, extension, errors)
    return ClusterSpecifierPlugin(message.extension.name, tuple(lb_config or ()))
