"""What is an HTTP filter, and which ones does a client know?

Specs: A39 "HTTP Filter Registry". A filter is found by the full name of the message that configures
it, or that overrides its config for a virtual host, a route or a weighted cluster. A registry is an
object handed over; nothing registers itself (ADR 0003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from proxyless.xds.parsing.http_filters import FilterParser

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime import Random
    from proxyless.xds.filters.calls import ClientFilter
    from proxyless.xds.parsing.http_filters import FilterMessage


class FilterFactory(FilterParser, Protocol):
    """One kind of filter: the parser of its configs, and what creates it for a route."""

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        """The filter as one route has it, or None if it has nothing to do there.

        Config and override are what this factory's parsers made; no override is None.
        """
        ...


class FilterRegistry:
    """Finds filters by type of message. Does not change; `extended` makes a new one."""

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
        """The filter that a message of this type configures or overrides; None if there is none."""
        return self._by_type.get(type_name)

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(self._by_type)

    def extended(self, factories: Iterable[FilterFactory]) -> FilterRegistry:
        """A registry that knows these, too."""
        return FilterRegistry([*self._factories, *factories])


def want_message(message: FilterMessage, wanted: str, errors: ValidationErrors) -> Proto | None:
    """The message, for a filter that has one of its own. None adds an error: it was an object."""
    if isinstance(message, Mapping):
        errors.add(f"is a TypedStruct, wanted {wanted}")
        return None
    return message
