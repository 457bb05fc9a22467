"""HTTP filters: they process an RPC after routing, before the pick.

Specs: A39.

registry          FilterRegistry: factories by type of message
api               FilterFactory: interface of one type of filter
rpc_filter        interfaces of a filter, and the filters of one RPC
attributes        attributes of an RPC, from selector and filters to the pickers
router            the end of every chain (A39)
fault             config of the fault filter (A33): delays and aborts; its RPCs: fault_filter
stateful_session  config of the session filter (A55): the cookie; its RPCs: session_filter
"""

from typing import TYPE_CHECKING, Final

from proxyless.base.lazy_exports import lazy_exports
from proxyless.xds.filters.registry import DeferredFilter, FilterRegistry

if TYPE_CHECKING:
    from proxyless.xds.filters.api import FilterFactory, FilterMessage
    from proxyless.xds.filters.rpc_filter import ClientFilter, RoutedRpc, RpcFilter
else:
    # Not used by channels without `xds:` targets.
    __getattr__ = lazy_exports(
        __name__,
        {
            "ClientFilter": "rpc_filter",
            "FilterFactory": "api",
            "FilterMessage": "api",
            "RoutedRpc": "rpc_filter",
            "RpcFilter": "rpc_filter",
        },
    )

__all__ = [
    "FILTER_FACTORIES",
    "ClientFilter",
    "DeferredFilter",
    "FilterFactory",
    "FilterMessage",
    "FilterRegistry",
    "RoutedRpc",
    "RpcFilter",
]

_MESSAGES: Final = "envoy.extensions.filters.http"
_SESSION: Final = f"{_MESSAGES}.stateful_session.v3.StatefulSession"

# Every filter of this package.
FILTER_FACTORIES: Final = (
    DeferredFilter((f"{_MESSAGES}.router.v3.Router",), f"{__name__}.router", "RouterFilterFactory"),
    DeferredFilter((f"{_MESSAGES}.fault.v3.HTTPFault",), f"{__name__}.fault", "FaultFilterFactory"),
    DeferredFilter(
        (_SESSION, f"{_SESSION}PerRoute"),
        f"{__name__}.stateful_session",
        "StatefulSessionFilterFactory",
    ),
)
