"""FilterFactory, the interface of an HTTP filter (A39). `registry` has the index of factories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from proxyless.xds.parsing.http_filters import FilterMessage, FilterParser

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime import Random
    from proxyless.xds.filters.rpc_filter import ClientFilter

__all__ = ["FilterFactory", "FilterMessage", "want_message"]


class FilterFactory(FilterParser, Protocol):
    """One type of filter: parses its configs, and creates the filter of a route."""

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        """The filter of one route, or None if it does nothing there.

        Config and override are results of this factory's parsers; without an override it is None.
        """
        ...


def want_message(message: FilterMessage, wanted: str, errors: ValidationErrors) -> Proto | None:
    """The message, for a filter that does not accept a TypedStruct. None adds an error."""
    if isinstance(message, Mapping):
        errors.add(f"is a TypedStruct, wanted {wanted}")
        return None
    return message
