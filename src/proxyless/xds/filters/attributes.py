"""Attribute keys of an RPC, set by the ConfigSelector and the HTTP filters for the pickers.

Specs: A31, A55, A81.
"""

from __future__ import annotations

from typing import Final

from proxyless.base import Key

# The child of xds_cluster_manager that picks for the RPC (A31-18).
CLUSTER: Final[Key[str]] = Key("cluster")
# Prefix of the names of its children that get copies of RPCs only.
MIRROR_PREFIX: Final = "mirror:"

# Present if the endpoint's hostname becomes the authority of the RPC (A81).
AUTO_HOST_REWRITE: Final[Key[bool]] = Key("auto_host_rewrite")


class OverrideHost:
    """The endpoint of a session, by its addresses: from the cookie, and from the picker (A55)."""

    __slots__ = ("actual_addresses", "cookie_addresses")

    def __init__(self, cookie_addresses: tuple[str, ...] = ()) -> None:
        # The preferred address first; empty if the session is new.
        self.cookie_addresses: Final = cookie_addresses
        # Set by the picker: the connected address, then the others. Empty until then.
        self.actual_addresses: tuple[str, ...] = ()


# Present if the RPC belongs to a session, even a new one.
OVERRIDE_HOST: Final[Key[OverrideHost]] = Key("override_host")
