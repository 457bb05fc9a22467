"""gRPC's xDS client stack in pure Python.

admin                          what a process tells about itself: CSDS
aio                            channels for asyncio, with grpc.aio's interface
otel                           metrics, through OpenTelemetry if that is installed
insecure_channel               a blocking channel, with grpcio's interface
secure_channel                 the same, with credentials
explain_error                  why an RPC failed; `channel.explain` says where one would go
Explanation, LbNode            what these answer with, and what `channel.lb_tree` does
Registries                     policies and resolvers of one's own, for a channel
ssl_channel_credentials        TLS
local_channel_credentials      no encryption, but only to this machine
composite_channel_credentials  channel credentials, and what each RPC adds
xds_channel_credentials        what the control plane says, and a fallback

This is the front door. It is opened only as far as needed: a name is imported when it is used.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from proxyless.version import __version__

if TYPE_CHECKING:
    from proxyless import (
        admin,
        aio,
        otel,  # noqa: F401 - not in __all__: a star must not need OpenTelemetry
    )
    from proxyless.assembly import Registries
    from proxyless.base.explanation import Explanation
    from proxyless.front import (
        composite_channel_credentials,
        local_channel_credentials,
        ssl_channel_credentials,
        xds_channel_credentials,
    )
    from proxyless.lb.view import LbNode
    from proxyless.observe.live import explain_error
    from proxyless.sync import insecure_channel, secure_channel

__all__ = [
    "Explanation",
    "LbNode",
    "Registries",
    "__version__",
    "admin",
    "aio",
    "composite_channel_credentials",
    "explain_error",
    "insecure_channel",
    "local_channel_credentials",
    "secure_channel",
    "ssl_channel_credentials",
    "xds_channel_credentials",
]

_HOMES: Final = {
    "Explanation": "proxyless.base.explanation",
    "LbNode": "proxyless.lb.view",
    "Registries": "proxyless.assembly",
    "composite_channel_credentials": "proxyless.front",
    "explain_error": "proxyless.observe.live",
    "insecure_channel": "proxyless.sync",
    "local_channel_credentials": "proxyless.front",
    "secure_channel": "proxyless.sync",
    "ssl_channel_credentials": "proxyless.front",
    "xds_channel_credentials": "proxyless.front",
}

# Silent, unless the application or GRPC_VERBOSITY wants to hear of it.
logging.getLogger("proxyless").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is
    """Called for a name that is not here yet."""
    if name in {"admin", "aio", "otel"}:
        return import_module(f"proxyless.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'proxyless' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
