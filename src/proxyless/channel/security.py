"""Security of subchannels: TLS source and HTTP proxy, chosen by the attributes of an endpoint.

The channel does not interpret the attributes; its `SecuritySource` does. A TLS source is called for
each connection, so a subchannel outlives certificates and configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from proxyless.base import HTTP_PROXY

if TYPE_CHECKING:
    from proxyless.base import Attributes
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.transport import TlsSource


class SecuritySource(Protocol):
    """Chooses the security of the subchannels of one channel."""

    def choose(self, attributes: Attributes) -> TlsSource | None:
        """The TLS source of a subchannel; None: the channel's own options."""

    def release(self) -> None:
        """Release what was chosen. `choose` may be called again."""


def secure_subchannel(
    options: SubchannelOptions, security: SecuritySource | None, attributes: Attributes
) -> SubchannelOptions:
    """The options for a subchannel with these attributes."""
    source = None if security is None else security.choose(attributes)
    proxy = attributes.get(HTTP_PROXY)
    if source is None and proxy is None:
        return options
    transport = replace(options.transport, http_proxy=proxy)
    if source is not None:
        transport = replace(transport, tls_source=source)
    return replace(options, transport=transport)
