"""Options of a channel, as its front makes them from the application's arguments."""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.lb.connection_limit import CONNECTIONS_CAP_DEFAULT
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.resolver.api import ResolverOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.security import SecuritySource

IDLE_TIMEOUT_S: Final = 30 * 60.0
# Bytes of messages that an RPC keeps for another attempt. One that sends more is committed.
KEPT_BYTES_MAX: Final = 256 * 1024


@frozen(kw_only=True)
class ChannelOptions:
    """Options of one channel."""

    subchannel: SubchannelOptions = field(default_factory=SubchannelOptions)
    # Used unless the resolver returns a service config.
    service_config: Mapping[str, object] = field(default_factory=dict)
    # Names of the options that it is made of, for error texts.
    service_config_sources: tuple[str, ...] = ()
    is_resolver_config_used: bool = True
    authority: str | None = None
    user_agent: str = "proxyless"
    is_retry_enabled: bool = True
    kept_bytes_max: int = KEPT_BYTES_MAX
    send_bytes_max: float = inf
    idle_timeout_s: float = IDLE_TIMEOUT_S
    call_credentials: CallCredentials | None = None
    # Delay between the connection attempts of pick_first (A61); None: its default.
    connection_attempt_delay_s: float | None = None
    # False disables health checking, even if the service config requests it (A17).
    is_health_checked: bool = True
    # Bounds the connections of a subchannel that service configs and clusters allow (A105).
    connections_cap: int = CONNECTIONS_CAP_DEFAULT
    resolver: ResolverOptions = ResolverOptions()

    # Connections are confidential: TLS, or local.
    is_private: bool = False
    # Chooses the security of connections; None: `subchannel` does.
    security: SecuritySource | None = None
    metrics: Metrics = NO_METRICS

    @property
    def scheme(self) -> str:
        return self.subchannel.transport.scheme if self.security is None else "https"
