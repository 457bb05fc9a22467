"""Where does the session of this RPC live, and does its client have to be told?

Specs: A55 (the cookie), A60 (its cluster), RFC 6265 5.1.4 (paths).

The cookie's value is, in base64, the addresses of one endpoint and the cluster: what C-core writes,
byte for byte, so that clients of either kind can share a session. Config and parser are
`stateful_session`; the picker that keeps RPCs on a host is `lb.override_host`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.filters.calls import RpcFilter

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.wire import StreamEnd
    from proxyless.xds.filters.calls import RoutedRpc
    from proxyless.xds.filters.stateful_session import SessionCookie


class SessionPlace(NamedTuple):
    """What a cookie says: where the session lives."""

    addresses: tuple[str, ...] = ()
    cluster: str = ""


NOWHERE: Final = SessionPlace()

# ---------------------------------------------------------------------------------------------
# The cookie


def matches_path(cookie_path: str, path: str) -> bool:
    """Whether the cookie is for RPCs of this path: RFC 6265 5.1.4; an empty one is for all."""
    if not path.startswith(cookie_path):
        return False
    rest = path[len(cookie_path) :]
    return not rest or not cookie_path or cookie_path.endswith("/") or rest.startswith("/")


def read_place(metadata: Metadata, name: str) -> SessionPlace:
    """What the first cookie of this name says; nowhere if there is none or it says nothing."""
    for key, value in metadata:
        if key == "cookie" and isinstance(value, str):
            for pair in value.split(";"):
                found, equals, encoded = pair.strip(" ").partition("=")
                if equals and found == name:
                    return parse_place(encoded)
    return NOWHERE


def parse_place(encoded: str) -> SessionPlace:
    """The place that a cookie's value spells; nowhere if that is not base64 of text."""
    try:
        # Some clients strip the padding.
        text = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode()
    except (Base64Error, ValueError):
        return NOWHERE
    addresses, _, cluster = text.partition(";")
    return SessionPlace(tuple(addresses.split(",")) if addresses else (), cluster)


def format_place(place: SessionPlace) -> str:
    """The value of a cookie for this place."""
    text = f"{','.join(place.addresses)};{place.cluster}"
    return b64encode(text.encode()).decode("ascii")


def format_set_cookie(cookie: SessionCookie, place: SessionPlace) -> str:
    """The header with which a client is told."""
    parts = [f"{cookie.name}={format_place(place)}", "HttpOnly"]
    if cookie.path:
        parts.append(f"Path={cookie.path}")
    if cookie.ttl_s > 0:
        parts.append(f"Max-Age={int(cookie.ttl_s)}")
    return "; ".join(parts)


# ---------------------------------------------------------------------------------------------
# The filter


class SessionFilter:
    """Keeps the sessions of one route's RPCs. Driven by the selector."""

    __slots__ = ("_cookie",)

    def __init__(self, cookie: SessionCookie) -> None:
        self._cookie: Final = cookie

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        if not matches_path(self._cookie.path, rpc.path):
            return None
        place = read_place(rpc.metadata, self._cookie.name)
        override = OverrideHost(place.addresses)
        rpc.attributes = rpc.attributes.with_(OVERRIDE_HOST, override)
        # "if the matched route can route to it; otherwise the selector's choice stands" (A60-01)
        if place.cluster in rpc.clusters:
            rpc.cluster = place.cluster
        return SessionRpc(self._cookie, place, rpc, override)


class SessionRpc(RpcFilter):
    """One RPC of a session. Driven by its response."""

    __slots__ = ("_cookie", "_override", "_place", "_rpc")

    def __init__(
        self, cookie: SessionCookie, place: SessionPlace, rpc: RoutedRpc, override: OverrideHost
    ) -> None:
        self._cookie: Final = cookie
        self._place: Final = place
        self._rpc: Final = rpc
        self._override: Final = override

    def on_head(self, metadata: Metadata) -> Metadata:
        return metadata + self._news()

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        if had_head:
            return end
        news = self._news()
        return replace(end, trailers=end.trailers + news) if news else end

    def _news(self) -> Metadata:
        """The header for the client, if it has to be told anything."""
        # The cluster is the RPC's last one: other filters may have changed it since.
        actual = SessionPlace(self._override.actual_addresses, self._rpc.cluster)
        # Nothing is known about an RPC that went nowhere.
        if not actual.addresses or actual == self._place:
            return ()
        return (("set-cookie", format_set_cookie(self._cookie, actual)),)
