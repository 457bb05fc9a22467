"""Resolvers: turn a target into endpoints and a service config.

api       interfaces of resolvers, their factories and listeners; options of resolvers
registry  ResolverRegistry: factories by scheme; DeferredResolverFactory
target    parsing of targets: scheme, authority, name; host and port
dns       DNS names, resolved through the Network; when to resolve again
http_proxy  ProxiedFactory: targets behind an HTTP proxy, which resolves the name
polling   PollingResolver: base class of resolvers that poll
static    targets that are addresses: ipv4, ipv6, unix, unix-abstract
unresolvable  factory and registry for targets that cannot be resolved

The resolver for the scheme `xds` is in `xds.resolver`. No resolver has access to the channel.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.resolver.api import (
    Resolver,
    ResolverContext,
    ResolverFactory,
    ResolverListener,
    ResolverOptions,
    ResolverResult,
)
from proxyless.resolver.dns import DnsFactory
from proxyless.resolver.http_proxy import ProxiedFactory, parse_proxy_uri
from proxyless.resolver.registry import DeferredResolverFactory, ResolverRegistry
from proxyless.resolver.static import (
    STATIC_FACTORIES,
    StaticFactory,
    StaticResolver,
)
from proxyless.resolver.target import Target, encode_authority, parse_host_port, parse_target

if TYPE_CHECKING:
    from proxyless.resolver.polling import PollingResolver
else:
    # Used by applications that have a resolver of their own.
    __getattr__ = lazy_exports(__name__, {"PollingResolver": "polling"})

__all__ = [
    "STATIC_FACTORIES",
    "DeferredResolverFactory",
    "DnsFactory",
    "PollingResolver",
    "ProxiedFactory",
    "Resolver",
    "ResolverContext",
    "ResolverFactory",
    "ResolverListener",
    "ResolverOptions",
    "ResolverRegistry",
    "ResolverResult",
    "StaticFactory",
    "StaticResolver",
    "Target",
    "encode_authority",
    "parse_host_port",
    "parse_proxy_uri",
    "parse_target",
]
