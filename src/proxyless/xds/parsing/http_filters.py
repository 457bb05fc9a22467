"""Parser of a listener's HTTP filters and of their overrides in routes.

Specs: A39. The configs themselves are parsed by the filters (`xds.filters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from proxyless.xds.parsing.limits import FILTER_OVERRIDES_MAX, HTTP_FILTERS_MAX
from proxyless.xds.parsing.proto_fields import (
    Extension,
    check_count,
    check_unique_name,
    decode_any_as,
    parse_extension,
    unwrap_any,
)
from proxyless.xds.resources.filter import (
    NO_OVERRIDES,
    FilterOverride,
    FilterOverrides,
    HttpFilter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto

FILTER_CONFIG_TYPE: Final = "envoy.config.route.v3.FilterConfig"

_ENABLED: Final = FilterOverride()
_DISABLED: Final = FilterOverride(is_disabled=True)

# The config of a filter. It is the object of a TypedStruct if the package has no descriptor of the
# filter's message type.
FilterMessage: TypeAlias = "Proto | Mapping[str, object]"


class FilterParser(Protocol):
    """The parser of one kind of HTTP filter (A39). Implemented by `xds.filters.FilterFactory`."""

    @property
    def config_types(self) -> tuple[str, ...]:
        """The full names of the message types of its config in a listener."""

    @property
    def override_types(self) -> tuple[str, ...]:
        """The full names of the message types that override its config; may be empty."""

    @property
    def is_terminal(self) -> bool:
        """Whether the filter ends a chain. The last filter, and no other, must be terminal."""

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> object:
        """A frozen value that compares by content. It is valid only if no error was added."""

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> object:
        """The same for a message of one of the `override_types`."""


class FilterParsers(Protocol):
    """The supported filters, by message type. Implemented by `FilterRegistry`."""

    def get(self, type_name: str) -> FilterParser | None:
        """The filter that a message of this type configures or overrides, if any."""


def parse_http_filters(
    messages: Sequence[Proto], filters: FilterParsers, errors: ValidationErrors
) -> tuple[HttpFilter, ...]:
    """The filter chain of a connection manager. The current path is that of the list."""
    if not check_count(messages, HTTP_FILTERS_MAX, errors):
        return ()
    chain: list[tuple[int, HttpFilter, FilterParser]] = []
    names: set[str] = set()
    errors_before = errors.count
    for index, message in enumerate(messages):
        with errors.index(index):
            check_unique_name(message.name, names, errors)
            names.add(message.name)
            parsed = _parse_http_filter(message, filters, errors)
        if parsed is not None:
            chain.append((index, *parsed))
    if not messages:
        errors.add("is empty, wanted at least one filter")
    elif not chain and errors.count == errors_before:
        errors.add("has only optional filters that are not known, wanted one that ends the chain")
    _check_terminal(chain, errors)
    return tuple(entry for _, entry, _ in chain)


def _parse_http_filter(
    message: Proto, filters: FilterParsers, errors: ValidationErrors
) -> tuple[HttpFilter, FilterParser] | None:
    """None for an optional filter that is not supported, and after an error."""
    if not message.HasField("typed_config"):
        # config_discovery is not supported.
        if not message.is_optional:
            errors.add(
                f"{message.WhichOneof('config_type') or 'nothing'} is set, wanted typed_config"
            )
        return None
    with errors.field("typed_config"):
        extension = unwrap_any(message.typed_config, errors)
        if extension is None:
            return None
        factory = filters.get(extension.type_name)
        if factory is None:
            # "the individual filter will be ignored" - A39
            if not message.is_optional:
                errors.add(f"is of type {extension.type_name!r}, wanted one of a known filter")
            return None
        if extension.type_name not in factory.config_types:
            errors.add(f"is {extension.type_name!r}, wanted {' or '.join(factory.config_types)}")
            return None
        config = parse_extension(factory.parse_config, extension, errors)
    return HttpFilter(message.name, extension.type_name, config, message.disabled), factory


def _check_terminal(
    chain: Sequence[tuple[int, HttpFilter, FilterParser]], errors: ValidationErrors
) -> None:
    last = len(chain) - 1
    for position, (index, entry, factory) in enumerate(chain):
        if factory.is_terminal == (position == last):
            continue
        with errors.index(index):
            if factory.is_terminal:
                errors.add(f"is {entry.type_name}, which ends the chain, wanted it last")
            else:
                errors.add(f"is {entry.type_name} and last, wanted one that ends the chain")


def parse_filter_overrides(
    messages: Mapping[str, Proto], filters: FilterParsers, errors: ValidationErrors
) -> FilterOverrides:
    """The typed_per_filter_config of a virtual host, route or weighted cluster."""
    if not messages:
        return NO_OVERRIDES
    overrides: dict[str, FilterOverride] = {}
    with errors.field("typed_per_filter_config"):
        if not check_count(messages, FILTER_OVERRIDES_MAX, errors):
            return NO_OVERRIDES
        for name, message in messages.items():
            with errors.key(name):
                override = _parse_override(message, filters, errors)
            if override is not None:
                overrides[name] = override
    return overrides


def _parse_override(
    message: Proto, filters: FilterParsers, errors: ValidationErrors
) -> FilterOverride | None:
    extension = unwrap_any(message, errors)
    if extension is None:
        return None
    if extension.type_name != FILTER_CONFIG_TYPE:
        return _parse_override_config(extension, filters, errors)
    wrapper = decode_any_as(FILTER_CONFIG_TYPE, message, errors)
    return None if wrapper is None else _parse_filter_config(wrapper, filters, errors)


def _parse_filter_config(
    wrapper: Proto, filters: FilterParsers, errors: ValidationErrors
) -> FilterOverride | None:
    if wrapper.disabled:
        return _DISABLED
    with errors.key(FILTER_CONFIG_TYPE), errors.field("config"):
        # A FilterConfig without a config enables a filter that is disabled in the listener.
        if not wrapper.config.type_url and not wrapper.config.value:
            return _ENABLED
        inner = unwrap_any(wrapper.config, errors)
        if inner is None or (wrapper.is_optional and filters.get(inner.type_name) is None):
            return None
        return _parse_override_config(inner, filters, errors)


def _parse_override_config(
    extension: Extension, filters: FilterParsers, errors: ValidationErrors
) -> FilterOverride | None:
    factory = filters.get(extension.type_name)
    if factory is None:
        errors.add(f"is of type {extension.type_name!r}, wanted one of a known filter")
        return None
    if extension.type_name not in factory.override_types:
        wanted = " or ".join(factory.override_types) or "none: this filter has no overrides"
        errors.add(f"is {extension.type_name!r}, wanted {wanted}")
        return None
    return FilterOverride(parse_extension(factory.parse_override, extension, errors))
