"""Who has a say in how the connections of a channel are made, beside its own options?

The channel does not know what the endpoints' attributes mean: it asks, for each subchannel, with
the attributes that policies and resolver have put there. What comes back is asked again for each
connection (`transport.TlsSource`), so that a subchannel outlives certificates and configs. The
proxy of an endpoint is an attribute, too, and part of what makes a connection the same.
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
    """Of one channel. Driven by it."""

    def choose(self, attributes: Attributes) -> TlsSource | None:
        """Who secures the connections of a subchannel; None: the channel's own options."""
        ...

    def release(self) -> None:
        """Nothing that was chosen is used any more. Choosing again is a new start."""
        ...


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
