"""Does this target lie behind an HTTP proxy, and how is it found then?

Specs: A1; the environment variables and options are grpcio's, with grpcio's precedence.

With a proxy the target's name is not looked up here: the proxy's is, and the proxy is asked to
connect to the target by its name. So the endpoints are the proxy's, as in grpcio; only targets that
are lists of addresses keep those, each reached through the proxy.

The environment is read each time a channel leaves IDLE. What stands in it and cannot be used is
logged, and then connections are direct, as in grpcio. Neither logs nor errors show the URI: there
may be a password in it.
"""

from __future__ import annotations

import logging
import os
import re
from base64 import b64encode
from dataclasses import field, replace
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    HTTP_PROXY,
    Address,
    Endpoint,
    HttpProxy,
    IpAddress,
    Status,
)
from proxyless.base.frozen import frozen
from proxyless.resolver.dns import DnsFactory
from proxyless.resolver.target import Target, naming_target, parse_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.resolver.api import (
        Resolver,
        ResolverContext,
        ResolverFactory,
        ResolverListener,
        ResolverResult,
    )

LOGGER: Final = logging.getLogger("proxyless.resolver.http_proxy")

# Options of a channel, by grpcio's names.
ENABLE_OPTION: Final = "grpc.enable_http_proxy"
PROXY_OPTION: Final = "grpc.http_proxy"
# The first that is set counts, even if it is empty: that is "no proxy", and "no exceptions".
PROXY_VARIABLES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTION_VARIABLES: Final = ("no_grpc_proxy", "no_proxy")

_WANTED: Final = "wanted http://host:port or http://user:password@host:port"
_PREFIX_LENGTH: Final = re.compile(r"[0-9]{1,9}").fullmatch
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([/?#].*)?", re.DOTALL).fullmatch


# ---------------------------------------------------------------------------------------------
# Decision


@frozen
class ProxyServer:
    """Where a proxy is, and what it is told about us."""

    host: str
    port: int
    # The value of Proxy-Authorization; empty: none. A secret, so it is not shown.
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def parse_proxy_uri(text: str) -> ProxyServer:
    """The proxy of a URI, or ValueError that does not show it."""
    uri = _URI(text)
    if uri is None:
        raise ValueError(f"is not a URI of a proxy: {_WANTED}")
    if uri[1] != "http":
        raise ValueError(f"has the scheme {uri[1]!r}, which is not supported: {_WANTED}")
    if uri[3] and "@" in uri[3]:
        # A password with a slash, rather than a path: what looks like the host is part of it.
        raise ValueError(f"has '@' behind '/', '?' or '#', which passwords have encoded: {_WANTED}")
    user_info, _, host_port = uri[2].rpartition("@")
    try:
        host, port = parse_host_port(host_port)
        join_host_port(host, port)
    except ValueError:
        raise ValueError(f"has no host of a proxy: {_WANTED}") from None
    authorization = ""
    if user_info:
        # As RFC 7617 has it; a user without a password is sent as it is, as in grpcio.
        authorization = f"Basic {b64encode(unquote_to_bytes(user_info)).decode('ascii')}"
    return ProxyServer(host, port, authorization)


def choose_proxy(options: Mapping[str, object], environ: Mapping[str, str]) -> ProxyServer | None:
    """The proxy of a channel, for hosts that are not excepted; None: connections are direct."""
    found = _find_uri(options, environ) if options.get(ENABLE_OPTION, True) else None
    if found is None or not found[1]:
        return None
    source, text = found
    try:
        return parse_proxy_uri(text)
    except ValueError as error:
        LOGGER.warning("%s %s; connections are direct", source, error)
        return None


def _find_uri(options: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Who says it, and what."""
    option = options.get(PROXY_OPTION)
    if option is not None:
        text = option.decode("utf-8", "replace") if isinstance(option, bytes) else str(option)
        return f"option {PROXY_OPTION!r}", text
    for name in PROXY_VARIABLES:
        if name in environ:
            return f"environment variable {name!r}", environ[name]
    return None


def find_exceptions(environ: Mapping[str, str]) -> str:
    """The list of hosts that are connected to directly."""
    return next((environ[name] for name in EXCEPTION_VARIABLES if name in environ), "")


def is_excepted(host: str, no_proxy: str) -> bool:
    """Whether a list of domains, addresses and CIDR blocks has this host."""
    return any(_is_in(host, entry.strip()) for entry in no_proxy.split(","))


def _is_in(host: str, entry: str) -> bool:
    # "example.com" and ".example.com" are the domain itself and everything below it.
    domain = entry.removeprefix(".").lower()
    name = host.lower()
    if domain and (name == domain or name.endswith(f".{domain}")):
        return True
    address, slash, bits = entry.partition("/")
    if not slash or not _PREFIX_LENGTH(bits):
        return False
    try:
        longest = ip_address(address).max_prefixlen
        block = ip_network((address, min(int(bits), longest)), strict=False)
        return ip_address(host) in block
    except ValueError:
        return False


def join_host_port(host: str, port: int) -> str:
    """As it stands in a CONNECT request: in ASCII, IPv6 in brackets."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError(f"host {host!r} is not a valid name") from None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---------------------------------------------------------------------------------------------
# Resolver

# Of the addresses of a proxy.
_MakeEndpoints: TypeAlias = "Callable[[tuple[Address, ...]], tuple[Endpoint, ...]]"


@frozen
class ProxiedFactory:
    """Makes the resolvers of another factory, or of a proxy in their place."""

    inner: ResolverFactory
    # Not shown: there are secrets in it.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        # First: it raises for what is wrong with the target.
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
        """What becomes of the proxy's addresses; None: nobody asks it."""
        exceptions = find_exceptions(self.environ)
        if self.scheme == "dns":
            host, port = parse_host_port(target.name)
            if is_excepted(host, exceptions):
                return None
            with naming_target(target):
                return _Named(proxy, join_host_port(host, port))
        places = (parse_host_port(text) for text in target.name.split(",") if text)
        addresses = tuple(
            (IpAddress(host, port), is_excepted(host, exceptions)) for host, port in places
        )
        is_all_direct = all(is_direct for _, is_direct in addresses)
        return None if is_all_direct else _Listed(proxy, addresses)

    def default_authority(self, target: Target) -> str:
        return self.inner.default_authority(target)


@frozen
class _Named:
    """The endpoints of a name: the proxy's, each asked for the name (A1)."""

    proxy: ProxyServer
    name: str

    def __call__(self, proxy_addresses: tuple[Address, ...]) -> tuple[Endpoint, ...]:
        way = HttpProxy(target=self.name, authorization=self.proxy.authorization)
        attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, way)
        return tuple(Endpoint((address,), attributes) for address in proxy_addresses)


@frozen
class _Listed:
    """The endpoints of a list of addresses: those, through the first address of the proxy."""

    proxy: ProxyServer
    # With whether it is excepted.
    addresses: tuple[tuple[IpAddress, bool], ...]

    def __call__(self, proxy_addresses: tuple[Address, ...]) -> tuple[Endpoint, ...]:
        through = proxy_addresses[0]
        assert isinstance(through, IpAddress), "names have IP addresses"
        way = HttpProxy(through, authorization=self.proxy.authorization)
        attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, way)
        return tuple(
            Endpoint((address,)) if is_direct else Endpoint((address,), attributes)
            for address, is_direct in self.addresses
        )


class _ProxyListener:
    """Makes of the proxy's addresses what the channel is told. Driven by the proxy's resolver."""

    def __init__(
        self,
        listener: ResolverListener,
        proxy: ProxyServer,
        make: _MakeEndpoints,
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
