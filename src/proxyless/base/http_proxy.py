"""HTTP proxy of an endpoint: an attribute that resolvers and policies set and connectors use.

Specs: A1 (the proxy is resolved in place of the target's name), A86 (the proxy of an endpoint).
"""

from dataclasses import field
from typing import Final

from proxyless.base.attributes import Key
from proxyless.base.endpoint import IpAddress
from proxyless.base.frozen import frozen


@frozen
class HttpProxy:
    """A proxy for the addresses of an endpoint. Connections through equal proxies may be shared."""

    # None: the address of the endpoint is the proxy's, and `target` is set (A1).
    address: IpAddress | None = None
    # Target of CONNECT, as host:port. None: the address of the endpoint (A86).
    target: str | None = None
    # The value of Proxy-Authorization; empty: not sent. A secret, so it is not in the repr.
    authorization: str = field(default="", repr=False)

    def describe(self) -> str:
        """Text that follows the address in logs and explanations."""
        if self.address is not None:
            return f"through proxy {self.address}"
        return f"a proxy, asked for {self.target}"


# An endpoint without this attribute is connected directly.
HTTP_PROXY: Final[Key[HttpProxy]] = Key("http_proxy")
