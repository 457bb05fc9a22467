"""Parsers of HTTP CONNECT proxies of endpoints (A86).

A cluster enables proxies with a transport socket that wraps its actual one. The metadata of an
endpoint or its locality has the proxy's address. With GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT=false such
a cluster is rejected, and the metadata is ignored (D41).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import IpAddress
from proxyless.base.endpoint import PORT_MAX
from proxyless.base.environment import read_flag
from proxyless.xds.parsing.proto_fields import add_error, decode_any_as

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.xds.resources import UpstreamTls

HTTP_CONNECT_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT"
HTTP_11_PROXY: Final = (
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport"
)
# The metadata key, and the message type of its value.
PROXY_ADDRESS: Final = "envoy.http11_proxy_transport_socket.proxy_address"
ADDRESS: Final = "envoy.config.core.v3.Address"


def is_http_connect_enabled(environ: Mapping[str, str]) -> bool:
    return read_flag(environ, HTTP_CONNECT_GUARD, default=True)


def has_http_proxies(socket: Proto, environ: Mapping[str, str]) -> bool:
    """Whether this TransportSocket enables HTTP proxies."""
    is_proxied = socket.typed_config.type_url.endswith(f"/{HTTP_11_PROXY}")
    return is_proxied and is_http_connect_enabled(environ)


def parse_proxied_socket(
    socket: Proto, parse_tls: Callable[[Proto], UpstreamTls | None], errors: ValidationErrors
) -> UpstreamTls | None:
    """The TLS of the socket that a TransportSocket with proxies wraps, if any.

    The inner socket is parsed "the same [...] that we would have if it had been the
    transport_socket field in the CDS resource" - A86.
    """
    with errors.field("typed_config"):
        message = decode_any_as(HTTP_11_PROXY, socket.typed_config, errors)
        if message is None or not message.HasField("transport_socket"):
            return None
        with errors.key(HTTP_11_PROXY), errors.field("transport_socket"):
            return parse_tls(message.transport_socket)


def parse_proxy_address(owner: Proto, errors: ValidationErrors) -> IpAddress | None:
    """The proxy in the metadata of an endpoint or a locality, if any."""
    entries = owner.metadata.typed_filter_metadata
    # "If that key is not present, or if the key is present but the value has a different type, the
    # entry will be ignored" - A86
    if PROXY_ADDRESS not in entries or not entries[PROXY_ADDRESS].type_url.endswith(f"/{ADDRESS}"):
        return None
    with errors.field("metadata.typed_filter_metadata"), errors.key(PROXY_ADDRESS):
        message = decode_any_as(ADDRESS, entries[PROXY_ADDRESS], errors)
        if message is None:
            return None
        with errors.key(ADDRESS), errors.field("socket_address"):
            if not message.HasField("socket_address"):
                errors.add("is missing")
                return None
            return _parse_socket_address(message.socket_address, errors)


def _parse_socket_address(message: Proto, errors: ValidationErrors) -> IpAddress | None:
    # Unlike in the address of an endpoint, the port is required.
    port: int | None = message.port_value if message.HasField("port_value") else None
    if port is None or port > PORT_MAX:
        text = "is missing" if port is None else f"is {port}, wanted at most {PORT_MAX}"
        add_error(errors, "port_value", text)
    try:
        address = IpAddress(message.address, 0)
    except ValueError:
        add_error(errors, "address", f"is {message.address!r}, wanted a literal IP address")
        return None
    return None if port is None or port > PORT_MAX else IpAddress(address.host, port)
