"""ProxiedFactory: resolver factory for targets behind an HTTP proxy.

Specs: A1; the environment variables and options are grpcio's, with grpcio's precedence.

With a proxy, the name of the proxy is resolved, not the target's: CONNECT carries the target's
name. So the endpoints are the proxy's, as in grpcio. Only targets that are lists of addresses keep
those, each reached through the proxy.

The environment is read each time a channel leaves IDLE. An invalid value is logged and ignored, as
in grpcio. Neither logs nor errors contain the URI, because it may have a password.
"""

from __future__ import annotations

import logging
import os
import re
from base64 import b64encode
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    HTTP_PROXY,
    Address,
    Endpoint,
    HttpProxy,
    IpAddress,
    Status,
)
from proxyless.base.endpoint import join_host_port
from proxyless.base.frozen import frozen
from proxyless.base.percent import unquote_to_bytes
from proxyless.resolver.dns import DnsFactory
from proxyless.resolver.target import Target, naming_target, parse_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.resolver.api import (
        Resolver,
        ResolverContext,
        ResolverFactory,
        ResolverListener,
        ResolverOptions,
        ResolverResult,
    )

LOGGER: Final = logging.getLogger("proxyless.resolver.http_proxy")

# The first one that is set is used, even if it is empty.
PROXY_VARIABLES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTION_VARIABLES: Final = ("no_grpc_proxy", "no_proxy")

_WANTED: Final = "wanted http://host:port or http://user:password@host:port"
# Compiled when they are first used.
_PREFIX_LENGTH: Final = r"[0-9]{1,9}"
_URI: Final = r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([/?#].*)?"


@frozen
class ProxyServer:
    """Host, port and credentials of a proxy."""

    host: str
    port: int
    # The value of Proxy-Authorization; empty: none. A secret, so it is not in the repr.
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return make_connect_target(self.host, self.port)


def parse_proxy_uri(text: str) -> ProxyServer:
    """The proxy of a URI, or ValueError without the URI."""
    uri = re.fullmatch(_URI, text, re.DOTALL)
    if uri is None:
        raise ValueError(f"is not a URI of a proxy: {_WANTED}")
    if uri[1] != "http":
        raise ValueError(f"has the scheme {uri[1]!r}, which is not supported: {_WANTED}")
    if uri[3] and "@" in uri[3]:
        # Probably a password with a slash: the host would contain a part of it.
        raise ValueError(f"has '@' behind '/', '?' or '#', which passwords have encoded: {_WANTED}")
    user_info, _, host_port = uri[2].rpartition("@")
    try:
        host, port = parse_host_port(host_port)
        make_connect_target(host, port)
    except ValueError:
        raise ValueError(f"has no host of a proxy: {_WANTED}") from None
    authorization = ""
    if user_info:
        # RFC 7617; as in grpcio, a user without a password is sent without a colon.
        authorization = f"Basic {b64encode(unquote_to_bytes(user_info.encode())).decode('ascii')}"
    return ProxyServer(host, port, authorization)


def choose_proxy(options: ResolverOptions, environ: Mapping[str, str]) -> ProxyServer | None:
    """The proxy of a channel; None: connections are direct."""
    if not options.is_proxy_from_environment:
        return options.proxy
    name = next((each for each in PROXY_VARIABLES if each in environ), "")
    if not environ.get(name):
        return None
    try:
        return parse_proxy_uri(environ[name])
    except ValueError as error:
        LOGGER.warning("environment variable %r %s; connections are direct", name, error)
        return None


def find_exceptions(environ: Mapping[str, str]) -> str:
    """The list of hosts that are reached directly."""
    return next((environ[name] for name in EXCEPTION_VARIABLES if name in environ), "")


def is_excepted(host: str, no_proxy: str) -> bool:
    """Whether a list of domains, addresses and CIDR blocks matches this host."""
    return any(_matches(host, entry.strip()) for entry in no_proxy.split(","))


def _matches(host: str, entry: str) -> bool:
    # "example.com" and ".example.com" match the domain and its subdomains.
    domain = entry.removeprefix(".").lower()
    name = host.lower()
    if domain and (name == domain or name.endswith(f".{domain}")):
        return True
    address, slash, bits = entry.partition("/")
    if not slash or not re.fullmatch(_PREFIX_LENGTH, bits):
        return False
    from ipaddress import ip_address, ip_network  # noqa: PLC0415 - seldom used

    try:
        longest = ip_address(address).max_prefixlen
        block = ip_network((address, min(int(bits), longest)), strict=False)
        return ip_address(host) in block
    except ValueError:
        return False


def make_connect_target(host: str, port: int) -> str:
    """Target of a CONNECT request: in ASCII, IPv6 in brackets."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError(f"host {host!r} is not a valid name") from None
    return join_host_port(host, port)


# Endpoints of a target, by the addresses of its proxy.
_MakeEndpoints: TypeAlias = "Callable[[tuple[Address, ...]], tuple[Endpoint, ...]]"


@frozen
class ProxiedFactory:
    """Creates resolvers of another factory, or of a proxy in their place."""

    inner: ResolverFactory
    # Not in the repr: it contains secrets.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        # First, because it raises if the target is malformed.
        direct = self.inner.create(target, listener, context)
        proxy = choose_proxy(context.options, self.environ)
        make = None if proxy is None else self._choose_endpoints(target, proxy)
        if proxy is None or make is None:
            return direct
        direct.close()
        return DnsFactory().create(
            Target("dns", "", f"/{proxy}"), _ProxyListener(listener, proxy, make), context
        )

    def _choose_endpoints(self, target: Target, proxy: ProxyServer) -> _MakeEndpoints | None:
        """How to make endpoints of the proxy's addresses; None: the proxy is not used."""
        exceptions = find_exceptions(self.environ)
        if self.scheme == "dns":
            host, port = parse_host_port(target.name)
            if is_excepted(host, exceptions):
                return None
            with naming_target(target):
                return partial(_named_endpoints, proxy, make_connect_target(host, port))
        places = (parse_host_port(text) for text in target.name.split(",") if text)
        addresses = tuple(
            (IpAddress(host, port), is_excepted(host, exceptions)) for host, port in places
        )
        is_all_direct = all(is_direct for _, is_direct in addresses)
        return None if is_all_direct else partial(_listed_endpoints, proxy, addresses)

    def default_authority(self, target: Target) -> str:
        return self.inner.default_authority(target)


def _named_endpoints(
    proxy: ProxyServer, name: str, proxy_addresses: tuple[Address, ...]
) -> tuple[Endpoint, ...]:
    """The proxy's addresses, with CONNECT to the name (A1)."""
    http_proxy = HttpProxy(target=name, authorization=proxy.authorization)
    attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, http_proxy)
    return tuple(Endpoint((address,), attributes) for address in proxy_addresses)


def _listed_endpoints(
    proxy: ProxyServer,
    addresses: tuple[tuple[IpAddress, bool], ...],
    proxy_addresses: tuple[Address, ...],
) -> tuple[Endpoint, ...]:
    """These addresses, through the first one of the proxy unless they are reached directly."""
    first = proxy_addresses[0]
    assert isinstance(first, IpAddress), "names have IP addresses"
    http_proxy = HttpProxy(first, authorization=proxy.authorization)
    attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, http_proxy)
    return tuple(
        Endpoint((address,)) if is_direct else Endpoint((address,), attributes)
        for address, is_direct in addresses
    )


class _ProxyListener:
    """Listener of the proxy's resolver. Passes the target's endpoints on to the channel."""

    def __init__(
        self, listener: ResolverListener, proxy: ProxyServer, make: _MakeEndpoints
    ) -> None:
        self._listener = listener
        self._proxy = proxy
        self._make = make

    def on_result(self, result: ResolverResult) -> Status:
        found = result.endpoints
        if isinstance(found, Status):
            text = f"http proxy {self._proxy}: {found.details}"
            return self._listener.on_result(replace(result, endpoints=Status(found.code, text)))
        addresses = tuple(address for endpoint in found for address in endpoint.addresses)
        note = f"through http proxy {self._proxy}"
        return self._listener.on_result(
            replace(result, endpoints=self._make(addresses), resolution_note=note)
        )
