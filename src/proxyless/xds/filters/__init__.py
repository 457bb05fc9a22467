"""What happens to an RPC between the application and the router?

Specs: A39.

api               what a filter is, and a registry of them
router            the end of every chain (A39)
fault             delays and aborts on purpose (A33)
stateful_session  a cookie that keeps a session on one backend (A55)

Each filter has its config as frozen values, and the parser that makes them from messages.
What it does to RPCs is `calls` in general, `fault_calls` and `session_calls` in particular.
"""

from proxyless.xds.filters.api import FilterFactory, FilterMessage, FilterRegistry
from proxyless.xds.filters.calls import ClientFilter, RoutedRpc, RpcFilter
from proxyless.xds.filters.fault import FaultFilterFactory
from proxyless.xds.filters.router import RouterFilterFactory
from proxyless.xds.filters.stateful_session import StatefulSessionFilterFactory

__all__ = [
    "ClientFilter",
    "FilterFactory",
    "FilterMessage",
    "FilterRegistry",
    "RoutedRpc",
    "RpcFilter",
    "default_filter_registry",
]


def default_filter_registry() -> FilterRegistry:
    """Every filter of this package; `extended` adds an application's own."""
    return FilterRegistry(
        (RouterFilterFactory(), FaultFilterFactory(), StatefulSessionFilterFactory())
    )
