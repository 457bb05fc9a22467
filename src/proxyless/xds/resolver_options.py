"""Options of an xDS resolver: from the channel, the environment and the bootstrap, in this order.

Decisions: D20 (timeout of routes that set none), D50 (hold of the config in force).
"""

from __future__ import annotations

import logging
import os
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.xds.routing.route_table import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from proxyless.resolver import ResolverOptions
    from proxyless.xds.bootstrap import Bootstrap

LOGGER: Final = logging.getLogger("proxyless.xds.resolver")

# Timeout of routes that set none.
DEFAULT_TIMEOUT_VARIABLE: Final = "GRPC_XDS_DEFAULT_ROUTE_TIMEOUT"
# Whether routes in force are held while no server answers.
HOLD_VARIABLE: Final = "GRPC_XDS_HOLD_CONFIG"


@frozen
class XdsResolverOptions:
    """Options of one resolver."""

    # 0: no timeout.
    default_timeout_s: float = DEFAULT_TIMEOUT_S
    holds_config: bool = True
    # None: the default of the control plane.
    is_stream_shared: bool | None = None


def choose_options(channel: ResolverOptions, bootstrap: Bootstrap) -> XdsResolverOptions:
    """Options of a resolver, given those of its channel."""
    timeout_s, holds = channel.xds_default_timeout_s, channel.xds_holds_config
    return XdsResolverOptions(
        default_timeout_s(bootstrap) if timeout_s is None else timeout_s,
        read_flag(os.environ, HOLD_VARIABLE, default=True) if holds is None else holds,
        channel.is_xds_stream_shared,
    )


def default_timeout_s(bootstrap: Bootstrap | None = None) -> float:
    """Timeout of routes that set none, for channels without an option for it (D20)."""
    default_s = None if bootstrap is None else bootstrap.default_route_timeout_s
    if default_s is None:
        default_s = DEFAULT_TIMEOUT_S
    text = os.environ.get(DEFAULT_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text.removesuffix("s")) if text else default_s
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < inf:
        return seconds
    expected = "a time in seconds, such as 0 or 2.5s"
    LOGGER.warning("%s is %r, wanted %s: it is ignored", DEFAULT_TIMEOUT_VARIABLE, text, expected)
    return default_s
