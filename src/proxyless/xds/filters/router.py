"""The router filter, which ends every chain; it does nothing, because routing is built in.

Specs: A39 "The Router Filter". "All fields will be ignored" - A39
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.xds.filters.api import want_message

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.runtime import Random
    from proxyless.xds.parsing.http_filters import FilterMessage

ROUTER_TYPE: Final = "envoy.extensions.filters.http.router.v3.Router"


@frozen
class RouterConfig:
    """The router filter has no settings."""

    def describe(self) -> str:
        """The effect on an RPC, for explanations."""
        return "ends the chain"


class RouterFilterFactory:
    """Factory of the router filter."""

    config_types: Final = (ROUTER_TYPE,)
    override_types: Final[tuple[str, ...]] = ()
    is_terminal: Final = True

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> RouterConfig:
        want_message(message, ROUTER_TYPE, errors)
        return RouterConfig()

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> RouterConfig:
        raise AssertionError("a filter without override types has no override to parse")

    def create(self, config: object, override: object | None, random: Random) -> None:
        return None
