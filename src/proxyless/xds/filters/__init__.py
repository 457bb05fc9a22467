"""What happens to an RPC between the application and the router?

Specs: A39.

api               what a filter is, and a registry of them
router            the end of every chain (A39)
fault             delays and aborts on purpose (A33)
stateful_session  a cookie that keeps a session on one backend (A55)

Each filter has its config as frozen values, and the parser that makes them from messages.
What it does to RPCs is `calls` in general, `fault_calls` and `session_calls` in particular.
"""

from typing import Final

from proxyless.xds.filters.api import FilterFactory, FilterRegistry
from proxyless.xds.filters.calls import ClientFilter, RoutedRpc, RpcFilter
from proxyless.xds.filters.fault import FaultFilterFactory
from proxyless.xds.filters.router import RouterFilterFactory
from proxyless.xds.filters.stateful_session import StatefulSessionFilterFactory
from proxyless.xds.parsing.http_filters import FilterMessage

__all__ = [
    "FILTER_FACTORIES",
    "ClientFilter",
    "FilterFactory",
    "FilterMessage",
    "FilterRegistry",
    "RoutedRpc",
    "RpcFilter",
    "default_filter_registry",
]

# Every filter of this package.
FILTER_FACTORIES: Final[tuple[FilterFactory, ...]] = (
    RouterFilterFactory(),
    FaultFilterFactory(),
    StatefulSessionFilterFactory(),
)


def default_filter_registry() -> FilterRegistry:
    """The filters of this package and no others; `extended` adds an application's own."""
    return FilterRegistry(FILTER_FACTORIES)
