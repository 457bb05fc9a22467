"""What does the router filter say?

Specs: A39 "The Router Filter". That the chain ends here and routing begins; routing itself is built
in. "All fields will be ignored" - A39
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
    """Nothing: there is nothing to configure."""

    def describe(self) -> str:
        """The effect on an RPC, for explanations."""
        return "ends the chain"


class RouterFilterFactory:
    """The end of every chain. Driven by the parsers of listeners and routes."""

    config_types: Final = (ROUTER_TYPE,)
    override_types: Final[tuple[str, ...]] = ()
    is_terminal: Final = True

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> RouterConfig:
        want_message(message, ROUTER_TYPE, errors)
        return RouterConfig()

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> RouterConfig:
        raise AssertionError("a filter without override types is never asked for an override")

    def create(self, config: object, override: object | None, random: Random) -> None:
        """Nothing: what it stands for is what happens without it."""
