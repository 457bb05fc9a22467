"""Which plugins of a RouteConfiguration choose clusters?

A route may name a plugin instead of a cluster; the plugin stands for a load balancing config that
takes the route's RPCs. There is none in this package: an application hands in what it has.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.xds.parsing.limits import CLUSTER_SPECIFIER_PLUGINS_MAX
from proxyless.xds.parsing.proto_fields import (
    check_count,
    decode_extension,
    guard_parser,
    unwrap_any,
)
from proxyless.xds.resources.route import ClusterSpecifierPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto

# Makes a LoadBalancingConfig list in JSON of the plugin's message, or of a TypedStruct's object. It
# counts only if no error was added.
PluginParser: TypeAlias = (
    "Callable[[Proto | Mapping[str, object], ValidationErrors], Sequence[Mapping[str, object]]]"
)
# By the full name of the message that configures the plugin.
PluginParsers: TypeAlias = "Mapping[str, PluginParser]"

NO_PLUGINS: Final[Mapping[str, PluginParser]] = MappingProxyType({})


def parse_plugins(
    messages: Sequence[Proto], parsers: PluginParsers, errors: ValidationErrors
) -> dict[str, ClusterSpecifierPlugin | None]:
    """The cluster_specifier_plugins by name; None is one that is not known, but optional."""
    plugins: dict[str, ClusterSpecifierPlugin | None] = {}
    if not check_count(messages, CLUSTER_SPECIFIER_PLUGINS_MAX, errors):
        return plugins
    for index, message in enumerate(messages):
        name = message.extension.name
        with errors.index(index), errors.field("extension"):
            if not name or name in plugins:
                with errors.field("name"):
                    errors.add(f"is {name!r} again, wanted a unique one" if name else "is empty")
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
        config = decode_extension(extension, errors)
        if config is None:
            return None
        with errors.key(extension.type_name):
            lb_config = guard_parser(parse, config, errors)
    return ClusterSpecifierPlugin(message.extension.name, tuple(lb_config or ()))
