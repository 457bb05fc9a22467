"""gRPC's xDS client stack in pure Python.

admin                          admin services of a process: CSDS, channelz, live service
aio                            channels for asyncio, with grpc.aio's interface
otel                           metrics and traces through OpenTelemetry
insecure_channel               blocking channel, with grpcio's interface
secure_channel                 blocking channel with credentials
explain_error                  why an RPC failed; `channel.explain` shows where one would go
call_route                     where an RPC went, by its call or error
CallRoute                      result of `call_route`
Explanation                    result of `explain_error` and `channel.explain`
LbNode                         result of `channel.lb_tree`
Registries                     policies, resolvers and filters of a channel
ssl_channel_credentials        TLS
local_channel_credentials      no encryption, but only to this machine
composite_channel_credentials  channel credentials with call credentials
xds_channel_credentials        security configuration of the control plane, with a fallback
freeze                         excludes the objects of a started process from garbage collection

Names are imported lazily, when they are first used.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Final

from proxyless.version import __version__

if TYPE_CHECKING:
    from proxyless import admin, aio

    # The alias exports it. It is not in __all__, because a star must not need OpenTelemetry.
    from proxyless import otel as otel
    from proxyless.assembly import Registries
    from proxyless.base.explanation import Explanation
    from proxyless.front import (
        composite_channel_credentials,
        local_channel_credentials,
        ssl_channel_credentials,
        xds_channel_credentials,
    )
    from proxyless.front.call_route import CallRoute, call_route
    from proxyless.lb.description import LbNode
    from proxyless.observe.explain_running import explain_error
    from proxyless.runtime.garbage import freeze
    from proxyless.sync import insecure_channel, secure_channel

__all__ = [
    "CallRoute",
    "Explanation",
    "LbNode",
    "Registries",
    "__version__",
    "admin",
    "aio",
    "call_route",
    "composite_channel_credentials",
    "explain_error",
    "freeze",
    "insecure_channel",
    "local_channel_credentials",
    "secure_channel",
    "ssl_channel_credentials",
    "xds_channel_credentials",
]

_MODULES: Final = {
    "CallRoute": "proxyless.front.call_route",
    "Explanation": "proxyless.base.explanation",
    "LbNode": "proxyless.lb.description",
    "Registries": "proxyless.assembly",
    "call_route": "proxyless.front.call_route",
    "composite_channel_credentials": "proxyless.front",
    "explain_error": "proxyless.observe.explain_running",
    "freeze": "proxyless.runtime.garbage",
    "insecure_channel": "proxyless.sync",
    "local_channel_credentials": "proxyless.front",
    "secure_channel": "proxyless.sync",
    "ssl_channel_credentials": "proxyless.front",
    "xds_channel_credentials": "proxyless.front",
}

# No output unless the application or GRPC_VERBOSITY configures logging.
logging.getLogger("proxyless").addHandler(logging.NullHandler())


if not TYPE_CHECKING:  # With it, type checkers would accept every name.

    def __getattr__(name: str) -> object:
        if name in {"admin", "aio", "otel"}:
            return import_module(f"proxyless.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module 'proxyless' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
