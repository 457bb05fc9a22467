"""Through which HTTP proxy is a connection made?

Specs: A1 (the proxy is resolved in place of the target's name), A86 (the proxy of an endpoint).

A resolver or a policy says so about an endpoint; whoever connects asks the proxy to CONNECT.
"""

from dataclasses import field
from typing import Final

from proxyless.base.attributes import Key
from proxyless.base.endpoint import IpAddress
from proxyless.base.frozen import frozen


@frozen
class HttpProxy:
    """The way to an address of an endpoint. Connections with equal ones may be shared."""

    # Where the proxy is. None: the address itself is the proxy's, and `target` is not (A1).
    address: IpAddress | None = None
    # What the proxy is asked to connect to, as host:port. None: the address itself (A86).
    target: str | None = None
    # The value of Proxy-Authorization; empty: not sent. A secret, so it is not shown.
    authorization: str = field(default="", repr=False)

    def describe(self) -> str:
        """What to say beside the address."""
        if self.address is not None:
            return f"through proxy {self.address}"
        return f"a proxy, asked for {self.target}"


# Of an endpoint. Without it, connections are direct.
HTTP_PROXY: Final[Key[HttpProxy]] = Key("http_proxy")
