"""FilterFactory, the interface of an HTTP filter, and FilterRegistry.

Specs: A39 "HTTP Filter Registry". A filter is found by the full name of the message that configures
it, or that overrides its config for a virtual host, a route or a weighted cluster. Registries are
passed as arguments; there is no global one (ADR 0003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from proxyless.xds.parsing.http_filters import FilterParser

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime import Random
    from proxyless.xds.filters.rpc_filter import ClientFilter
    from proxyless.xds.parsing.http_filters import FilterMessage


class FilterFactory(FilterParser, Protocol):
    """One type of filter: parses its configs, and creates the filter of a route."""

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        """The filter of one route, or None if it does nothing there.

        Config and override are results of this factory's parsers; without an override it is None.
        """
        ...


class FilterRegistry:
    """Immutable index of filters by the type of their messages."""

    __slots__ = ("_by_type", "_factories")

    def __init__(self, factories: Iterable[FilterFactory] = ()) -> None:
        self._factories = tuple(factories)
        self._by_type: dict[str, FilterFactory] = {}
        for factory in self._factories:
            for type_name in {*factory.config_types, *factory.override_types}:
                if (other := self._by_type.get(type_name)) is not None:
                    raise ValueError(
                        f"filter type {type_name!r} is registered twice:"
                        f" by {other!r} and by {factory!r}"
                    )
                self._by_type[type_name] = factory

    def get(self, type_name: str) -> FilterFactory | None:
        """The filter that a message of this type configures or overrides."""
        return self._by_type.get(type_name)

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(self._by_type)

    def extended(self, factories: Iterable[FilterFactory]) -> FilterRegistry:
        """A new registry with these filters added."""
        return FilterRegistry([*self._factories, *factories])


def want_message(message: FilterMessage, wanted: str, errors: ValidationErrors) -> Proto | None:
    """The message, for a filter that does not accept a TypedStruct. None adds an error."""
    if isinstance(message, Mapping):
        errors.add(f"is a TypedStruct, wanted {wanted}")
        return None
    return message
