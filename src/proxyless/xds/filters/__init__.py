"""HTTP filters: they process an RPC after routing, before the pick.

Specs: A39.

api               FilterFactory and FilterRegistry
rpc_filter        interfaces of a filter, and the filters of one RPC
attributes        attributes of an RPC, from selector and filters to the pickers
router            the end of every chain (A39)
fault             config of the fault filter (A33): delays and aborts; its RPCs: fault_filter
stateful_session  config of the session filter (A55): the cookie; its RPCs: session_filter
"""

from typing import Final

from proxyless.xds.filters.api import FilterFactory, FilterRegistry
from proxyless.xds.filters.fault import FaultFilterFactory
from proxyless.xds.filters.router import RouterFilterFactory
from proxyless.xds.filters.rpc_filter import ClientFilter, RoutedRpc, RpcFilter
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
