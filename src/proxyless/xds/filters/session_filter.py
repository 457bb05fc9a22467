"""Stateful session filter: reads the session's endpoint from a cookie, and sets the cookie.

Specs: A55 (the cookie), A60 (its cluster), RFC 6265 5.1.4 (paths).

The cookie's value is the addresses of one endpoint and the cluster, in base64. It has the same
bytes as C-core's, so that both clients can share a session. Config and parser are in
`stateful_session`; the policy that picks the endpoint is `lb.override_host`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.filters.rpc_filter import RpcFilter

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.wire import StreamEnd
    from proxyless.xds.filters.rpc_filter import RoutedRpc
    from proxyless.xds.filters.stateful_session import SessionCookie


class SessionSetCookie(str):
    """A set-cookie value of this filter, as opposed to one of a backend."""

    __slots__ = ()


class BackendCookies(str):
    """A cookie value with cookies that backends have set. Filters do not read it.

    Otherwise a backend could move a session to another host or cluster of a route.
    """

    __slots__ = ()


class SessionEndpoint(NamedTuple):
    """The cookie's value: the endpoint and the cluster of a session."""

    addresses: tuple[str, ...] = ()
    cluster: str = ""


NO_SESSION_ENDPOINT: Final = SessionEndpoint()


def matches_path(cookie_path: str, path: str) -> bool:
    """Whether the cookie is for RPCs of this path (RFC 6265 5.1.4); an empty path is for all."""
    if not path.startswith(cookie_path):
        return False
    tail = path[len(cookie_path) :]
    return not tail or not cookie_path or cookie_path.endswith("/") or tail.startswith("/")


def read_session_endpoint(metadata: Metadata, name: str) -> SessionEndpoint:
    """The endpoint in the first cookie of this name, if that is valid."""
    for key, value in metadata:
        if key == "cookie" and isinstance(value, str) and not isinstance(value, BackendCookies):
            for pair in value.split(";"):
                found, equals, encoded = pair.strip(" ").partition("=")
                if equals and found == name:
                    return parse_cookie_value(encoded)
    return NO_SESSION_ENDPOINT


def parse_cookie_value(encoded: str) -> SessionEndpoint:
    """The endpoint in a cookie's value, if that is base64 of text."""
    try:
        # Some clients strip the padding.
        text = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode()
    except (Base64Error, ValueError):
        return NO_SESSION_ENDPOINT
    addresses, _, cluster = text.partition(";")
    return SessionEndpoint(tuple(addresses.split(",")) if addresses else (), cluster)


def format_cookie_value(endpoint: SessionEndpoint) -> str:
    text = f"{','.join(endpoint.addresses)};{endpoint.cluster}"
    return b64encode(text.encode()).decode("ascii")


def format_set_cookie(cookie: SessionCookie, endpoint: SessionEndpoint) -> str:
    parts = [f"{cookie.name}={format_cookie_value(endpoint)}", "HttpOnly"]
    if cookie.path:
        parts.append(f"Path={cookie.path}")
    if cookie.ttl_s > 0:
        parts.append(f"Max-Age={int(cookie.ttl_s)}")
    return "; ".join(parts)


class SessionFilter:
    """The filter of one route."""

    __slots__ = ("_cookie",)

    def __init__(self, cookie: SessionCookie) -> None:
        self._cookie: Final = cookie

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        if not matches_path(self._cookie.path, rpc.path):
            return None
        endpoint = read_session_endpoint(rpc.metadata, self._cookie.name)
        override = OverrideHost(endpoint.addresses)
        rpc.attributes = rpc.attributes.with_(OVERRIDE_HOST, override)
        # "if the matched route can route to it; otherwise the selector's choice stands" (A60-01)
        if endpoint.cluster in rpc.clusters:
            rpc.cluster = endpoint.cluster
        return SessionRpc(self._cookie, endpoint, rpc, override)


class SessionRpc(RpcFilter):
    """The filter state of one RPC: sets the cookie if the session's endpoint has changed."""

    __slots__ = ("_cookie", "_endpoint", "_override", "_rpc")

    def __init__(
        self,
        cookie: SessionCookie,
        endpoint: SessionEndpoint,
        rpc: RoutedRpc,
        override: OverrideHost,
    ) -> None:
        self._cookie: Final = cookie
        self._endpoint: Final = endpoint
        self._rpc: Final = rpc
        self._override: Final = override

    def on_head(self, metadata: Metadata) -> Metadata:
        return metadata + self._set_cookie()

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        if had_head:
            return end
        set_cookie = self._set_cookie()
        return replace(end, trailers=end.trailers + set_cookie) if set_cookie else end

    def _set_cookie(self) -> Metadata:
        """The header, if the endpoint has changed."""
        # Read late: a later filter may have changed the cluster.
        actual = SessionEndpoint(self._override.actual_addresses, self._rpc.cluster)
        # Without addresses, the RPC was not sent to an endpoint.
        if not actual.addresses or actual == self._endpoint:
            return ()
        return (("set-cookie", SessionSetCookie(format_set_cookie(self._cookie, actual))),)
