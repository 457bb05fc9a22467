"""Options of a subchannel."""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import Final

from proxyless.base import BackoffPolicy
from proxyless.base.frozen import frozen
from proxyless.transport import TransportOptions

# "MIN_CONNECT_TIMEOUT" - gRPC Connection Backoff Protocol
MIN_CONNECT_TIMEOUT_S: Final = 20.0


@frozen(kw_only=True)
class SubchannelOptions:
    """How to connect. Channels share subchannels to one address with equal options."""

    # Its connect_timeout_s is not used: the timeout of an attempt depends on the backoff.
    transport: TransportOptions = field(default_factory=TransportOptions)
    # The host that TLS checks, unless the transport's options override it.
    server_name: str | None = None
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    min_connect_timeout_s: float = MIN_CONNECT_TIMEOUT_S

    def __post_init__(self) -> None:
        if not 0 < self.min_connect_timeout_s < inf:
            raise ValueError(
                f"min connect timeout {self.min_connect_timeout_s} s is not valid: "
                "wanted a finite time above 0 s"
            )
