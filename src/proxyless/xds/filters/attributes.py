"""Attributes of an RPC, from the ConfigSelector and the HTTP filters to the pickers.

Specs: A31, A55, A81.
"""

from __future__ import annotations

from typing import Final

from proxyless.base import Key

# The child of xds_cluster_manager that picks for the RPC (A31-18).
CLUSTER: Final[Key[str]] = Key("cluster")

# Present if the endpoint's hostname becomes the authority of the RPC (A81).
AUTO_HOST_REWRITE: Final[Key[bool]] = Key("auto_host_rewrite")


class OverrideHost:
    """The endpoint of a session: set by the filter from the cookie, and by the picker (A55).

    Addresses are texts, as in the cookie: those of one endpoint, the preferred one first.
    """

    __slots__ = ("actual_addresses", "cookie_addresses")

    def __init__(self, cookie_addresses: tuple[str, ...] = ()) -> None:
        # Fixed at construction. Empty: the session is new.
        self.cookie_addresses: Final = cookie_addresses
        # Set by the picker: the connected one, then the others. Empty: no picker has set it.
        self.actual_addresses: tuple[str, ...] = ()


# Of an RPC that belongs to a session, old or new.
OVERRIDE_HOST: Final[Key[OverrideHost]] = Key("override_host")
