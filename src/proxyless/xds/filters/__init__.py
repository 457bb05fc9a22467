"""HTTP filters: what happens to an RPC between the application and the router.

Specs: A39.

api               FilterFactory and FilterRegistry
calls             what a filter may do with an RPC, and the chain of one route
attributes        attributes of an RPC, from selector and filters to the pickers
router            the end of every chain (A39)
fault             delays and aborts (A33): config; fault_calls what it does to RPCs
stateful_session  the cookie of a session (A55): config; session_calls what it does to RPCs

Each filter has its config as frozen values, and the parser that makes them from messages.
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
]

# Every filter of this package.
FILTER_FACTORIES: Final[tuple[FilterFactory, ...]] = (
    RouterFilterFactory(),
    FaultFilterFactory(),
    StatefulSessionFilterFactory(),
)
