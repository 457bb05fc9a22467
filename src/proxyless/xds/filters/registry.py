"""FilterRegistry: HTTP filters by the type of their messages.

Specs: A39 "HTTP Filter Registry". A filter is found by the full name of the message that configures
it, or that overrides its config for a virtual host, a route or a weighted cluster. Registries are
passed as arguments; there is no global one (ADR 0003).

Every channel has a registry, and few use one. So this module imports no other one of xDS, and a
filter of this package is imported when a listener or a route first names it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.filters.api import FilterFactory


@frozen
class DeferredFilter:
    """Factory that is imported when a message of one of these types is first parsed."""

    type_names: tuple[str, ...]
    # The module and name of the class, which is called without arguments.
    module: str
    factory: str

    def load(self) -> FilterFactory:
        """The factory, which all registries of the process share."""
        return _load(self.module, self.factory)


@cache
def _load(module: str, name: str) -> FilterFactory:
    factory: FilterFactory = getattr(import_module(module), name)()
    return factory


class FilterRegistry:
    """Immutable index of filters by the type of their messages."""

    __slots__ = ("_by_type", "_factories")

    def __init__(self, factories: Iterable[FilterFactory | DeferredFilter] = ()) -> None:
        self._factories = tuple(factories)
        self._by_type: dict[str, FilterFactory | DeferredFilter] = {}
        for factory in self._factories:
            for type_name in _list_types(factory):
                if (other := self._by_type.get(type_name)) is not None:
                    raise ValueError(
                        f"filter type {type_name!r} is registered twice:"
                        f" by {other!r} and by {factory!r}"
                    )
                self._by_type[type_name] = factory

    def get(self, type_name: str) -> FilterFactory | None:
        """The filter that a message of this type configures or overrides."""
        factory = self._by_type.get(type_name)
        return factory.load() if isinstance(factory, DeferredFilter) else factory

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(self._by_type)

    def extended(self, factories: Iterable[FilterFactory]) -> FilterRegistry:
        """A new registry with these filters added."""
        return FilterRegistry([*self._factories, *factories])


def _list_types(factory: FilterFactory | DeferredFilter) -> set[str]:
    if isinstance(factory, DeferredFilter):
        return set(factory.type_names)
    return {*factory.config_types, *factory.override_types}
